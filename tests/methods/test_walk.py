"""Centres at the end of a walk that is held to the start."""

import copy
import random
from itertools import islice

import pytest
import torch

from mgs.errors import UserError
from mgs.methods import MGS, Key
from mgs.methods.mle import mle_gradient, mle_loss
from mgs.methods.walk import Walk, divergence_gradient, turns_of
from mgs.models import searched_parameters
from mgs.search import ProposalForm
from mgs.search.directions import norm
from mgs.types import Batch, Example

KEY = Key(3, 0)
ROWS = Batch([Example((a,), (b, 1, 0)) for a in (1, 2, 3) for b in (1, 2, 3)])
AT_ITS_END = ProposalForm(components="mle", noise=0.0, density="none")


def frozen(model):
    return copy.deepcopy(model).eval().requires_grad_(False)


def walking(walk, task, anchor, **options):
    return MGS(task, AT_ITS_END, 1, guides=("mle",), walk=walk, anchor=anchor, **options)


@pytest.mark.parametrize(("num", "rows"), [(7, 3), (6, 3), (2, 5), (1, 1)])
def test_rows_come_in_turns(num, rows):
    steps = list(islice(turns_of(num, rows, random.Random(0)), 5 * num))
    assert all(len(step) == min(num, rows) for step in steps)
    counts = [sum(row in step for step in steps) for row in range(num)]
    assert max(counts) - min(counts) <= 1


def test_divergence_is_nothing_from_itself_and_the_mean_over_places_from_another(make_gpt2, grad, assert_same, batch):
    model, anchor = make_gpt2().eval(), frozen(make_gpt2(seed=1))
    gradient, nothing = divergence_gradient(anchor.requires_grad_(True), anchor, batch)
    assert nothing == pytest.approx(0.0, abs=1e-6)
    assert norm(gradient) == pytest.approx(0.0, abs=1e-6)
    found, divergence = divergence_gradient(model, anchor, batch)
    terms = []
    for example in batch.examples:
        now, before = (m(torch.tensor([[*example.prefix, *example.target]])).logits[0] for m in (model, anchor))
        places = slice(len(example.prefix) - 1, len(example) - 1)
        p = before[places].softmax(dim=-1).detach()
        terms.append((p * (p.log() - now[places].log_softmax(dim=-1))).sum(dim=-1))
    direct = torch.cat(terms).mean()
    assert divergence == pytest.approx(direct.item())
    assert_same(found, grad(direct, model))


def test_a_walk_leaves_the_model_and_its_gradients_as_they_were(gpt2, make_task):
    before = copy.deepcopy(gpt2.state_dict())
    for parameter in gpt2.parameters():
        parameter.grad = torch.ones_like(parameter)
    centres, _ = walking(Walk(3, rate=0.1), make_task(), frozen(gpt2)).centres(gpt2, ROWS, KEY)
    assert norm(centres[0]) > 0.1
    assert all(torch.equal(tensor, before[name]) for name, tensor in gpt2.state_dict().items())
    assert all((parameter.grad == 1).all() for parameter in gpt2.parameters())


def test_so_does_one_that_fails(gpt2):
    before = copy.deepcopy(gpt2.state_dict())

    def fail(rows):
        searched_parameters(gpt2)["transformer.wte.weight"].data.zero_()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        Walk(3)(gpt2, fail, fail, (4, 4), seed=0)
    assert all(torch.equal(tensor, before[name]) for name, tensor in gpt2.state_dict().items())


def test_it_goes_less_far_the_less_weight_its_guide_has(gpt2, make_task):
    """Likelihood rises either way; predictions change little where the start holds it back."""
    anchor = frozen(gpt2)
    divergences = []
    for weight in (0.1, 100.0):
        (centre,), (fact,) = walking(Walk(20, 0.05, weight, rows=9), make_task(), anchor).centres(gpt2, ROWS, KEY)
        there = copy.deepcopy(gpt2).eval()
        with torch.no_grad():
            for name, parameter in there.named_parameters():
                parameter.add_(centre[name])
        assert mle_loss(there, ROWS) < mle_loss(anchor, ROWS) - 0.01
        divergences.append(divergence_gradient(there, anchor, ROWS)[1])
        assert fact["divergence"] == pytest.approx(divergences[-1], rel=0.2)  # that of the last step
    assert divergences[0] < 0.1 < 0.5 < divergences[1]


def test_farther_from_the_start_it_goes_back(make_gpt2, make_task):
    """θ has moved; what holds a walk is the anchor, not θ."""
    model, anchor = make_gpt2(seed=1), frozen(make_gpt2())
    (centre,), _ = walking(Walk(20, 0.01, 0.0, rows=9), make_task(), anchor).centres(model, ROWS, KEY)
    before = divergence_gradient(model, anchor, ROWS)[1]
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.add_(centre[name])
    assert divergence_gradient(model, anchor, ROWS)[1] < before - 0.01


def test_one_step_is_adam_s(gpt2, make_task):
    gpt2.eval()
    gradient, _ = mle_gradient(gpt2, ROWS)
    (centre,), (fact,) = walking(Walk(1, 0.01, 1.0, rows=9), make_task(), frozen(gpt2)).centres(gpt2, ROWS, KEY)
    for name, tensor in centre.items():
        large = gradient[name].abs() > 1e-4
        torch.testing.assert_close(tensor[large], -0.01 * gradient[name].sign()[large], rtol=0.01, atol=0)
    assert fact["loss"] == pytest.approx(mle_loss(gpt2, ROWS).item())


def test_the_same_walk_for_the_same_key_and_another_for_another(gpt2, make_task):
    method = walking(Walk(3, 0.01, rows=2), make_task(), frozen(gpt2))
    first, again, other = (method.centres(gpt2, ROWS, Key(3, step))[0][0] for step in (0, 0, 1))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)


def test_a_walk_is_a_candidate_like_any_other(gpt2, batch, make_task):
    form = ProposalForm(lengths=(0.5, 1.0), noise=0.0, density="none", stay=True, mix=1 / 3)
    method = MGS(make_task(), form, 3, guides=("stops",), walk=Walk(4, 0.05, 1.0), anchor=frozen(gpt2))
    outcome = method(gpt2, batch, KEY)
    assert outcome.log["components"] == ["zero", "stops", "stops"]
    (centre,), _ = method.centres(gpt2, batch, KEY)
    along = sum(w * s for w, s in zip(outcome.log["weights"], (0.0, *outcome.log["lengths"][1:]), strict=True))
    for name, tensor in outcome.gradient.items():
        torch.testing.assert_close(tensor, -along * centre[name], rtol=1e-4, atol=1e-6)


def test_it_needs_something_to_be_held_to(make_task):
    with pytest.raises(UserError, match="anchor"):
        MGS(make_task(), walk=Walk(3))
