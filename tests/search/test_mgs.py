"""Algorithm 1 on toys: its limits, its own sum by hand, its expectation by integration, and that it learns."""

import itertools
import math

import pytest
import torch

from mgs.errors import UserError
from mgs.search import (
    Proposal,
    ProposalForm,
    Temperature,
    effective_sample_size,
    importance_weights,
    mgs_update,
    noise,
)
from mgs.search.directions import norm, normal


def proposal(num=4, where=(0, 0), **form):
    generator = torch.Generator().manual_seed(4)
    g = {"w": torch.randn(2, 3, generator=generator), "v": torch.randn(5, generator=generator)}
    return Proposal(ProposalForm(**form), [g], num, *where)


def bumpy(direction):
    """A cost with steps: nothing to differentiate."""
    return float((direction["w"] * 4).round().abs().sum() + (direction["v"] - 1).abs().round().sum()) / 8


def bumps(proposal):
    return [bumpy(proposal.sample(k)) for k in range(len(proposal))]


def stacked(directions, name):
    return torch.stack([direction[name].double() for direction in directions])


def test_one_candidate_is_the_update():
    one = proposal(num=1)
    update = mgs_update(one, bumps(one))
    assert update.weights.tolist() == [1.0]
    assert all(torch.equal(update.direction[name], tensor) for name, tensor in one.sample(0).items())
    assert update.variance == pytest.approx(0.0, abs=1e-6 * norm(update.direction) ** 2)


def test_a_large_temperature_takes_the_best_candidate_exactly():
    many = proposal(num=8)
    costs = bumps(many)
    best = min(range(8), key=costs.__getitem__)
    assert costs.count(costs[best]) == 1
    update = mgs_update(many, costs, Temperature(1e9))
    assert all(torch.equal(update.direction[name], tensor) for name, tensor in many.sample(best).items())
    assert update.log()["best_cost"] == costs[best]


def test_temperature_zero_without_density_is_the_plain_mean():
    many = proposal(num=6, density="none")
    update = mgs_update(many, bumps(many), Temperature(0.0))
    for name, tensor in update.direction.items():
        expected = stacked(map(many.sample, range(6)), name).mean(0).float()
        torch.testing.assert_close(tensor, expected)


@pytest.mark.parametrize("density", ["unit", "exact", "none"])
@pytest.mark.parametrize("alpha", [0.5, 3.0])
def test_the_update_is_the_weighted_sum_of_what_was_drawn(density, alpha):
    many = proposal(num=5, density=density, noise=0.6, mix=0.4)
    seen = [many.sample(k) for k in range(5)]
    update = mgs_update(many, bumps(many), Temperature(alpha), base_cost=2.5)
    raw = [math.exp(alpha * (2.5 - bumpy(d))) / math.exp(many.log_density(d)) for d in seen]
    weights = torch.tensor(raw, dtype=torch.float64) / sum(raw)
    torch.testing.assert_close(update.weights, weights)
    for name, tensor in update.direction.items():
        expected = torch.einsum("k,k...->...", weights, stacked(seen, name)).float()
        torch.testing.assert_close(tensor, expected, rtol=1e-5, atol=1e-6)


def test_the_base_cost_is_kept_for_the_log_and_changes_nothing():
    costs = bumps(proposal())
    without, with_base = mgs_update(proposal(), costs), mgs_update(proposal(), costs, base_cost=17.0)
    assert torch.equal(without.weights, with_base.weights)
    assert all(torch.equal(without.direction[name], tensor) for name, tensor in with_base.direction.items())
    assert (without.log()["cost"], with_base.log()["cost"]) == (None, 17.0)


def test_staying_is_chosen_when_nothing_is_better():
    many = proposal(stay=True)
    update = mgs_update(many, [norm(many.sample(k)) for k in range(4)], Temperature(1e9))
    assert not any(tensor.any() for tensor in update.direction.values())


