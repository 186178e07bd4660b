"""Minimum risk training against the paper's closed form of its gradient, on sets that can be written down."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from mgs.decoding import Decoder
from mgs.methods import MRT, Key
from mgs.methods.mrt import risk
from mgs.methods.sampling import Samples, scored
from mgs.models import log_likelihoods as log_likelihoods_of
from mgs.types import Text

KEY = Key(0, 5)


@pytest.fixture
def table():
    """log p of seven sequences from a table of bigrams in float64: the rows are two inputs, with sets of 4 and 3."""
    logits = torch.randn(4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(2), requires_grad=True)
    sequences = [(1, 0), (2, 3, 0), (1, 1, 2), (0,), (3, 3, 3), (2, 0), (1, 2, 0)]
    log_probs = torch.log_softmax(logits, dim=1)
    pairs = [list(zip((1, *sequence), sequence, strict=False)) for sequence in sequences]
    return logits, torch.stack([sum(log_probs[a, b] for a, b in pair) for pair in pairs])


OWNER = [0, 0, 0, 0, 1, 1, 1]  # which row each of the seven belongs to
COSTS = [0.3, 1.9, 0.7, 2.2, 0.1, 1.4, 0.6]


def gradients_of_each(values, parameter):
    return torch.stack([torch.autograd.grad(value, parameter, retain_graph=True)[0] for value in values])


def closed_form(log_likelihoods, gradients, costs, alpha):
    """α [E_q[c ∇log p] − E_q[c] E_q[∇log p]] with q ∝ p^α on the set."""
    q = torch.softmax(alpha * log_likelihoods.detach(), dim=0)
    c = torch.tensor(costs, dtype=q.dtype)
    return alpha * (torch.einsum("n,n...->...", q * c, gradients) - (q @ c) * torch.einsum("n,n...->...", q, gradients))


@pytest.mark.parametrize("alpha", [1.0, 0.3, 2.5])
def test_the_gradient_of_the_risk_is_the_paper_s(table, alpha):
    logits, log_likelihoods = table
    found = torch.autograd.grad(risk(alpha * log_likelihoods, COSTS, OWNER), logits, retain_graph=True)[0]
    each = gradients_of_each(log_likelihoods, logits)
    rows = [[n for n, owner in enumerate(OWNER) if owner == row] for row in (0, 1)]
    expected = [closed_form(log_likelihoods[row], each[row], [COSTS[n] for n in row], alpha) for row in rows]
    torch.testing.assert_close(found, sum(expected) / 2, rtol=1e-10, atol=1e-12)
    assert found.abs().max() > 1e-3


def test_with_the_gold_sequence_in_the_set_it_is_the_sum_of_w_minus_w_bar(table):
    """The paper's second form, with w = c q and w̄ = E_q[c] q; the first sequence is the gold one and costs nothing."""
    logits, log_likelihoods = table
    alpha, costs = 1.7, [0.0, *COSTS[1:]]
    found = torch.autograd.grad(risk(alpha * log_likelihoods, costs, [0] * 7), logits, retain_graph=True)[0]
    q = log_likelihoods.detach().exp() ** alpha
    q = q / q.sum()
    expected_cost = float(q @ torch.tensor(costs, dtype=q.dtype))
    each = gradients_of_each(log_likelihoods, logits)
    gold = (0.0 - expected_cost * q[0]) * each[0]
    others = sum((costs[n] * q[n] - expected_cost * q[n]) * each[n] for n in range(1, 7))
    torch.testing.assert_close(found, alpha * (gold + others), rtol=1e-10, atol=1e-12)


def test_the_risk_is_the_mean_over_rows_of_the_expected_cost(table):
    _, log_likelihoods = table
    p = log_likelihoods.detach().exp()
    rows = [[n for n, owner in enumerate(OWNER) if owner == row] for row in (0, 1)]
    expected = [sum(float(p[n]) * COSTS[n] for n in row) / sum(float(p[n]) for n in row) for row in rows]
    assert risk(log_likelihoods, COSTS, OWNER).item() == pytest.approx(sum(expected) / 2, rel=1e-10)


