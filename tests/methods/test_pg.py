"""Policy gradient against its definition, by hand and over every continuation there is."""

import math

import pytest
import torch

from mgs.decoding import Decoder
from mgs.methods import PG, Key
from mgs.methods.pg import policy_loss
from mgs.methods.sampling import scored
from mgs.types import Batch, Text

KEY = Key(1, 2)


@pytest.fixture
def enumerated(gpt2, batch, outcomes, log_p, grad, cost_of):
    """For the first example: p, cost and ∇log p of every continuation, and the exact gradient of the expected cost."""
    example = batch.examples[0]
    gpt2.train()
    costs = [cost_of(y, example.target) for y in outcomes]
    log_likelihoods = torch.stack([log_p(gpt2, example.prefix, y) for y in outcomes])
    p = log_likelihoods.detach().double().exp()
    exact = grad((log_likelihoods.exp() * torch.tensor(costs)).sum(), gpt2)
    return p, costs, [grad(log_p(gpt2, example.prefix, y), gpt2) for y in outcomes], exact


@pytest.mark.parametrize("baseline", [0.0, 1.3])
def test_the_policy_loss_has_the_gradient_written_down(
    gpt2, batch, make_task, log_p, grad, combine, assert_same, cost_of, baseline
):
    """(1/NK) Σ (c − b) ∇log p, for two rows with three continuations each, one of them twice."""
    sets = [[(1, 0), (2, 3, 0), (1, 0)], [(0,), (3, 3, 3), (1, 2, 0)]]
    rows = batch.select([0, 1])
    samples = scored(make_task(), rows, [[Text("", y) for y in members] for members in sets])
    pairs = [(example, y) for example, members in zip(rows.examples, sets, strict=True) for y in members]
    factors = [(cost_of(y, example.target) - baseline) / 6 for example, y in pairs]
    expected = combine(factors, [grad(log_p(gpt2, example.prefix, y), gpt2) for example, y in pairs])
    found, _ = samples.gradient(gpt2, lambda log_p: policy_loss(log_p, samples.costs, baseline))
    assert_same(found, expected)


@pytest.mark.parametrize("baseline", [0.0, 2.0, -50.0])
def test_averaged_over_all_continuations_it_is_the_gradient_of_the_expected_cost(
    gpt2, batch, outcomes, enumerated, log_p, grad, combine, assert_same, baseline
):
    """Σ_Y p(Y) ∇policy_loss(Y) = ∇ Σ_Y p(Y) c(Y), whatever the baseline."""
    p, costs, _, exact = enumerated
    assert float(p.sum()) == pytest.approx(1.0, abs=1e-6)
    single = []
    for y, cost in zip(outcomes, costs, strict=True):
        log_likelihood = log_p(gpt2, batch.examples[0].prefix, y)[None]
        single.append(grad(policy_loss(log_likelihood, [cost], baseline), gpt2))
    assert_same(combine(p.tolist(), single), exact, atol=3e-6 * max(1.0, abs(baseline)))


def test_the_method_is_unbiased(gpt2, batch, make_task, enumerated):
    """Its gradient from many samples lies within the Monte-Carlo error of the exact one."""
    p, costs, gradients, exact = enumerated
    num = 60 * 30
    found = PG(make_task(), num_samples=30, baseline=1.0)(gpt2, Batch([batch.examples[0]] * 60), KEY).gradient
    for name, tensor in exact.items():
        each = torch.stack([(c - 1.0) * g[name].double() for c, g in zip(costs, gradients, strict=True)])
        variance = torch.einsum("n,n...->...", p, each.square()) - tensor.double().square()
        error = (variance.clamp(min=0) / num).sqrt()
        assert ((found[name] - tensor).abs() <= 4.5 * error + 1e-5).all(), name


