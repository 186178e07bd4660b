"""Which candidates get weight: with likelihoods beside costs, with halves dropped; and whether scores carry over."""

import copy
import math

import pytest
import torch

from mgs.candidates import Candidates
from mgs.decoding import Decoder
from mgs.errors import CostError, NonFinite, UserError
from mgs.methods import MGS, Key, mle_loss
from mgs.search import Proposal, ProposalForm, Temperature
from mgs.types import Batch

KEY = Key(3, 14, 1)
LONG = ProposalForm(noise=0.0, mix=0.2, lengths=(-2.0, 0.5, 5.0), density="none")  # from unlikely to likely


def moved(model, direction):
    twin = copy.deepcopy(model).eval()
    with torch.no_grad():
        for name, p in twin.named_parameters():
            p.add_(direction[name])
    return twin


def nll(model, batch):
    with torch.no_grad():
        return mle_loss(model.eval(), batch).item()


def candidates_of(method, model, batch, key=KEY):
    gradients, _ = method.centres(model, batch, key)
    proposal = Proposal(method.form, gradients, method.num_candidates, *key)
    return [proposal.sample(k) for k in range(len(proposal))]


def nlls_of(method, model, batch, scored):
    return [nll(moved(model, direction), scored) for direction in candidates_of(method, model, batch)]


def test_the_weights_are_of_cost_and_likelihood_together(gpt2, batch, make_task):
    method = MGS(make_task(), LONG, 5, score_prefixes=3, likelihood_weight=0.7, temperature=Temperature(2.0))
    log = method(gpt2, batch, KEY).log
    scored = Batch(batch.examples[:3])
    assert log["nlls"] == pytest.approx(nlls_of(method, gpt2, batch, scored), abs=1e-5)
    assert max(log["nlls"]) > min(log["nlls"]) + 0.1
    whole = torch.tensor(log["costs"], dtype=torch.float64) + 0.7 * torch.tensor(log["nlls"], dtype=torch.float64)
    assert log["weights"] == pytest.approx(torch.softmax(-2.0 * whole, 0).tolist())
    plain = MGS(make_task(), LONG, 5, score_prefixes=3)(gpt2, batch, KEY)
    assert plain.log["costs"] == log["costs"]  # the task's alone
    assert log["best_cost"] == min(log["costs"])
    assert not {"nlls", "refused", "nll_over_start"} & plain.log.keys()


def test_candidates_that_are_less_likely_than_the_start_by_more_than_the_budget_get_nothing(
    gpt2, make_gpt2, batch, make_task, combine, assert_same
):
    start = make_gpt2()
    method = MGS(make_task(), LONG, 5, score_prefixes=3, likelihood_budget=0.02, anchor=start)
    outcome = method(gpt2, batch, KEY)
    scored = Batch(batch.examples[:3])
    nlls = nlls_of(method, gpt2, batch, scored)
    refused = [value > nll(start, scored) + math.log(1.02) for value in nlls]
    assert 0 < sum(refused) < 5
    assert [weight == 0.0 for weight in outcome.log["weights"]] == refused
    assert outcome.log["refused"] == sum(refused)
    assert [cost is None for cost in outcome.log["costs"]] == refused  # nothing was decoded with them
    assert outcome.log["nll_over_start"] == pytest.approx(0.0, abs=1e-6)
    assert sum(outcome.log["weights"]) == pytest.approx(1.0)
    kept = [k for k in range(5) if not refused[k]]
    costs = torch.tensor([outcome.log["costs"][k] for k in kept], dtype=torch.float64)
    assert [outcome.log["weights"][k] for k in kept] == pytest.approx(torch.softmax(-costs, 0).tolist())
    candidates = candidates_of(method, gpt2, batch)
    assert_same(outcome.gradient, combine([-w for w in outcome.log["weights"]], candidates))


@pytest.mark.parametrize("temperature", [Temperature(1.0), Temperature(None)])
def test_if_all_are_refused_nothing_moves(gpt2, make_gpt2, batch, make_task, temperature):
    form = ProposalForm(components="mle", noise=0.0, lengths=(-3.0,))  # away from the targets
    method = MGS(make_task(), form, 3, temperature, likelihood_budget=0.0, anchor=make_gpt2(), log_base=True)
    outcome = method(gpt2, batch, KEY)
    assert not any(tensor.any() for tensor in outcome.gradient.values())
    log = outcome.log
    assert (log["refused"], log["weights"], log["effective"], log["update_norm"]) == (3, [0.0] * 3, 0.0, 0.0)
    assert (log["winner"], log["winner_gradient"], log["winner_length"], log["guided_won"]) == ("zero", None, 0.0, 0.0)
    assert all(math.isfinite(value) for value in log.values() if isinstance(value, float))