# In one dimension, E_{p*}[Δ] with p* ∝ exp(−α C(θ+Δ)) can be integrated.
ALPHA, GRADIENT = 1.5, 1.0


def quadratic(x):
    return 0.5 * (x + 0.8) ** 2


def expectation(log_density):
    grid = torch.linspace(-12, 12, 24_001, dtype=torch.float64)
    density = torch.exp(log_density(grid))
    return float(torch.trapezoid(density * grid, grid) / torch.trapezoid(density, grid))


@pytest.fixture(scope="module")
def target():
    return expectation(lambda x: -ALPHA * quadratic(x))


def in_one_dimension(density, stratified=True, noise=1.3):
    form = ProposalForm(density=density, noise=noise, noise_scale="constant", mix=0.3, stratified=stratified)
    candidates = Proposal(form, [{"x": torch.tensor([GRADIENT])}], 4000, 11)
    draws = torch.tensor([float(candidates.sample(k)["x"]) for k in range(len(candidates))], dtype=torch.float64)
    update = mgs_update(candidates, quadratic(draws).tolist(), Temperature(ALPHA))
    found = float(update.direction["x"])
    error = float((update.weights.square() * (draws - found).square()).sum().sqrt())
    return found, error


@pytest.mark.parametrize("stratified", [True, False])
def test_with_the_exact_density_the_update_converges_to_the_expectation(target, stratified):
    assert target == pytest.approx(-0.8, abs=1e-9)
    found, error = in_one_dimension("exact", stratified)
    assert error < 0.03
    assert abs(found - target) < 4 * error


def test_without_density_the_proposal_pulls_the_update_away(target):
    found, error = in_one_dimension("none")
    normal = torch.distributions.Normal(torch.tensor([0.0, GRADIENT], dtype=torch.float64), 1.3)
    mixture = torch.tensor([0.3, 0.7], dtype=torch.float64).log()
    pulled = expectation(
        lambda x: -ALPHA * quadratic(x) + torch.logsumexp(normal.log_prob(x.unsqueeze(1)) + mixture, dim=1)
    )
    assert abs(found - pulled) < 4 * error
    assert abs(found - target) > 4 * error


def test_with_unit_noise_the_unit_density_is_exact_but_for_a_constant():
    (unit, _), (exact, _) = in_one_dimension("unit", noise=1.0), in_one_dimension("exact", noise=1.0)
    assert unit == pytest.approx(exact, rel=1e-5)


def test_auto_temperature_gives_the_asked_share_of_candidates():
    many = proposal(num=8, noise=0.1)
    update = mgs_update(many, bumps(many), Temperature(None, share=0.4))
    assert effective_sample_size(update.weights) == pytest.approx(3.2, rel=1e-6)
    assert update.log()["temperature"] == update.temperature > 0


def test_auto_temperature_never_asks_for_less_than_one_candidate():
    two = proposal(num=2)
    assert mgs_update(two, bumps(two), Temperature(None, share=0.1)).log()["effective"] == pytest.approx(1, abs=1e-3)


# Costs of small and of large scale, at a level far from 0.
scales = pytest.mark.parametrize("scale", [1e-3, 1.0, 1e5])


@scales
@pytest.mark.parametrize("rank", [None, 2])
def test_auto_temperature_stays_when_all_are_worse(scale, rank):
    many = proposal(num=8, stay=True, rank=rank)
    update = mgs_update(many, [scale * (5 + 0.01 * k) for k in range(8)], Temperature(None))
    assert update.weights.tolist() == [1.0] + [0.0] * 7
    assert not any(tensor.any() for tensor in update.direction.values())


@scales
def test_auto_temperature_moves_to_the_one_that_is_better(scale):
    many = proposal(num=8, stay=True)
    update = mgs_update(many, [scale * (5 + (k != 3) + 0.01 * k) for k in range(8)], Temperature(None))
    assert update.log()["effective"] == pytest.approx(1)
    assert all(torch.equal(tensor, many.sample(3)[name]) for name, tensor in update.direction.items())


