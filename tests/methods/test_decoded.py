"""What is decoded, weighted by its cost, as a guide of parameter search."""

import pytest
import torch

from mgs.candidates import Task
from mgs.costs import Cost
from mgs.decoding import Decoder
from mgs.errors import UserError
from mgs.methods import MGS, weighted
from mgs.methods.decoded import decoded_gradient, standardised
from mgs.methods.method import Key
from mgs.models import searched_parameters, token_log_likelihoods
from mgs.search import ProposalForm

KEY = Key(3, 0)
EXACT = ProposalForm(components="mle", noise=0.0, density="none")


@pytest.fixture
def task(tokenizer):
    return Task(tokenizer, Decoder(), Cost.of("edit"), 3)


def test_costs_are_compared_with_everyone_s():
    assert standardised([1.0, 4.0], [1.0, 4.0, 4.0, 7.0]) == pytest.approx([2**0.5, 0.0])
    assert standardised([2.0, 2.0], [2.0, 2.0]) == [0.0, 0.0]


@pytest.mark.parametrize("at_once", [4, 4096])
def test_it_is_the_gradient_of_mean_likelihoods_weighted_by_cost(gpt2, batch, task, monkeypatch, at_once):
    monkeypatch.setattr(weighted, "tokens_at_once", lambda model: at_once)
    model = gpt2.train()
    gradient, cost = decoded_gradient(task, model, batch, task.decode(model, batch, KEY))
    hypotheses = task.decode(model, batch, KEY)
    costs = torch.tensor(task.costs(hypotheses, batch))
    assert costs.std() > 0
    assert cost == pytest.approx(costs.mean().item())
    log_p_BT, scored_BT = token_log_likelihoods(model, batch.prefixes, [text.token_ids for text in hypotheses])
    z = (costs.mean() - costs) / costs.std(correction=0)
    loss = -(z * log_p_BT.sum(1) / scored_BT.sum(1)).mean()
    loss.backward()
    for name, parameter in searched_parameters(model).items():
        torch.testing.assert_close(gradient[name], parameter.grad, rtol=1e-4, atol=1e-6)
    assert any(tensor.abs().max() > 0 for tensor in gradient.values())


@pytest.mark.parametrize("seed", [0, 2])
def test_steps_along_it_lower_the_decoded_cost(make_gpt2, batch, tokenizer, seed):
    """Some of this model's greedy continuations end and others do not; what is asked for is that they be short."""
    model = make_gpt2(seed=seed)
    task = Task(tokenizer, Decoder(), Cost.of(lambda hypotheses, references: [len(h.token_ids) for h in hypotheses]), 8)
    costs = [task.mean_cost(model, batch)]
    optimizer = torch.optim.SGD(searched_parameters(model).values(), lr=0.1)
    for step in range(40):
        gradient, _ = decoded_gradient(task, model, batch, task.decode(model, batch, Key(0, step)))
        for name, parameter in searched_parameters(model).items():
            parameter.grad = gradient[name]
        optimizer.step()
        costs.append(task.mean_cost(model, batch))
    assert 1 < costs[0] < 8
    assert costs[-1] == 1.0


def test_where_all_cost_the_same_it_says_nothing(gpt2, batch, tokenizer):
    task = Task(tokenizer, Decoder(), Cost.of(lambda hypotheses, references: [1.0] * len(hypotheses)), 3)
    gradient, _ = decoded_gradient(task, gpt2, batch, task.decode(gpt2, batch, KEY))
    assert not any(tensor.any() for tensor in gradient.values())
    outcome = MGS(task, EXACT, 2, guides=("mle", "decoded"))(gpt2, batch, KEY)
    assert all(tensor.isfinite().all() for tensor in outcome.gradient.values())


def test_search_has_one_centre_of_it_and_as_many_of_the_likelihood_as_asked_for(gpt2, batch, task):
    method = MGS(task, EXACT, 3, guides=("mle", "decoded"), num_gradients=2, guide_prefixes=3)
    outcome = method(gpt2, batch, KEY)
    assert outcome.log["guides"] == ["mle", "mle", "decoded"]
    gradients, facts = method.centres(gpt2, batch, KEY)
    some = batch.select(range(3))
    expected, cost = decoded_gradient(task, gpt2, some, task.decode(gpt2, some, KEY))
    assert facts[-1]["loss"] == outcome.log["decoded_loss"] == cost
    scale = min(1.0, 1 / facts[-1]["norm"])
    for name, tensor in gradients[-1].items():
        torch.testing.assert_close(tensor, -scale * expected[name], rtol=1e-4, atol=1e-6)


def test_a_cost_of_a_whole_corpus_cannot_guide(gpt2, batch, tokenizer):
    task = Task(tokenizer, Decoder(), Cost.of("bleu"), 3)
    hypotheses = task.decode(gpt2, batch, KEY)
    with pytest.raises(UserError, match="bleu"):
        decoded_gradient(task, gpt2, batch, hypotheses)
