"""Maximum likelihood against the library's own loss."""

from types import SimpleNamespace

import pytest
import torch

from mgs.methods import MLE, Key, mle, mle_loss
from mgs.methods.method import autocast, gradient_of
from mgs.methods.mle import mle_gradient, shortest_targets, tokens_at_once

IGNORED = -100


def padded_with_labels(batch, with_prefix=False):
    """The batch as `model(labels=...)` wants it."""
    width = max(len(example) for example in batch.examples)
    ids = torch.zeros(len(batch), width, dtype=torch.long)
    mask, labels = torch.zeros_like(ids), torch.full_like(ids, IGNORED)
    for row, example in enumerate(batch.examples):
        tokens = torch.tensor([*example.prefix, *example.target])
        first = 0 if with_prefix else len(example.prefix)
        ids[row, : len(tokens)], mask[row, : len(tokens)] = tokens, 1
        labels[row, first : len(tokens)] = tokens[first:]
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


@pytest.mark.parametrize("with_prefix", [False, True])
def test_the_gradient_is_that_of_the_library_s_loss(gpt2, batch, grad, assert_same, with_prefix):
    loss = gpt2(**padded_with_labels(batch, with_prefix)).loss
    outcome = MLE(with_prefix=with_prefix)(gpt2, batch, Key(0, 0))
    assert outcome.loss == pytest.approx(loss.item(), rel=1e-5)
    assert_same(outcome.gradient, grad(loss, gpt2))


def test_the_loss_is_a_mean_over_target_tokens_not_over_rows(gpt2, batch, log_p):
    total = sum(log_p(gpt2, example.prefix, example.target).item() for example in batch.examples)
    assert mle_loss(gpt2, batch).item() == pytest.approx(-total / 9, rel=1e-5)  # 3 + 2 + 1 + 3 tokens


def test_the_gradient_is_computed_with_dropout_and_leaves_no_grad_behind(make_gpt2, batch):
    model = make_gpt2(dropout=0.3).eval()
    losses = {MLE()(model, batch, Key(0, step)).loss for step in range(4)}
    assert len(losses) == 4
    assert model.training
    assert all(p.grad is None for p in model.parameters())


def test_only_searched_parameters_get_a_gradient_and_unreached_ones_a_zero(gpt2, batch):
    gpt2.transformer.wpe.weight.requires_grad_(False)
    gpt2.unused = torch.nn.Linear(2, 2)
    gradient = MLE()(gpt2, batch, Key(0, 0)).gradient
    assert gradient.keys() == {name for name, p in gpt2.named_parameters() if p.requires_grad}
    assert "transformer.wpe.weight" not in gradient
    assert not gradient["unused.weight"].any()
    assert gradient["unused.weight"].shape == (2, 2)


def test_bf16_is_an_approximation_in_fp32_tensors(gpt2, batch):
    exact, rough = MLE()(gpt2, batch, Key(0, 0)), MLE(bf16=True)(gpt2, batch, Key(0, 0))
    assert rough.loss != exact.loss
    assert rough.loss == pytest.approx(exact.loss, rel=0.02)
    assert {tensor.dtype for tensor in rough.gradient.values()} == {torch.float32}


def test_bf16_leaves_cudnn_s_attention_alone_for_as_long_as_it_lasts(gpt2):
    seen = []
    for bf16 in (True, False):
        with autocast(gpt2, bf16):
            seen.append((torch.backends.cuda.cudnn_sdp_enabled(), torch.backends.cuda.flash_sdp_enabled()))
    assert seen == [(False, True), (True, True)]
    assert torch.backends.cuda.cudnn_sdp_enabled()


def test_following_the_gradient_learns_the_batch(gpt2, batch):
    start = MLE()(gpt2, batch, Key(0, 0)).loss
    optimizer = torch.optim.Adam(gpt2.parameters(), lr=0.05)
    for step in range(40):
        for name, tensor in MLE()(gpt2, batch, Key(0, step)).gradient.items():
            gpt2.get_parameter(name).grad = tensor
        optimizer.step()
    assert MLE()(gpt2, batch, Key(0, 0)).loss < 0.2 * start


def test_mle_remembers_nothing():
    method = MLE()
    assert method.state() == {}
    method.load_state({})
    assert method.name == "mle"


def test_a_large_batch_in_pieces_has_the_gradient_of_the_whole(make_gpt2, batch):
    model = make_gpt2().eval()  # no dropout: pieces would draw it in another order
    whole = mle_loss(model, batch)
    gradient, loss = mle_gradient(model, batch, budget=6)
    assert loss == pytest.approx(whole.item(), rel=1e-5)
    for name, expected in gradient_of(whole, model).items():
        torch.testing.assert_close(gradient[name], expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("with_prefix", [False, True])
def test_a_batch_that_is_too_large_for_one_pass_is_learned_in_pieces(gpt2, batch, monkeypatch, with_prefix):
    whole = MLE(with_prefix=with_prefix)(gpt2, batch, Key(0, 0))
    passes = []
    monkeypatch.setattr(mle, "WHOLE", 6)
    monkeypatch.setattr(mle, "CHUNK", 6)
    monkeypatch.setattr(mle, "mle_loss", lambda *given: passes.append(len(given[1])) or mle_loss(*given))
    outcome = MLE(with_prefix=with_prefix)(gpt2, batch, Key(0, 0))
    assert len(passes) > 1
    assert (outcome.loss, outcome.weight) == (pytest.approx(whole.loss, rel=1e-5), whole.weight)
    for name, expected in whole.gradient.items():
        torch.testing.assert_close(outcome.gradient[name], expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("own", "expected"), [(10**9, 4096), (8 * 10**9, 10_000), (10**12, 32_768)])
def test_a_gpu_takes_as_many_tokens_at_once_as_fit_its_memory_whatever_of_it_is_free(gpt2, monkeypatch, own, expected):
    assert tokens_at_once(gpt2) == 4096
    monkeypatch.setattr(mle, "own_memory", lambda device: own)
    monkeypatch.setattr(mle, "bytes_per_token", lambda model: 10**5)
    parameter = SimpleNamespace(device=torch.device("cuda"))
    assert tokens_at_once(SimpleNamespace(parameters=lambda: iter([parameter]), config=gpt2.config)) == expected


@pytest.mark.parametrize(("share", "kept"), [(1.0, [3, 2, 1, 3]), (0.5, [2, 1]), (0.25, [1]), (0.0, [1])])
def test_only_the_shortest_targets_of_a_batch_are_learned(gpt2, batch, assert_same, share, kept):
    short = shortest_targets(batch, share)
    assert [len(target) for target in short.targets] == kept  # in the order of the batch
    outcome = MLE(shortest=share)(gpt2, batch, Key(0, 0))
    assert_same(outcome.gradient, gradient_of(mle_loss(gpt2, short), gpt2))
    assert outcome.weight == sum(kept)


def test_what_is_short_is_told_by_the_whole_batch_also_to_a_process_that_has_none_of_it(gpt2, batch, assert_same):
    shares = [batch.share(rows) for rows in ([0, 1], [2], [3])]
    outcomes = [MLE(shortest=0.5)(gpt2, share, Key(0, 0)) for share in shares]
    assert [outcome.weight for outcome in outcomes] == [2, 1, 0]
    whole = MLE(shortest=0.5)(gpt2, batch, Key(0, 0)).gradient
    mean = {name: (2 * outcomes[0].gradient[name] + outcomes[1].gradient[name]) / 3 for name in whole}
    assert_same(mean, whole)
