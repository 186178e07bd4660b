"""∇ Σ w log p_θ(Y | X): what guides other than the likelihood come down to, in pieces that fit the memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence

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
