"""Gradients of weighted log-likelihoods."""

import pytest
import torch

from mgs.methods.weighted import weighted_gradient
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
