import copy

import pytest
import torch

from mgs.costs import Cost, LanguageModelCost
from mgs.types import Text

PREFIXES = [Text("", (5, 6, 7)), Text("", (300, 2)), Text("", (9,))]
HYPOTHESES = [Text("", (8, 9, 10, 0)), Text("", (0,)), Text("", (11, 12, 13, 14, 15, 16), ended=False)]
REFERENCES = [Text("", (1, 0))] * 3


def by_hand(model, prefix, hypothesis, first):
    """−Σ log p of the tokens from `first` on, one sequence at a time."""
    ids = [*prefix.token_ids, *hypothesis.token_ids]
    with torch.no_grad():
        log_probs = torch.log_softmax(model(torch.tensor([ids])).logits[0].double(), dim=-1)
    return -sum(log_probs[position - 1, ids[position]].item() for position in range(first, len(ids)))


def test_the_cost_is_the_negative_log_likelihood_of_the_continuation(model):
    expected = [by_hand(model, x, y, len(x.token_ids)) for x, y in zip(PREFIXES, HYPOTHESES, strict=True)]
    assert LanguageModelCost.of(model)(HYPOTHESES, REFERENCES, PREFIXES) == pytest.approx(expected, rel=1e-4)


def test_with_that_of_the_prefixes_it_is_that_of_both(model):
    cost = LanguageModelCost.of(model)
    expected = [by_hand(model, x, y, 1) for x, y in zip(PREFIXES, HYPOTHESES, strict=True)]
    both = zip(cost(HYPOTHESES, REFERENCES, PREFIXES), cost.of_prefixes(PREFIXES), strict=True)
    assert list(map(sum, both)) == pytest.approx(expected, rel=1e-4)


def test_a_prefix_of_one_token_costs_nothing(model):
    assert LanguageModelCost.of(model).of_prefixes([Text("", (3,)), Text("", (4,))]) == [0.0, 0.0]


def test_by_name_it_is_the_same_cost(gpt2):
    expected = LanguageModelCost.of(gpt2)(HYPOTHESES, REFERENCES, PREFIXES)
    named = Cost.of("lm", gpt2)
    assert named.per_sequence(HYPOTHESES, REFERENCES, prefixes=PREFIXES) == expected
    assert named.mean(HYPOTHESES, REFERENCES, prefixes=PREFIXES) == pytest.approx(sum(expected) / 3)


def test_the_score_stays_when_the_model_changes(gpt2):
    changing = copy.deepcopy(gpt2)
    cost = LanguageModelCost.of(changing)
    before = cost(HYPOTHESES, REFERENCES, PREFIXES)
    with torch.no_grad():
        for parameter in changing.parameters():
            parameter.mul_(1.5)
    assert cost(HYPOTHESES, REFERENCES, PREFIXES) == before
    assert LanguageModelCost(changing)(HYPOTHESES, REFERENCES, PREFIXES) != before


def test_the_copy_is_frozen_and_the_model_is_not(gpt2):
    training = copy.deepcopy(gpt2).train()
    cost = LanguageModelCost.of(training)
    cost(HYPOTHESES, REFERENCES, PREFIXES)
    assert not any(p.requires_grad for p in cost.model.parameters())
    assert not cost.model.training
    assert training.training
    assert all(p.requires_grad for p in training.parameters())


def test_scoring_with_a_model_itself_leaves_it_trainable(gpt2):
    training = copy.deepcopy(gpt2).train()
    LanguageModelCost(training)(HYPOTHESES, REFERENCES, PREFIXES)
    assert training.training
    assert all(p.requires_grad for p in training.parameters())
