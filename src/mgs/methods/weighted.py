"""∇ Σ w log p_θ(Y | X), in pieces that fit the memory: what MRT, PG and most guides of a search come down to.

A loss that is any function of the log p has it as its gradient, with w = ∂loss/∂log p.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from mgs.data import packed
from mgs.methods.method import autocast, gradient_of, summed_gradient
from mgs.methods.mle import tokens_at_once
from mgs.models import log_likelihoods
from mgs.models.likelihood import padded_lengths
from mgs.types import Direction

Rows = Sequence[Sequence[int]]
Pieces = Sequence[Sequence[int]]  # numbers of rows


def weighted_gradient(
    model: nn.Module,
    prefixes: Rows,
    continuations: Rows,
    weights: Sequence[float],
    bf16: bool = False,
    likelihoods: Callable[[nn.Module, Rows, Rows], Tensor] = log_likelihoods,
    pieces: Pieces | None = None,
) -> tuple[Direction, float]:
    """The sum is over all rows, each with its own weight; and what it comes to. `likelihoods` may be anything else that
    a row has one of."""

    def weighted(rows: Sequence[int]) -> Tensor:
        log_p = likelihoods(model, [prefixes[r] for r in rows], [continuations[r] for r in rows])
        return (log_p * log_p.new_tensor([weights[r] for r in rows])).sum()

    return summed_gradient(model, pieces or pieces_of(model, prefixes, continuations), weighted, bf16)


def pieces_of(model: nn.Module, prefixes: Rows, continuations: Rows) -> Pieces:
    """The rows in groups that fit the memory."""
    return packed(padded_lengths(model, prefixes, continuations), tokens_at_once(model))


def gradient_through(
    model: nn.Module, prefixes: Rows, continuations: Rows, loss: Callable[[Tensor], Tensor], bf16: bool = False
) -> tuple[Direction, float]:
    """∇ of a loss that is a function of all rows' log p_θ(Y | X), and the loss. Rows too many for one pass go through
    the model twice, the first time for their weights, in the same pieces with the same dropout."""
    pieces = pieces_of(model, prefixes, continuations)
    if len(pieces) == 1:
        with autocast(model, bf16):
            value = loss(log_likelihoods(model, prefixes, continuations))
        return gradient_of(value, model), value.item()
    device = next(model.parameters()).device
    log_p = torch.empty(len(prefixes), device=device)
    with torch.random.fork_rng([device] if device.type == "cuda" else []), torch.no_grad(), autocast(model, bf16):
        for rows in pieces:
            log_p[rows] = log_likelihoods(model, [prefixes[r] for r in rows], [continuations[r] for r in rows])
    value = loss(log_p.requires_grad_())
    (weights,) = torch.autograd.grad(value, log_p)
    gradient, _ = weighted_gradient(model, prefixes, continuations, weights.tolist(), bf16, pieces=pieces)
    return gradient, value.item()
