"""A guide of parameter search: to stop where stopping is nearest.

    L = mean of max(0, m + min_t d_t),    d_t = max_{v ≠ ⟨eos⟩} z_t(v) − z_t(⟨eos⟩)

The mean is over what the task's decoder makes of the batch with θ. z_t are the logits at place t of a continuation Ŷ
that goes round in circles or does not end, and t runs up to the end of the first n-gram that comes back; other
continuations count as zero. Where d_t is least, at the end of a sentence as a rule, the least change makes greedy
search stop; it does where d_t < 0, and m is how safely it should.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn

from mgs.costs.sequence import NGRAM
from mgs.methods.loops import comes_back
from mgs.methods.weighted import Rows, weighted_gradient
from mgs.models import searched_parameters
from mgs.models.likelihood import scored_logits
from mgs.types import Batch, Direction, Text

MARGIN = 0.5  # m, in nats


def stops_gradient(
    model: nn.Module, batch: Batch, hypotheses: Sequence[Text], end: int, bf16: bool = False
) -> tuple[Direction, float]:
    """∇L, and L."""
    texts = [to_be_stopped(hypothesis) for hypothesis in hypotheses]
    rows = [row for row, tokens in enumerate(texts) if len(tokens) > 1]  # an empty output is none
    if not rows:
        return {name: torch.zeros_like(p) for name, p in searched_parameters(model).items()}, 0.0
    away = partial(shortfalls, end=end)
    prefixes, going_on = [batch.prefixes[row] for row in rows], [texts[row] for row in rows]
    return weighted_gradient(model, prefixes, going_on, [1 / len(batch)] * len(rows), bf16, away)


def to_be_stopped(text: Text) -> Sequence[int]:
    """The part of a continuation in which it should stop; none of one that is as it should be.

    >>> to_be_stopped(Text("", (5, 1, 2, 3, 4, 6, 1, 2, 3, 4, 6, 1), ended=False))
    (5, 1, 2, 3, 4, 6, 1, 2, 3, 4)
    """
    again = comes_back(text.token_ids)
    if again is not None:
        return text.token_ids[: again + NGRAM]
    return () if text.ended else text.token_ids


def shortfalls(model: nn.Module, prefixes: Rows, continuations: Rows, end: int) -> Tensor:
    """max(0, m + min_t d_t) of each continuation, t > 0. Differentiable."""
    logits_NV, _, scored_BT = scored_logits(model, prefixes, continuations)
    logits_NV = logits_NV.float()
    others_N = logits_NV.index_fill(1, torch.tensor([end], device=logits_NV.device), -math.inf).amax(dim=1)
    nowhere_BT = others_N.new_full(scored_BT.shape, math.inf)
    distance_BT = nowhere_BT.masked_scatter(scored_BT, others_N - logits_NV[:, end])
    later_BT = scored_BT.cumsum(dim=1) > 1
    return (MARGIN + distance_BT.where(later_BT, math.inf).amin(dim=1)).clamp(min=0)
