import copy
from types import SimpleNamespace

import pytest
import torch

from mgs.models import likelihood, log_likelihoods, score, token_log_likelihoods
from mgs.models.likelihood import padded, scored_logits

PREFIXES = [(5, 6, 7), (300, 2), (11, 12, 13, 14), (9,)]
TARGETS = [(8, 9, 10, 0), (1, 0), (15, 16, 17, 18, 19, 20, 0), (33, 44, 55)]


def by_hand(model, prefix, target, with_prefix=False):
    """The sum of log-softmax values, one token after another, one sequence at a time."""
    ids = [*prefix, *target]
    with torch.no_grad():
        log_probs = torch.log_softmax(model(torch.tensor([ids])).logits[0].double(), dim=-1)
    first = 1 if with_prefix else len(prefix)
    return sum(log_probs[position - 1, ids[position]].item() for position in range(first, len(ids)))


def test_padding_goes_where_asked():
    assert padded([[1, 2], [3]], 9, "cpu").tolist() == [[1, 2], [3, 9]]
    assert padded([[1, 2], [3]], 9, "cpu", left=True).tolist() == [[1, 2], [9, 3]]
    assert padded([(1, 2, 3), (), (4,)], 9, "cpu").tolist() == [[1, 2, 3], [9, 9, 9], [4, 9, 9]]
    assert padded([(1, 2, 3), (), (4,)], 9, "cpu", left=True).tolist() == [[1, 2, 3], [9, 9, 9], [9, 9, 4]]
    assert padded([[1]], 0, "cpu").dtype == torch.long


def test_log_likelihoods_equal_the_sum_made_by_hand(model):
    expected = [by_hand(model, x, y) for x, y in zip(PREFIXES, TARGETS, strict=True)]
    assert log_likelihoods(model, PREFIXES, TARGETS).tolist() == pytest.approx(expected, rel=1e-4)


def test_what_else_is_in_the_batch_does_not_matter(model):
    together = log_likelihoods(model, PREFIXES, TARGETS).tolist()
    alone = [log_likelihoods(model, [x], [y]).item() for x, y in zip(PREFIXES, TARGETS, strict=True)]
    assert together == pytest.approx(alone, rel=1e-4)


def test_scored_tokens_are_the_targets_and_others_are_zero(model):
    values_BT, scored_BT = token_log_likelihoods(model, PREFIXES[:2], TARGETS[:2])
    assert scored_BT.int().tolist() == [[0, 0, 1, 1, 1, 1], [0, 1, 1, 0, 0, 0]]
    assert (values_BT[~scored_BT] == 0).all()
    assert (values_BT[scored_BT] < 0).all()


def test_with_prefix_all_tokens_but_the_first_are_scored(model):
    _, _, scored_BT = scored_logits(model, PREFIXES[:2], TARGETS[:2], with_prefix=True)
    assert scored_BT.int().tolist() == [[1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0]]
    logits_NV, tokens_N, _ = scored_logits(model, PREFIXES, TARGETS, with_prefix=True)
    assert tokens_N.tolist() == [token for x, y in zip(PREFIXES, TARGETS, strict=True) for token in (*x, *y)[1:]]
    log_probs_N = torch.log_softmax(logits_NV, dim=-1).gather(1, tokens_N[:, None])
    expected = [by_hand(model, x, y, with_prefix=True) for x, y in zip(PREFIXES, TARGETS, strict=True)]
    assert log_probs_N.sum().item() == pytest.approx(sum(expected), rel=1e-4)


@pytest.mark.parametrize("budget", [1, 12, 10_000])
def test_score_equals_log_likelihoods_whatever_the_budget(model, budget):
    expected = log_likelihoods(model, PREFIXES, TARGETS).tolist()
    assert score(model, PREFIXES, TARGETS, budget=budget) == pytest.approx(expected, rel=1e-4)


@pytest.fixture
def passes(monkeypatch):
    """The forward passes of watched models: the shapes of what went in and of the logits that came out."""
    seen = []

    def watch(model):
        def note(module, given, options, output):
            seen.append((options["input_ids"].shape, output.logits.shape))

        return model.register_forward_hook(note, with_kwargs=True)

    return seen, watch


@pytest.mark.parametrize(
    ("room", "shapes"),
    [
        (4 * 400 * 44, [(4, 11)]),  # of 400 types in four bytes each, 44 tokens
        (4 * 400 * 44 - 1, [(3, 7), (1, 11)]),
        (4 * 400 * 21, [(3, 7), (1, 11)]),
        (4 * 400 * 21 - 1, [(2, 4), (1, 7), (1, 11)]),
        (1, [(1, 4), (1, 4), (1, 7), (1, 11)]),  # a row by itself is always allowed
    ],
)
def test_score_keeps_logits_within_their_bytes(model, passes, monkeypatch, room, shapes):
    seen, watch = passes
    model = copy.deepcopy(model)
    watch(model)
    expected = score(model, PREFIXES, TARGETS, budget=10_000)
    seen.clear()
    monkeypatch.setattr(likelihood, "LOGITS_BYTES", room)
    assert score(model, PREFIXES, TARGETS) == pytest.approx(expected, rel=1e-4)
    assert [tuple(given) for given, _ in seen] == shapes