@scales
def test_auto_temperature_shares_among_those_that_are_better(scale):
    many = proposal(num=8, stay=True, density="none")
    costs = [scale * cost for cost in (5.0, 4.0, 4.2, 4.6, 5.0, 4.9, 9.0, 9.5)]  # four are better than staying
    update = mgs_update(many, costs, Temperature(None, 0.5))
    assert effective_sample_size(update.weights) == pytest.approx(2, rel=1e-6)
    assert [k for k, weight in enumerate(update.weights.tolist()) if weight] == [1, 2, 3, 5]


def test_auto_temperature_stays_where_no_candidate_makes_a_difference():
    update = mgs_update(proposal(stay=True), [2.0] * 4, Temperature(None))
    assert update.weights.tolist() == [1, 0, 0, 0]


@scales
def test_auto_temperature_without_staying_counts_all(scale):
    costs = [scale * (5 + k) for k in range(8)]
    update = mgs_update(proposal(num=8, noise=0.1), costs, Temperature(None))
    assert effective_sample_size(update.weights) == pytest.approx(4, rel=1e-6)


def test_a_temperature_that_is_given_is_kept_with_staying():
    assert mgs_update(proposal(stay=True), [1.0, 2.0, 2.0, 3.0], Temperature(2.5)).temperature == 2.5


def test_auto_temperature_stays_also_where_one_is_far_worse_than_the_rest():
    update = mgs_update(proposal(stay=True), [1.0, 1.001, 1.002, 1e9], Temperature(None))
    assert update.weights.tolist() == [1, 0, 0, 0]


def test_auto_temperature_stays_also_where_densities_differ_by_many_nats():
    update = mgs_update(proposal(stay=True, noise=30.0), [0.0, 1.0, 1.0, 1.0], Temperature(None))
    assert update.log()["log_density_spread"] > 100
    assert update.weights.tolist() == [1, 0, 0, 0]


def test_a_thousand_candidates_of_rank_1_cost_one_draw_a_block_and_pass(monkeypatch):
    drawn = []
    monkeypatch.setattr(noise, "normal", lambda *args: drawn.append(args) or normal(*args))
    many = proposal(num=1024, stay=True, rank=1, noise=0.1)
    update = mgs_update(many, [math.sin(k) for k in range(1024)], Temperature(None))
    assert len(drawn) == 2 * 1024 // noise.BLOCK  # for inner products and for the mean
    assert update.weights.shape == (1024,)
    assert 200 < update.log()["effective"] < 300  # half of those better than candidate 0
    expected = sum(w * many.sample(k)["w"].double() for k, w in enumerate(update.weights.tolist()) if w > 1e-9)
    torch.testing.assert_close(update.direction["w"], expected.float(), rtol=1e-4, atol=1e-6)


def test_the_log_says_what_happened():
    many = proposal(num=6, mix=0.5, lengths=(0.5, 1.0))
    update = mgs_update(many, bumps(many), Temperature(2.0), base_cost=3.0)
    log = update.log()
    weights, costs = torch.tensor(log["weights"], dtype=torch.float64), log["costs"]
    best = int(weights.argmax())
    samples = torch.stack([many.layout.flat(many.sample(k)).double() for k in range(6)])
    spread = update.weights @ (samples - update.weights @ samples).square()  # of each parameter, as in the appendix
    assert costs == bumps(many)
    assert log == {
        "cost": 3.0,
        "costs": costs,
        "best_cost": min(costs),
        "weights": update.weights.tolist(),
        "weights_std": pytest.approx(float(((weights - 1 / 6) ** 2).mean().sqrt())),
        "effective": pytest.approx(1 / float(weights.square().sum())),
        "temperature": 2.0,
        "components": many.components,
        "gradients": [centre.gradient for centre in many.assigned],
        "lengths": [c.length for c in many.assigned],
        "winner": many.components[best],
        "winner_gradient": many.assigned[best].gradient,
        "winner_length": many.assigned[best].length,
        "guided_won": float(many.components[best] == "mle"),
        "guided_weight": pytest.approx(sum(log["weights"][many.components.index("mle") :])),
        "log_density_spread": pytest.approx(max(update.log_density) - min(update.log_density)),
        "update_norm": pytest.approx(norm(update.direction)),
        "variance": pytest.approx(float(spread.sum()), rel=1e-5),
    }
    assert log["variance"] > 0.1


