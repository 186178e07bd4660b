import copy

import pytest
import torch

from mgs.models import log_likelihoods, score, token_log_likelihoods
from mgs.models.likelihood import padded

PREFIXES = [(5, 6, 7), (300, 2), (11, 12, 13, 14), (9,)]
TARGETS = [(8, 9, 10, 0), (1, 0), (15, 16, 17, 18, 19, 20, 0), (33, 44, 55)]


def by_hand(model, prefix, target, with_prefix=False):
    """The sum of log-softmax values, one token after another, one sequence at a time."""
    ids = [*prefix, *target]
    with torch.no_grad():
        log_probs = torch.log_softmax(model(torch.tensor([ids])).logits[0].double(), dim=-1)
    first = 1 if with_prefix else len(prefix)
    return sum(log_probs[position - 1, ids[position]].item() for position in range(first, len(ids)))


def test_padding_goes_where_asked():
    assert padded([[1, 2], [3]], 9, "cpu").tolist() == [[1, 2], [3, 9]]
    assert padded([[1, 2], [3]], 9, "cpu", left=True).tolist() == [[1, 2], [9, 3]]


def test_log_likelihoods_equal_the_sum_made_by_hand(model):
    expected = [by_hand(model, x, y) for x, y in zip(PREFIXES, TARGETS, strict=True)]
    assert log_likelihoods(model, PREFIXES, TARGETS).tolist() == pytest.approx(expected, rel=1e-4)


def test_what_else_is_in_the_batch_does_not_matter(model):
    together = log_likelihoods(model, PREFIXES, TARGETS).tolist()
    alone = [log_likelihoods(model, [x], [y]).item() for x, y in zip(PREFIXES, TARGETS, strict=True)]
    assert together == pytest.approx(alone, rel=1e-4)


def test_scored_tokens_are_the_targets_and_others_are_zero(model):
    values_BT, scored_BT = token_log_likelihoods(model, PREFIXES[:2], TARGETS[:2])
    assert scored_BT.int().tolist() == [[0, 0, 1, 1, 1, 1], [0, 1, 1, 0, 0, 0]]
    assert (values_BT[~scored_BT] == 0).all()
    assert (values_BT[scored_BT] < 0).all()


def test_with_prefix_scores_all_tokens_but_the_first(model):
    _, scored_BT = token_log_likelihoods(model, PREFIXES[:2], TARGETS[:2], with_prefix=True)
    assert scored_BT.int().tolist() == [[1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0]]
    expected = [by_hand(model, x, y, with_prefix=True) for x, y in zip(PREFIXES, TARGETS, strict=True)]
    assert score(model, PREFIXES, TARGETS, with_prefix=True) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("budget", [1, 12, 10_000])
def test_score_equals_log_likelihoods_whatever_the_budget(model, budget):
    expected = log_likelihoods(model, PREFIXES, TARGETS).tolist()
    assert score(model, PREFIXES, TARGETS, budget=budget) == pytest.approx(expected, rel=1e-4)


def test_score_of_nothing_is_nothing(gpt2):
    assert score(gpt2, [], []) == []


def test_the_gradient_equals_that_of_the_librarys_loss(model):
    ours, theirs = copy.deepcopy(model), copy.deepcopy(model)
    (-log_likelihoods(ours, PREFIXES[:1], TARGETS[:1]).sum()).backward()
    ids = torch.tensor([[*PREFIXES[0], *TARGETS[0]]])
    labels = ids.clone()
    labels[:, : len(PREFIXES[0])] = -100
    (theirs(ids, labels=labels).loss * len(TARGETS[0])).backward()
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.allclose(a.grad, b.grad, rtol=1e-3, atol=1e-4 * b.grad.abs().max().item())


def test_score_ignores_dropout_and_restores_training_mode(gpt2):
    noisy = copy.deepcopy(gpt2).train()
    assert score(noisy, PREFIXES, TARGETS) == pytest.approx(score(gpt2, PREFIXES, TARGETS), rel=1e-6)
    assert all(module.training for module in noisy.modules())
    calm = copy.deepcopy(gpt2).eval()
    score(calm, PREFIXES, TARGETS)
    assert not any(module.training for module in calm.modules())


def test_score_restores_training_mode_after_an_exception(gpt2):
    noisy = copy.deepcopy(gpt2).train()
    with pytest.raises(IndexError):
        score(noisy, [(10_000,)], [(1,)])
    assert noisy.training