@pytest.mark.parametrize(("gigabytes", "tokens"), [(24, 2**31), (80, 80 * 2**26), (2000, 2**40)])
def test_a_large_gpu_takes_more_logits_at_once(monkeypatch, gigabytes, tokens):
    """A sixteenth of the memory, 2²⁶ bytes of a gigabyte; no fewer than anywhere, no more than a pass takes."""
    model = SimpleNamespace(
        parameters=lambda: iter([SimpleNamespace(device=torch.device("cuda"))]),
        config=SimpleNamespace(get_text_config=lambda: SimpleNamespace(vocab_size=100_000)),
    )
    monkeypatch.setattr(likelihood, "own_memory", lambda device: gigabytes * 2**30)
    assert likelihood.scoring_budget(model) == min(65_536, tokens // 400_000)


def test_a_process_that_shares_a_gpu_has_its_part_of_the_memory(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(total_memory=1000))
    monkeypatch.setattr(torch.cuda, "get_per_process_memory_fraction", lambda device: 0.25)
    assert likelihood.own_memory(torch.device("cuda")) == 250


def test_an_explicit_budget_is_taken_as_it_is(gpt2, passes, monkeypatch):
    seen, watch = passes
    model = copy.deepcopy(gpt2)
    watch(model)
    monkeypatch.setattr(likelihood, "LOGITS_BYTES", 1)
    score(model, PREFIXES, TARGETS, budget=10_000)
    assert len(seen) == 1


def test_a_model_that_does_not_tell_its_vocabulary_is_scored_all_the_same(gpt2):
    class Wrapped(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = gpt2

        def forward(self, **inputs):
            return self.inner(**inputs)

    assert score(Wrapped().eval(), PREFIXES, TARGETS) == score(gpt2, PREFIXES, TARGETS)


def test_logits_are_not_made_for_positions_that_are_prefix_in_every_row(model, passes):
    seen, watch = passes
    model = copy.deepcopy(model)
    watch(model)
    log_likelihoods(model, PREFIXES[:1] + PREFIXES[2:3], TARGETS[:1] + TARGETS[2:3])  # prefixes of 3 and 4 tokens
    log_likelihoods(model, PREFIXES, TARGETS)  # the shortest prefix has one
    scored_logits(model, PREFIXES[:1], TARGETS[:1], with_prefix=True)
    assert [tuple(made[:2]) for _, made in seen] == [(2, 11 - 2), (4, 11), (1, 7)]


def test_a_model_that_makes_all_logits_gives_the_same(gpt2):
    class Generous(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = gpt2

        def forward(self, logits_to_keep, **inputs):
            return self.inner(**inputs)

    for some in (slice(0, 1), slice(0, 3), slice(0, 4)):
        expected = log_likelihoods(gpt2, PREFIXES[some], TARGETS[some]).tolist()
        assert log_likelihoods(Generous(), PREFIXES[some], TARGETS[some]).tolist() == pytest.approx(expected, rel=1e-6)


def test_an_empty_target_has_log_likelihood_zero(model):
    assert log_likelihoods(model, PREFIXES[:1], [()]).tolist() == [0.0]
    assert score(model, PREFIXES, [*TARGETS[:3], ()])[3] == 0.0


def test_without_a_prefix_the_first_token_is_not_scored(model):
    expected = by_hand(model, (8,), (9, 10, 0))
    assert log_likelihoods(model, [()], [(8, 9, 10, 0)]).item() == pytest.approx(expected, rel=1e-4)


def test_score_of_nothing_is_nothing(gpt2):
    assert score(gpt2, [], []) == []


def test_the_gradient_equals_that_of_the_librarys_loss(model):
    ours, theirs = copy.deepcopy(model), copy.deepcopy(model)
    (-log_likelihoods(ours, PREFIXES[:1], TARGETS[:1]).sum()).backward()
    ids = torch.tensor([[*PREFIXES[0], *TARGETS[0]]])
    labels = ids.clone()
    labels[:, : len(PREFIXES[0])] = -100
    (theirs(ids, labels=labels).loss * len(TARGETS[0])).backward()
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.allclose(a.grad, b.grad, rtol=1e-3, atol=1e-4 * b.grad.abs().max().item())


def test_score_ignores_dropout_and_restores_training_mode(gpt2):
    noisy = copy.deepcopy(gpt2).train()
    assert score(noisy, PREFIXES, TARGETS) == pytest.approx(score(gpt2, PREFIXES, TARGETS), rel=1e-6)
    assert all(module.training for module in noisy.modules())
    calm = copy.deepcopy(gpt2).eval()
    score(calm, PREFIXES, TARGETS)
    assert not any(module.training for module in calm.modules())


def test_score_restores_training_mode_after_an_exception(gpt2):
    noisy = copy.deepcopy(gpt2).train()
    with pytest.raises(IndexError):
        score(noisy, [(10_000,)], [(1,)])
    assert noisy.training