def test_staying_is_never_refused_and_way_back_is_open(make_gpt2, batch, make_task):
    """θ is far over the budget. Candidates that are nearer to it than θ pass; others do not; staying does."""
    start = make_gpt2()
    form = ProposalForm(components="mle", noise=0.0, lengths=(-1.0, 0.3), stay=True, density="none")
    method = MGS(make_task(), form, 3, likelihood_budget=0.01, anchor=start)
    back, *_ = method.centres(start, batch)[0]
    lost = moved(start, {name: -2.0 * tensor for name, tensor in back.items()})
    log = method(lost, batch, KEY).log
    assert log["nll_over_start"] == pytest.approx(nll(lost, batch) - nll(start, batch), abs=1e-5)
    assert log["nll_over_start"] > math.log(1.01)
    away, nearer = log["lengths"].index(-1.0), log["lengths"].index(0.3)
    assert nll(start, batch) + math.log(1.01) < log["nlls"][nearer] < log["nlls"][0] < log["nlls"][away]
    assert log["refused"] == 1
    assert [weight > 0 for weight in log["weights"]] == [k != away for k in range(3)]


def test_a_budget_needs_a_start(make_task):
    with pytest.raises(UserError, match="likelihood_budget"):
        MGS(make_task(), likelihood_budget=0.02)


def test_a_likelihood_that_is_not_finite_is_said_unless_it_is_refused(gpt2, make_gpt2, batch, make_task, monkeypatch):
    monkeypatch.setattr(Candidates, "nlls", lambda *args: [math.inf, 1.0, 1.0])
    with pytest.raises(NonFinite, match="likelihood of a candidate"):
        MGS(make_task(), num_candidates=3, likelihood_weight=1.0)(gpt2, batch, KEY)
    method = MGS(make_task(), LONG, 3, likelihood_weight=1.0, likelihood_budget=9.0, anchor=make_gpt2())
    log = method(gpt2, batch, KEY).log
    assert (log["refused"], log["weights"][0]) == (1, 0.0)
    assert sum(log["weights"]) == pytest.approx(1.0)


# -- halving ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sample", [False, True])
def test_the_best_are_scored_on_all_rows_as_without_halving(gpt2, batch, make_task, combine, assert_same, sample):
    task, form = make_task(Decoder(sample=sample)), ProposalForm(noise=20.0, density="none")
    whole = MGS(task, form, 8)(gpt2, batch, KEY).log
    method = MGS(task, form, 8, halvings=1)
    outcome = method(gpt2, batch, KEY)
    log = outcome.log
    first = MGS(task, form, 8, score_prefixes=2)(gpt2, batch, KEY).log["costs"]
    kept = sorted(sorted(range(8), key=lambda k: (first[k], k))[:4])
    assert log["scored_rows"] == [4 if k in kept else 2 for k in range(8)]
    assert log["costs"] == pytest.approx([whole["costs"][k] if k in kept else first[k] for k in range(8)])
    assert [k for k, weight in enumerate(log["weights"]) if weight] == kept
    assert len({log["costs"][k] for k in kept}) > 1
    assert_same(outcome.gradient, combine([-w for w in log["weights"]], candidates_of(method, gpt2, batch)))


def test_a_cost_of_the_whole_corpus_cannot_be_halved(gpt2, batch, make_task):
    with pytest.raises(CostError, match=r"one value for the whole corpus.*leave out halvings"):
        MGS(make_task(cost=lambda hypotheses, references: 1.0), halvings=1)(gpt2, batch, KEY)


# -- probes -----------------------------------------------------------------------------------------------------------


def test_a_probe_scores_on_fresh_prefixes_and_changes_nothing(gpt2, batch, make_task):
    drawn = []
    fresh = Batch([batch.examples[0], batch.examples[3], batch.examples[1]])

    def draw(num, given, key):
        drawn.append((num, given is batch, key))
        return fresh

    form = ProposalForm(noise=20.0)
    task = make_task()
    plain = MGS(task, form, 6, score_prefixes=3)
    probing = MGS(task, form, 6, score_prefixes=3, probe_transfer=2, fresh=draw)
    for step in range(3):
        key = Key(3, step)
        one, other = plain(gpt2, batch, key), probing(gpt2, batch, key)
        assert all(torch.equal(one.gradient[name], tensor) for name, tensor in other.gradient.items())
        more = {name: value for name, value in other.log.items() if name not in one.log}
        assert one.log == {name: value for name, value in other.log.items() if name not in more}
        assert set(more) == ({"transfer", "transfer_by", "probe_costs"} if step != 1 else set())
        if more:
            expected = [task.mean_cost(moved(gpt2, c), fresh) for c in candidates_of(probing, gpt2, batch, key)]
            assert more["probe_costs"] == pytest.approx(expected)
            assert len(set(expected)) > 2
            assert -1 <= more["transfer"] <= 1
    assert drawn == [(3, True, Key(3, 0)), (3, True, Key(3, 2))]
    assert "transfer" not in probing(gpt2, batch, Key(3, 2, micro=1)).log