def test_a_cost_that_is_not_a_number_is_refused():
    for temperature, cost in itertools.product((Temperature(), Temperature(None)), (math.nan, math.inf)):
        with pytest.raises(UserError, match="finite costs"):
            mgs_update(proposal(), [1.0, 2.0, cost, 3.0], temperature)


@pytest.mark.parametrize("num", [3, 5])
def test_there_are_as_many_costs_as_candidates(num):
    with pytest.raises(UserError, match=f"4 candidates need as many costs, got {num}"):
        mgs_update(proposal(), [1.0] * num)


def test_repeated_updates_minimise_a_cost_that_cannot_be_differentiated():
    """The surrogate's gradient leads to (5, 0), the cost's optimum is (3, −2): search has to leave the gradient."""

    def cost(theta):
        return (math.floor(4 * abs(theta[0] - 3)) + math.floor(4 * abs(theta[1] + 2))) / 4

    def surrogate_gradient(theta):
        g = torch.tensor([5.0, 0.0]) - theta
        return g / max(1.0, float(g.norm()))

    theta = torch.zeros(2)
    follower = torch.zeros(2)
    start = cost(theta)
    for step in range(60):
        search = Proposal(
            ProposalForm(noise_scale="constant", noise=0.5), [{"theta": surrogate_gradient(theta)}], 8, 0, step
        )
        update = mgs_update(search, [cost(theta + search.sample(k)["theta"]) for k in range(8)], Temperature(5.0))
        theta = theta + update.direction["theta"]
        follower = follower + surrogate_gradient(follower)
    assert start == 5.0  # where doing nothing would leave it
    assert cost(follower) == 4.0  # where the gradient alone leads
    assert cost(theta) <= 0.75


@pytest.mark.parametrize("temperature", [Temperature(2.0), Temperature(None, 0.5)])
def test_only_candidates_that_are_allowed_have_weight(temperature):
    many = proposal(num=6)
    costs = bumps(many)
    update = mgs_update(many, costs, temperature, allowed=[1, 2, 5])
    assert [bool(weight) for weight in update.weights] == [False, True, True, False, False, True]
    density = many.log_densities()
    own, theirs = ([values[k] for k in (1, 2, 5)] for values in (costs, density))
    expected = importance_weights(own, theirs, update.temperature)
    torch.testing.assert_close(update.weights[[1, 2, 5]], expected)
    assert update.temperature == temperature.for_step(own, theirs)
    assert update.log()["best_cost"] == min(own)
    for name, tensor in update.direction.items():
        wanted = sum(float(w) * many.sample(k)[name] for k, w in enumerate(update.weights))
        torch.testing.assert_close(tensor, wanted, rtol=1e-4, atol=1e-6)
    unscored = [cost if k in (1, 2, 5) else None for k, cost in enumerate(costs)]
    assert torch.equal(mgs_update(many, unscored, temperature, allowed=[1, 2, 5]).weights, update.weights)
    everyone = mgs_update(many, costs, temperature, allowed=range(6))
    assert torch.equal(everyone.weights, mgs_update(many, costs, temperature).weights)


def test_where_none_is_allowed_the_update_is_zero():
    many = proposal(num=4)
    update = mgs_update(many, [None] * 4, Temperature(None), allowed=[])
    assert not any(tensor.any() for tensor in update.direction.values())
    log = update.log()
    assert (log["weights"], log["effective"], log["winner"], log["guided_won"]) == ([0.0] * 4, 0.0, "zero", 0.0)
    assert log["best_cost"] is None
