"""∇ Σ w log p_θ(Y | X), in pieces that fit the memory: what MRT, PG and most guides of a search come down to.

A loss that is any function of the log p has it as its gradient, with w = ∂loss/∂log p.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from mgs.data import packed
from mgs.methods.method import autocast, gradient_of
from mgs.methods.mle import tokens_at_once
from mgs.models import log_likelihoods
from mgs.models.likelihood import padded_lengths
from mgs.types import Direction

Rows = Sequence[Sequence[int]]


def weighted_gradient(
    model: nn.Module,
    prefixes: Rows,
    continuations: Rows,
    weights: Sequence[float],
    bf16: bool = False,
    likelihoods: Callable[[nn.Module, Rows, Rows], Tensor] = log_likelihoods,
) -> tuple[Direction, float]:
    """The sum is over all rows, each with its own weight; and what it comes to. `likelihoods` may be anything else that
    a row has one of."""
    total: Direction = {}
    value = 0.0
    for rows in packed(padded_lengths(model, prefixes, continuations), tokens_at_once(model)):
        with autocast(model, bf16):
            log_p = likelihoods(model, [prefixes[r] for r in rows], [continuations[r] for r in rows])
        part = (log_p * log_p.new_tensor([weights[r] for r in rows])).sum()
        value += part.item()
        for name, gradient in gradient_of(part, model).items():
            total[name] = total[name].add_(gradient) if name in total else gradient
    return total, value


def gradient_through(
    model: nn.Module, prefixes: Rows, continuations: Rows, loss: Callable[[Tensor], Tensor], bf16: bool = False
) -> tuple[Direction, float]:
    """∇ of a loss that is a function of all rows' log p_θ(Y | X), and the loss. Rows too many for one pass go through
    the model twice, the first time for their weights, with the same dropout."""
    pieces = packed(padded_lengths(model, prefixes, continuations), tokens_at_once(model))
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
    return weighted_gradient(model, prefixes, continuations, weights.tolist(), bf16)[0], value.item()
