"""The gradient of the expected cost as a guide of parameter search."""

import pytest
import torch

from mgs.candidates import Task
from mgs.costs import Cost
from mgs.decoding import Decoder
from mgs.methods import MGS, method, weighted
from mgs.methods.method import Key, gradient_of
from mgs.methods.risk import risk_gradient
from mgs.methods.sampling import draw
from mgs.models import log_likelihoods, searched_parameters
from mgs.search import ProposalForm


@pytest.fixture
def task(tokenizer):
    return Task(tokenizer, Decoder(), Cost.of("edit"), 3)


def test_it_is_the_gradient_of_advantages_times_likelihoods(gpt2, batch, task):
    model = gpt2.train()
    key, num = Key(3, 0), 4
    gradient, cost = risk_gradient(task, model, batch, num, key)
    rows = draw(task, model, batch, num, key)
    flat = [text for row in rows for text in row]
    owner = [row for row in range(len(batch)) for _ in range(num)]
    costs = torch.tensor(task.costs(flat, batch.select(owner)))
    assert cost == pytest.approx(costs.mean().item())
    advantages = (costs.view(-1, num) - costs.view(-1, num).mean(1, keepdim=True)).flatten()
    repeated = batch.select(owner)
    loss = (advantages * log_likelihoods(model, repeated.prefixes, [t.token_ids for t in flat])).mean()
    loss.backward()
    for name, parameter in searched_parameters(model).items():
        torch.testing.assert_close(gradient[name], parameter.grad, rtol=1e-4, atol=1e-6)
    assert any(tensor.abs().max() > 0 for tensor in gradient.values())


@pytest.mark.parametrize("at_once", [1, 12])
def test_samples_that_do_not_fit_one_pass_have_the_gradient_of_all(gpt2, batch, task, monkeypatch, at_once):
    whole, _ = risk_gradient(task, gpt2, batch, 4, Key(3, 0))
    passes = []
    monkeypatch.setattr(weighted, "tokens_at_once", lambda model: at_once)
    monkeypatch.setattr(method, "gradient_of", lambda *given: passes.append(1) or gradient_of(*given))
    parts, _ = risk_gradient(task, gpt2, batch, 4, Key(3, 0))
    assert len(passes) > 2
    for name, tensor in whole.items():
        torch.testing.assert_close(parts[name], tensor, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("guides", [("risk",), ("mle", "risk")])
def test_search_takes_its_centres_from_the_guides(gpt2, batch, task, guides):
    method = MGS(task, ProposalForm(components="mle", noise=0.0, density="none"), len(guides), guides=guides)
    outcome = method(gpt2, batch, Key(1, 0))
    assert outcome.log["guides"] == list(guides)
    assert {f"{guide}_loss" for guide in guides} <= outcome.log.keys()
    assert ("mle_loss" in outcome.log) == ("mle" in guides)
    gradients, _ = method.centres(gpt2, batch, Key(1, 0))
    weights = dict(zip(outcome.log["gradients"], outcome.log["weights"], strict=True))
    for name, tensor in outcome.gradient.items():
        expected = -sum(weights[j] * gradient[name] for j, gradient in enumerate(gradients))
        torch.testing.assert_close(tensor, expected, rtol=1e-4, atol=1e-6)