def test_the_method_s_gradient_is_the_sum_by_hand_on_what_it_sampled(
    gpt2, batch, make_task, log_p, grad, combine, assert_same, cost_of
):
    outcome = PG(make_task(), num_samples=3, baseline=0.7)(gpt2, batch, KEY)
    repeated = [example for example in batch.examples for _ in range(3)]
    draws = Decoder(sample=True)(gpt2, [example.prefix for example in repeated], 3, 0, KEY)
    pairs = list(zip(repeated, draws, strict=True))
    costs = [cost_of(y, example.target) for example, y in pairs]
    expected = combine([(c - 0.7) / 12 for c in costs], [grad(log_p(gpt2, e.prefix, y), gpt2) for e, y in pairs])
    assert_same(outcome.gradient, expected)
    assert outcome.log["costs"] == pytest.approx(costs)
    assert outcome.loss == pytest.approx(sum(costs) / 12)
    assert outcome.log["baseline"] == 0.7


def test_samples_of_one_batch_differ_and_those_of_one_key_do_not(gpt2, batch, make_task):
    first, again = (PG(make_task(), num_samples=8)(gpt2, batch, KEY) for _ in range(2))
    assert first.log["costs"] == again.log["costs"]
    assert len(set(first.log["costs"])) > 4
    assert PG(make_task(), num_samples=8)(gpt2, batch, Key(1, 3)).log["costs"] != first.log["costs"]


def test_the_baseline_is_a_moving_average_that_starts_at_the_first_mean(gpt2, batch, make_task):
    method = PG(make_task(), num_samples=2, baseline_decay=0.8)
    expected, means = None, []
    for step in range(5):
        outcome = method(gpt2, batch, Key(0, step))
        mean = sum(outcome.log["costs"]) / 8
        expected = mean if expected is None else expected
        assert outcome.log["baseline"] == pytest.approx(expected)  # the one before this batch
        expected = 0.8 * expected + 0.2 * mean
        assert method.baseline == pytest.approx(expected)
        means.append(mean)
    assert len(set(means)) > 1


def test_a_restart_goes_on_where_the_method_was(gpt2, batch, make_task):
    method = PG(make_task())
    assert method.state() == {"baseline": None}
    for step in range(3):
        method(gpt2, batch, Key(0, step))
    other = PG(make_task())
    other.load_state(method.state())
    first, second = method(gpt2, batch, Key(0, 3)), other(gpt2, batch, Key(0, 3))
    assert math.isfinite(second.log["baseline"])
    assert first.log == second.log
    assert all(torch.equal(first.gradient[name], tensor) for name, tensor in second.gradient.items())
    assert method.state() == other.state()


def test_samples_are_drawn_without_dropout_and_scored_with_it(make_gpt2, batch, make_task):
    model = make_gpt2(dropout=0.3)
    outcomes = [PG(make_task(), num_samples=4, baseline=0.5)(model.eval(), batch, KEY) for _ in range(3)]
    assert [outcome.log["costs"] for outcome in outcomes] == [outcomes[0].log["costs"]] * 3
    assert len({outcome.gradient["transformer.ln_f.bias"].sum().item() for outcome in outcomes}) == 3


def test_the_advantage_is_cost_minus_baseline_and_costs_carry_no_gradient():
    log_likelihoods = torch.tensor([-1.0, -2.0], dtype=torch.float64, requires_grad=True)
    policy_loss(log_likelihoods, [3.0, 5.0], 4.5).backward()
    assert log_likelihoods.grad.tolist() == [-0.75, 0.25]


def test_following_the_gradient_lowers_the_cost_of_samples(gpt2, batch, make_task):
    method = PG(make_task(), num_samples=6)
    optimizer = torch.optim.Adam(gpt2.parameters(), lr=0.05)
    costs = []
    for step in range(25):
        outcome = method(gpt2, batch, Key(0, step))
        costs.append(outcome.loss)
        for name, tensor in outcome.gradient.items():
            gpt2.get_parameter(name).grad = tensor
        optimizer.step()
    assert sum(costs[-5:]) / 5 < 0.4 * sum(costs[:5]) / 5
