"""Self-normalised importance weights against closed forms and limits."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mgs.errors import UserError
from mgs.search.weights import effective_sample_size, importance_weights, temperature_for


def close(weights, expected, tolerance=1e-12):
    torch.testing.assert_close(weights, torch.tensor(expected, dtype=torch.float64), rtol=tolerance, atol=tolerance)


def test_weights_of_two_candidates_are_a_logistic_function():
    weights = importance_weights([0.3, 0.8], temperature=2.0)
    first = 1 / (1 + math.exp(-2.0 * 0.5))
    assert weights.dtype == torch.float64
    close(weights, [first, 1 - first])


def test_weights_are_the_paper_s_ratio():
    base, costs, density, alpha = 2.0, [1.5, 2.5, 1.0], [0.1, 0.7, 0.4], 1.7
    raw = [math.exp(alpha * (base - cost)) / q for cost, q in zip(costs, density, strict=True)]
    close(importance_weights(costs, [math.log(q) for q in density], alpha), [w / sum(raw) for w in raw])


def test_one_candidate_has_all_the_weight():
    assert importance_weights([1e9], [-1e5], 10.0).tolist() == [1.0]


def test_temperature_zero_without_density_is_uniform():
    close(importance_weights([1.0, -50.0, 1e6, 3.0], None, 0.0), [0.25] * 4)


def test_a_large_temperature_picks_the_best():
    assert importance_weights([1.0, 0.999, 1.5], None, 1e7).tolist() == [0.0, 1.0, 0.0]
    close(importance_weights([1.0, 1.0, 1.5], None, 1e7), [0.5, 0.5, 0.0])  # a tie is shared


@pytest.mark.parametrize("level", [0.0, 1e6, -1e6])
def test_only_differences_of_costs_count_even_at_a_million(level):
    weights = importance_weights([level, level + 2**-20], None, 2.0**20)
    close(weights, [1 / (1 + math.exp(-1)), 1 / (1 + math.e)])


def test_differences_survive_a_temperature_that_is_not_a_power_of_two():
    low, high = 1e6, 1e6 + 2**-20
    alpha = 1_234_567.0
    share = 1 / (1 + math.exp(-alpha * (high - low)))
    close(importance_weights([low, high], None, alpha), [share, 1 - share])


@pytest.mark.parametrize("costs", [[0.0, 1e300], [-1e12, 1e12], [1e300, 1e300]])
def test_a_huge_spread_does_not_overflow(costs):
    weights = importance_weights(costs, None, 1e10)
    assert weights.isfinite().all()
    assert float(weights.sum()) == 1.0
    assert weights.tolist() == ([0.5, 0.5] if costs[0] == costs[1] else [1.0, 0.0])


def test_density_divides():
    close(importance_weights([1.0, 1.0], [math.log(3.0), 0.0]), [0.25, 0.75])
    close(importance_weights([1.0, 1.0], [-9999.0, -10000.0]), [1 / (1 + math.e), math.e / (1 + math.e)])


def test_weights_take_tensors_as_well_as_lists():
    costs, log_density = torch.tensor([1.0, 2.0], dtype=torch.float64), torch.tensor([0.0, 1.0], dtype=torch.float64)
    assert torch.equal(importance_weights(costs, log_density), importance_weights([1.0, 2.0], [0.0, 1.0]))


@pytest.mark.parametrize(
    ("costs", "log_density", "temperature", "message"),
    [
        ([], None, 1.0, "K ≥ 1"),
        ([1.0, 2.0], [0.0], 1.0, "as many densities"),
        ([[1.0]], None, 1.0, "K ≥ 1"),
        ([1.0, math.nan], None, 1.0, "finite"),
        ([1.0, math.inf], None, 1.0, "finite"),
        ([1.0, 2.0], [0.0, -math.inf], 1.0, "finite"),
        ([1.0, 2.0], None, -1.0, "temperature"),
        ([1.0, 2.0], None, math.nan, "temperature"),
        ([1.0, 2.0], None, math.inf, "temperature"),
    ],
)
def test_bad_input_is_refused(costs, log_density, temperature, message):
    with pytest.raises(UserError, match=message):
        importance_weights(costs, log_density, temperature)


def test_effective_sample_size_is_k_for_uniform_weights_and_1_for_one_winner():
    assert effective_sample_size(torch.full((7,), 1 / 7, dtype=torch.float64)) == pytest.approx(7, rel=1e-12)
    assert effective_sample_size(torch.tensor([0.0, 1.0, 0.0])) == 1.0
    assert effective_sample_size(torch.tensor([0.5, 0.25, 0.25], dtype=torch.float64)) == pytest.approx(1 / 0.375)
    assert effective_sample_size(torch.tensor([2.0, 1.0, 1.0])) == pytest.approx(1 / 0.375)  # need not be normalised


@settings(max_examples=60, deadline=None)
@given(
    costs=st.lists(st.integers(-1000, 1000), min_size=3, max_size=12, unique=True),
    scale=st.sampled_from([1e-3, 1.0, 1e3]),
    share=st.floats(0.05, 0.95),
)
def test_the_chosen_temperature_reaches_the_asked_sample_size(costs, scale, share):
    scaled = [cost * scale for cost in costs]
    asked = 1 + share * (len(costs) - 1)
    alpha = temperature_for(scaled, None, asked)
    assert effective_sample_size(importance_weights(scaled, None, alpha)) == pytest.approx(asked, rel=1e-6)


def test_the_chosen_temperature_takes_the_density_into_account():
    costs, log_density = [1.0, 2.0, 4.0], [0.1, 0.0, -0.1]
    alpha = temperature_for(costs, log_density, 2.0)
    assert effective_sample_size(importance_weights(costs, log_density, alpha)) == pytest.approx(2.0, rel=1e-6)
    assert effective_sample_size(importance_weights(costs, None, alpha)) != pytest.approx(2.0, rel=1e-3)


def test_of_several_temperatures_with_the_asked_sample_size_the_one_where_costs_decide_is_chosen():
    costs, log_density = [3.0, 2.0, 1.0, 0.0], [0.0, 5.0, 10.0, 15.0]  # by density alone the worst takes all
    for asked in (1.5, 2.0, 3.9):
        weights = importance_weights(costs, log_density, temperature_for(costs, log_density, asked))
        assert effective_sample_size(weights) == pytest.approx(asked, rel=1e-6)
        assert weights.tolist() == sorted(weights.tolist())  # the better, the more


def test_where_densities_leave_no_temperature_with_the_asked_sample_size_it_is_the_one_with_most():
    costs, log_density = [2.0, 1.0, 0.0], [-400.0, 0.0, 100.0]  # only the worst and the best ever come near each other
    weights = importance_weights(costs, log_density, temperature_for(costs, log_density, 2.5))
    assert effective_sample_size(weights) == pytest.approx(2.0, rel=1e-6)


def test_equal_costs_leave_any_temperature_and_uniform_weights():
    alpha = temperature_for([5.0, 5.0, 5.0], None, 2.0)
    assert math.isfinite(alpha)
    close(importance_weights([5.0] * 3, None, alpha), [1 / 3] * 3)


def test_a_sample_size_out_of_reach_gives_the_nearest():
    two_best = [1.0, 1.0, 2.0]  # never fewer than two share the weight
    for asked, nearest in ((1.0, 2.0), (3.0, 3.0)):
        alpha = temperature_for(two_best, None, asked)
        assert math.isfinite(alpha)
        reached = effective_sample_size(importance_weights(two_best, None, alpha))
        assert reached == pytest.approx(nearest, rel=1e-6)
