"""The guide that says when to stop: the end's row of the output layer."""

import warnings

import pytest
import torch

from mgs.methods import MGS, Key
from mgs.methods.ends import end_logits, ends_gradient
from mgs.models.likelihood import scored_logits
from mgs.search import ProposalForm
from mgs.search.directions import norm
from mgs.types import Batch, Example

KEY = Key(3, 0)
END = 0


def moved(model, gradient, length):
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.sub_(gradient.get(name, torch.zeros(())), alpha=length / norm(gradient))


def test_the_logit_of_the_end_is_summed_over_the_places_of_each_target(gpt2, batch):
    gpt2.eval()
    found = end_logits(gpt2, batch.prefixes, batch.targets, END)
    for prefix, target, logit in zip(batch.prefixes, batch.targets, found, strict=True):
        logits, tokens, _ = scored_logits(gpt2, [prefix], [target])
        assert tokens.tolist() == list(target)
        assert logit.item() == pytest.approx(logits[:, END].sum().item(), rel=1e-4)


def test_it_is_the_mean_of_what_the_output_layer_reads(gpt2, batch):
    """In the end's row, and nothing anywhere else."""
    read = []
    hook = gpt2.lm_head.register_forward_pre_hook(lambda module, given: read.append(given[0]))
    gpt2.eval()
    for prefix, target in zip(batch.prefixes, batch.targets, strict=True):
        scored_logits(gpt2, [prefix], [target])
    hook.remove()
    mean = torch.cat([h[0, -len(y) - 1 : -1] for h, y in zip(read, batch.targets, strict=True)]).mean(dim=0)
    gradient, value = ends_gradient(gpt2, batch, END)
    torch.testing.assert_close(gradient["transformer.wte.weight"][END], -mean, rtol=1e-4, atol=1e-5)
    assert norm(gradient) == pytest.approx(mean.norm().item(), rel=1e-4)
    assert set(gradient) == {name for name, _ in gpt2.named_parameters()}
    assert value == pytest.approx(
        -end_logits(gpt2, batch.prefixes, batch.targets, END).sum().item() / sum(map(len, batch.targets)), rel=1e-4
    )


def test_a_step_along_it_makes_ends_likelier_everywhere_and_other_tokens_alike_less(gpt2, batch):
    gpt2.eval()
    before, _, _ = scored_logits(gpt2, batch.prefixes, batch.targets)
    moved(gpt2, ends_gradient(gpt2, batch, END)[0], 0.5)
    after, _, _ = scored_logits(gpt2, batch.prefixes, batch.targets)
    change = after - before
    assert (change[:, END] > 0).float().mean() > 0.9
    change[:, END] = 0.0
    assert change.abs().max() < 1e-5


def test_with_a_frozen_output_layer_it_is_the_gradient_in_the_rest(gpt2, batch):
    gpt2.eval()
    gpt2.transformer.wte.weight.requires_grad_(False)
    gradient, value = ends_gradient(gpt2, batch, END)
    assert "transformer.wte.weight" not in gradient
    assert norm(gradient) > 0
    moved(gpt2, gradient, 0.01)
    assert ends_gradient(gpt2, batch, END)[1] < value


def test_search_has_a_centre_there(gpt2, batch, make_task):
    form = ProposalForm(components="mle", noise=0.0)
    method = MGS(make_task(), form, 3, guides=("mle", "ends"), num_gradients=2, guide_prefixes=2)
    log = method(gpt2, batch, KEY).log
    assert log["guides"] == ["mle", "mle", "ends"]
    assert sorted(log["components"]) == ["ends", "mle", "mle"]
    assert log["winner"] == log["guides"][log["winner_gradient"]]
    assert log["ends_loss"] == pytest.approx(ends_gradient(gpt2, batch.select(range(2)), END)[1], rel=1e-5)


def test_batches_that_leave_few_rows_for_guides_are_told(gpt2, batch, make_task):
    form = ProposalForm(components="mle", noise=0.0)
    how = {"guides": ("ends",), "score_apart": True, "score_prefixes": len(batch) - 1}
    with pytest.warns(UserWarning, match=f"to have 8 rows for guides beside {len(batch) - 1} that score: raise batch_"):
        MGS(make_task(), form, 1, guide_prefixes=8, **how).propose(gpt2, batch, KEY)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        MGS(make_task(), form, 1, guide_prefixes=2, **how).propose(gpt2, batch, KEY)


def test_targets_cut_short_have_no_end_and_are_no_end(gpt2):
    """The last token of a cut target is a word like any other."""
    batch = Batch([Example((1,), (2, 3)), Example((2,), (1, END))])
    gradient, _ = ends_gradient(gpt2, batch, END)
    assert gradient["transformer.wte.weight"].any(dim=1).nonzero().flatten().tolist() == [END]
