"""Gradients of weighted log-likelihoods, and of losses that depend on them."""

import itertools

import pytest
import torch

from mgs.methods.weighted import gradient_through, weighted_gradient
from mgs.models import log_likelihoods
from mgs.search.directions import norm


def test_pieces_make_the_whole(gpt2, batch, monkeypatch):
    gpt2.eval()
    weights = [1.0 + row for row in range(len(batch))]
    whole, value = weighted_gradient(gpt2, batch.prefixes, batch.targets, weights)
    expected = (log_likelihoods(gpt2, batch.prefixes, batch.targets) * torch.tensor(weights)).sum()
    assert value == pytest.approx(expected.item(), rel=1e-5)
    grads = torch.autograd.grad(expected, list(gpt2.parameters()))
    assert norm(whole) == pytest.approx(norm(dict(enumerate(grads))), rel=1e-4)
    monkeypatch.setattr("mgs.methods.weighted.tokens_at_once", lambda model: 1)
    pieces, same = weighted_gradient(gpt2, batch.prefixes, batch.targets, weights)
    assert same == pytest.approx(value, rel=1e-5)
    for name, gradient in whole.items():
        torch.testing.assert_close(pieces[name], gradient, rtol=1e-3, atol=1e-4)


def test_rows_count_as_much_as_they_weigh(gpt2, batch):
    none, value = weighted_gradient(gpt2.eval(), batch.prefixes, batch.targets, [0.0] * len(batch))
    assert value == 0.0
    assert norm(none) == 0.0


def in_one_row(log_p):
    """A loss in which every row's part depends on all others, as the risk's does."""
    return log_p.softmax(dim=0) @ torch.linspace(1, 3, len(log_p))


def test_a_loss_of_all_rows_has_the_same_gradient_in_pieces(gpt2, batch, monkeypatch):
    """Twice through the model, a row at a time; the first time remembers no gradient."""
    rows = (gpt2.eval(), batch.prefixes, batch.targets)
    expected = in_one_row(log_likelihoods(*rows))
    grads = torch.autograd.grad(expected, list(gpt2.parameters()))
    for budget in (10_000, 1):
        monkeypatch.setattr("mgs.methods.weighted.tokens_at_once", lambda model, budget=budget: budget)
        found, loss = gradient_through(*rows, in_one_row)
        assert loss == pytest.approx(expected.item(), rel=1e-5)
        for tensor, gradient in zip(grads, found.values(), strict=True):
            torch.testing.assert_close(gradient, tensor, rtol=1e-3, atol=1e-5)
    assert norm(found) > 1e-3


def test_in_pieces_dropout_is_the_same_both_times(make_gpt2, batch, monkeypatch):
    """The weights belong to the likelihoods whose gradients they weigh: with all of them 2 log p, the value of what is
    summed is twice that of the loss, to rounding, only if both passes dropped the same, in the same pieces."""
    model = make_gpt2(dropout=0.3).train()
    budgets = itertools.cycle([1, 12])
    monkeypatch.setattr("mgs.methods.weighted.tokens_at_once", lambda model: next(budgets))
    summed = []
    weighted = weighted_gradient

    def noting(*args, **options):
        gradient, value = weighted(*args, **options)
        summed.append(value)
        return gradient, value

    monkeypatch.setattr("mgs.methods.weighted.weighted_gradient", noting)
    torch.manual_seed(5)
    _, loss = gradient_through(model, batch.prefixes, batch.targets, lambda log_p: log_p.square().sum())
    assert summed[0] == pytest.approx(2 * loss, rel=1e-5)
    _, other = gradient_through(model, batch.prefixes, batch.targets, lambda log_p: log_p.square().sum())
    assert other != pytest.approx(loss, rel=1e-3)  # dropout goes on