def test_nothing_is_summed_in_an_order_that_a_gpu_would_choose_anew(table):
    """There, sums by index are atomic additions, and rounding depends on their order."""
    called = []

    class Noting(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            called.append(str(function))
            return function(*args, **(kwargs or {}))

    _, log_likelihoods = table
    with Noting():
        torch.autograd.grad(risk(log_likelihoods, COSTS, OWNER), log_likelihoods)
    assert any("softmax_backward" in name for name in called)
    assert not [name for name in called if "scatter" in name or "index" in name]


def test_equal_costs_and_a_set_of_one_leave_nothing_to_learn(table):
    logits, log_likelihoods = table
    for costs, some in (([3.0] * 7, slice(0, 7)), (COSTS, slice(0, 1))):
        scores = log_likelihoods[some]
        loss = risk(scores, costs[some], [0] * len(scores))
        assert torch.autograd.grad(loss, logits, retain_graph=True)[0].abs().max() < 1e-12


def test_over_all_sequences_with_temperature_one_the_risk_is_the_expected_cost(
    gpt2, make_task, batch, outcomes, cost_of
):
    task = make_task()
    row = batch.select([0])
    samples = scored(task, row, [[Text("", ids) for ids in outcomes]])
    log_likelihoods = log_likelihoods_of(gpt2, samples.prefixes, outcomes).detach()
    p = log_likelihoods.double().exp()
    assert float(p.sum()) == pytest.approx(1.0, abs=1e-5)  # nothing was left out, nothing counted twice
    costs = torch.tensor([cost_of(ids, row.targets[0]) for ids in outcomes], dtype=torch.float64)
    assert MRT(task).risk(log_likelihoods, samples).item() == pytest.approx(float(p @ costs), rel=1e-5)


def sample_set(model, prefixes, num_samples):
    """The samples of the method, drawn by ourselves: each row repeated, each repetition with noise of its own."""
    flat = Decoder(sample=True)(model, [prefix for prefix in prefixes for _ in range(num_samples)], 3, 0, KEY)
    return [flat[start : start + num_samples] for start in range(0, len(flat), num_samples)]


@pytest.mark.parametrize("length_normalised", [False, True])
@pytest.mark.parametrize("alpha", [1.0, 0.4])
def test_the_method_s_gradient_is_the_closed_form_on_what_it_sampled(
    gpt2, batch, make_task, grad, log_p, combine, assert_same, cost_of, alpha, length_normalised
):
    """Length-normalised, q ∝ exp(α log p / |Y|) and ∇log p / |Y| stands where ∇log p stood."""
    method = MRT(make_task(), num_samples=6, temperature=alpha, length_normalised=length_normalised)
    outcome = method(gpt2, batch, KEY)
    factors, gradients, total = [], [], 0.0
    for example, members in zip(batch.examples, sample_set(gpt2, batch.prefixes, 6), strict=True):
        members = sorted(set(members))
        lengths = torch.tensor([len(y) if length_normalised else 1 for y in members], dtype=torch.float64)
        log_likelihoods = torch.stack([log_p(gpt2, example.prefix, y).detach().double() for y in members])
        q = torch.softmax(alpha * log_likelihoods / lengths, dim=0)
        costs = torch.tensor([cost_of(y, example.target) for y in members], dtype=torch.float64)
        factors += (alpha * q * (costs - q @ costs) / lengths / len(batch)).tolist()
        gradients += [grad(log_p(gpt2, example.prefix, y), gpt2) for y in members]
        total += float(q @ costs) / len(batch)
    assert_same(outcome.gradient, combine(factors, gradients))
    assert outcome.loss == pytest.approx(total, rel=1e-5)
    assert outcome.log["risk"] == outcome.loss


def test_equal_sequences_count_once(gpt2, batch, make_task):
    sets = MRT(make_task(), num_samples=30).sets(gpt2, batch, KEY)
    drawn = sample_set(gpt2, batch.prefixes, 30)
    assert [{text.token_ids for text in row} for row in sets] == [set(row) for row in drawn]
    assert all(len(row) == len({text.token_ids for text in row}) for row in sets)
    assert any(len(row) < 30 for row in sets)


@pytest.mark.parametrize(("greedy", "gold"), [(False, False), (True, False), (False, True), (True, True)])
def test_the_greedy_and_the_gold_continuation_are_added(gpt2, batch, make_task, greedy, gold):
    sets = MRT(make_task(), num_samples=1, greedy=greedy, gold=gold).sets(gpt2, batch, KEY)
    expected = [set(row) for row in sample_set(gpt2, batch.prefixes, 1)]
    best = Decoder()(gpt2, batch.prefixes, 3, 0)
    for row, members in enumerate(expected):
        members |= {best[row]} if greedy else set()
        members |= {batch.targets[row]} if gold else set()
    assert [{text.token_ids for text in row} for row in sets] == expected
    if greedy and gold:
        assert any(len(row) == 3 for row in sets)


def test_greedy_is_added_even_where_the_task_decodes_otherwise(gpt2, batch, make_task):
    sets = MRT(make_task(Decoder(beams=2)), num_samples=1, greedy=True).sets(gpt2, batch, KEY)
    best = Decoder()(gpt2, batch.prefixes, 3, 0)
    assert all(best[row] in {text.token_ids for text in members} for row, members in enumerate(sets))


def test_the_log_counts_what_was_scored(gpt2, batch, make_task):
    method = MRT(make_task(), num_samples=3, gold=True)
    log = method(gpt2, batch, KEY).log
    members = [text for row in method.sets(gpt2, batch, KEY) for text in row]
    assert log["num_samples"] == len(members)
    assert log["cost"] == pytest.approx(sum(log["costs"]) / len(members))
    assert log["sample_length"] == pytest.approx(sum(len(text.token_ids) for text in members) / len(members))


def test_samples_know_their_lengths():
    samples = Samples([(1,)] * 2, [Text("", (1, 0)), Text("", (1, 2, 3))], [0.0, 0.0], [0, 0])
    assert samples.lengths == [2, 3]


def test_following_the_gradient_lowers_the_cost_of_samples(gpt2, batch, make_task):
    method = MRT(make_task(), num_samples=6)
    optimizer = torch.optim.Adam(gpt2.parameters(), lr=0.05)
    costs = []
    for step in range(25):
        outcome = method(gpt2, batch, Key(0, step))
        costs.append(outcome.loss)
        for name, tensor in outcome.gradient.items():
            gpt2.get_parameter(name).grad = tensor
        optimizer.step()
    assert sum(costs[-5:]) / 5 < 0.4 * sum(costs[:5]) / 5


def test_mrt_remembers_nothing(make_task):
    assert MRT(make_task()).state() == {}
    assert MRT(make_task()).name == "mrt"
