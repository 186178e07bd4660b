"""What candidates may cost in likelihood, and lengths that are measured in it."""

import copy
import math
from itertools import pairwise

import pytest
import torch

from mgs.errors import UserError
from mgs.methods import MGS, Key
from mgs.methods.budget import FIRST, FURTHEST, Limits, affordable, suggested
from mgs.models import score
from mgs.search import Proposal, ProposalForm, Temperature, mgs_update
from mgs.search.directions import norm

KEY = Key(1, 0)


@pytest.mark.parametrize(
    ("nlls", "base", "stay", "refused"),
    [
        ([2.0, 2.0197, 2.0199, 3.0], 2.0, False, {2, 3}),  # log 1.02 = 0.0198
        ([2.0197, 1.0], 2.0, False, set()),
        ([3.0, 2.5], 2.0, False, {0, 1}),
        ([2.2, 2.1, 2.3, 2.2], 2.2, False, {2}),  # θ is over the budget: what is nearer to it may pass
        ([2.0, math.inf, math.nan], 2.0, False, {1, 2}),
        ([2.3, 2.1, 2.3], 2.2, True, {2}),  # staying may always, rounding or not
    ],
)
def test_candidates_over_the_budget_are_refused(nlls, base, stay, refused):
    limits = Limits(base, start=2.0, budget=0.02)
    assert limits.refused(nlls, stay) == refused
    assert limits.over_start == pytest.approx(base - 2.0)


def test_an_update_spends_its_share_of_the_budget_while_it_lasts():
    """log 1.02 = .0198 over the start; .005 of it is spent, and then .015."""
    nlls = [2.0147, 2.0150, 2.0190]
    assert Limits(2.005, start=2.0, budget=0.02).refused(nlls, stay=False) == set()
    assert Limits(2.005, start=2.0, budget=0.02, pace=0.5).refused(nlls, stay=False) == {1, 2}
    assert Limits(2.015, start=2.0, budget=0.02, pace=0.5).allowed == pytest.approx(math.log1p(0.02) - 0.015)
    assert Limits(2.03, start=2.0, budget=0.02, pace=0.5).refused([2.03, 2.02], stay=False) == set()  # the way back
    assert Limits(2.03, start=2.0, budget=0.02).allowed == 0.0


@pytest.mark.parametrize("lost", [lambda s: 3 * s**2, lambda s: 5 * s**2 - 0.2 * s, lambda s: s**2 + 0.5 * s])
@pytest.mark.parametrize("allowed", [1e-4, 0.003, 0.1])
def test_where_what_is_lost_is_a_parabola_the_length_is_exact(lost, allowed):
    """Below both lengths, between them, and above."""
    found = affordable({s: lost(s) for s in (0.003, 0.3)}, allowed)
    assert lost(found) == pytest.approx(min(allowed, lost(0.3)), rel=1e-4)


@pytest.mark.parametrize(
    ("costs", "allowed", "length"),
    [
        ({0.1: 0.0, 1.0: math.inf}, 0.1, 0.1),
        ({0.1: 0.4, 1.0: math.inf}, 0.1, 0.05),
        ({0.1: math.nan, 1.0: math.nan}, 0.1, 0.0),
        ({0.1: 0.5, 1.0: 2.0}, 0.0, pytest.approx(0.0, abs=1e-8)),  # nothing is left
        ({0.1: -0.5, 1.0: -0.1}, 0.0, 1.0),  # the way back is free
        ({0.1: 0.01, 1.0: 1.0}, 100.0, 1.0),
    ],
)
def test_what_is_not_known_is_not_followed(costs, allowed, length):
    assert affordable(costs, allowed) == length


@pytest.fixture
def searching(gpt2, make_gpt2, make_task):
    def make(share=0.02, pace=0.5, **options):
        form = ProposalForm(mix=0.1, lengths=(0.5, 1.0), noise=0.0, stay=True)
        how = {"num_gradients": 2, "length_unit": "budget", "likelihood_pace": pace, **options}
        return MGS(make_task(), form, 5, Temperature(), likelihood_budget=share, anchor=make_gpt2(), **how)

    return make


def nll(model, batch):
    return -sum(score(model, batch.prefixes, batch.targets)) / sum(map(len, batch.targets))


def moved(model, by):
    model = copy.deepcopy(model)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.add_(by.get(name, 0.0))
    return model


def away_from(method, model, batch):
    """Away from what is likely, as from a model that has been trained: an untrained one can go far for nothing."""
    return [{name: -x for name, x in part.items()} for part in method.centres(model, batch, KEY)[0]]


