"""Gradients of weighted log-likelihoods, of whole rows and of their ends."""

import pytest
import torch

from mgs.methods import MGS, Key
from mgs.methods.weighted import ends_gradient, weighted_gradient
from mgs.models.likelihood import end_log_likelihoods, token_log_likelihoods
from mgs.search import ProposalForm
from mgs.search.directions import norm

KEY = Key(3, 0)


def test_the_last_token_of_each_target_is_scored(gpt2, batch):
    log_p, scored = token_log_likelihoods(gpt2.eval(), batch.prefixes, batch.targets)
    found = end_log_likelihoods(gpt2, batch.prefixes, batch.targets)
    for row, end in enumerate(found):
        assert end == log_p[row][scored[row]][-1]


def test_pieces_make_the_whole(gpt2, batch, monkeypatch):
    gpt2.eval()
    whole, value = ends_gradient(gpt2, batch)
    expected = -end_log_likelihoods(gpt2, batch.prefixes, batch.targets).mean()
    assert value == pytest.approx(expected.item(), rel=1e-5)
    grads = torch.autograd.grad(expected, list(gpt2.parameters()))
    assert norm(whole) == pytest.approx(norm(dict(enumerate(grads))), rel=1e-4)
    monkeypatch.setattr("mgs.methods.weighted.tokens_at_once", lambda model: 1)
    pieces, same = ends_gradient(gpt2, batch)
    assert same == pytest.approx(value, rel=1e-5)
    for name, gradient in whole.items():
        torch.testing.assert_close(pieces[name], gradient, rtol=1e-3, atol=1e-6)


def test_rows_count_as_much_as_they_weigh(gpt2, batch):
    none, value = weighted_gradient(gpt2.eval(), batch.prefixes, batch.targets, [0.0] * len(batch))
    assert value == 0.0
    assert norm(none) == 0.0


def test_a_step_along_it_makes_ends_likelier(gpt2, batch):
    gpt2.eval()
    gradient, before = ends_gradient(gpt2, batch)
    with torch.no_grad():
        for name, parameter in gpt2.named_parameters():
            parameter.sub_(gradient[name], alpha=0.1 / norm(gradient))
    assert ends_gradient(gpt2, batch)[1] < before


def test_search_has_a_centre_there(gpt2, batch, make_task):
    form = ProposalForm(components="mle", noise=0.0)
    method = MGS(make_task(), form, 3, guides=("mle", "ends"), num_gradients=2, guide_prefixes=2)
    log = method(gpt2, batch, KEY).log
    assert log["guides"] == ["mle", "mle", "ends"]
    assert log["ends_loss"] == pytest.approx(ends_gradient(gpt2, batch.select(range(2)))[1], rel=1e-5)