def test_gradients_are_brought_to_where_they_spend_what_an_update_may(gpt2, batch, searching):
    method = searching()
    away = away_from(method, gpt2, batch)
    spans = method.budget.scale(gpt2, away, batch, method.budget.limits(gpt2, batch), KEY)
    allowed = 0.5 * math.log1p(0.02)
    for gradient, span in zip(away, spans, strict=True):
        assert norm(gradient) == pytest.approx(span, rel=1e-4)
        assert nll(moved(gpt2, gradient), batch) - nll(gpt2, batch) == pytest.approx(allowed, rel=0.02)


def test_candidates_are_shares_of_those_lengths(gpt2, batch, searching):
    method = searching()
    proposal, _, facts, _ = method.propose(gpt2, batch, KEY)
    assert proposal.components.count("mle") == 4
    assert [float(gradient.norm()) for gradient in proposal.gradients] == pytest.approx(
        [fact["span"] for fact in facts], rel=1e-4
    )


def test_less_of_a_budget_makes_for_shorter_candidates(gpt2, batch, searching):
    spans = []
    for share in (0.0, 1e-4, 1e-3, 1e-2):
        method = searching(share)
        limits, away = method.budget.limits(gpt2, batch), away_from(method, gpt2, batch)
        spans.append(method.budget.scale(gpt2, away, batch, limits, KEY))
    for shorter, longer in pairwise(spans):
        assert all(a < b for a, b in zip(shorter, longer, strict=True))
    assert spans[0] == pytest.approx([0.0, 0.0], abs=1e-6)


def test_an_update_says_how_far_each_gradient_could_go_and_keeps_to_the_budget(gpt2, batch, searching):
    outcome = searching(0.05)(gpt2, batch, KEY)
    assert [part["span"] > 0 for part in outcome.log["parts"]] == [True, True]
    assert outcome.log["refused"] <= 2  # those at whole length, where the parabola is a little wrong
    assert all(torch.isfinite(tensor).all() for tensor in outcome.gradient.values())


@pytest.mark.parametrize(
    ("loss", "allowed", "times"),
    [
        (0.01, 0.04, 2.0),
        (0.04, 0.01, 0.5),
        (0.01, 0.0101, 1.25),  # near the first it would say little new
        (0.01, 0.0099, 0.8),
        (1e-9, 0.01, FURTHEST),
        (-0.1, 0.01, FURTHEST),  # a way that is free
        (1e9, 0.01, 1 / FURTHEST),
        (math.inf, 0.01, 1 / FURTHEST),
        (math.nan, 0.01, 1 / FURTHEST),
        (0.01, 0.0, 1 / FURTHEST),
    ],
)
def test_a_gradient_is_asked_for_again_where_the_first_answer_points(loss, allowed, times):
    assert suggested(loss, allowed) == pytest.approx(FIRST * times)


def test_a_mean_of_candidates_goes_as_far_as_they_do(gpt2, batch, searching):
    """It is shorter, the more so the more they differ; it is brought to its share of what it may spend."""
    method = searching()
    limits, away = method.budget.limits(gpt2, batch), away_from(method, gpt2, batch)
    method.budget.scale(gpt2, away, batch, limits, KEY)
    proposal = Proposal(method.form, away, 5, *KEY)

    def stretched(costs, method=method, limits=limits):
        update = mgs_update(proposal, costs, Temperature(1.0))
        before = norm(update.direction)
        said = method._stretch(gpt2, update, batch, limits, KEY)
        assert said.get("stretched", 1.0) == pytest.approx(norm(update.direction) / before if before else 1.0, rel=1e-4)
        return said, norm(update.direction), nll(moved(gpt2, update.direction), batch) - nll(gpt2, batch)

    lengths = [centre.length for centre in proposal.assigned]
    assert sorted(lengths) == [0.0, 0.5, 0.5, 1.0, 1.0]
    said, whole, lost = stretched([0.0 if length == 1.0 else 1e9 for length in lengths])
    assert said["stretched"] > 1.01
    assert lost == pytest.approx(0.5 * math.log1p(0.02), rel=0.02)
    _, half, lost = stretched(
        [0.0 if length == 0.5 else 1e9 for length in lengths]
    )  # whoever won, whatever else was asked
    assert half == pytest.approx(whole / 2, rel=1e-3)
    assert lost < 0.4 * math.log1p(0.02)
    assert stretched([1e9, 1e9, 0.0, 1e9, 1e9])[0] == {}  # a candidate as it is
    assert stretched([0.0, 1e9, 1e9, 1e9, 1e9])[0] == {}  # staying
    assert stretched([1.0] * 5, searching(length_unit="norm"))[0] == {}


def test_lengths_in_a_budget_need_one(make_task):
    with pytest.raises(UserError, match="likelihood_budget"):
        MGS(make_task(), length_unit="budget")
