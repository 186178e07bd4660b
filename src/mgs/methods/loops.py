"""A guide of parameter search: to stop rather than go round in circles.

    g = mean of ∇ log P(end),    P(end) = 1 − Π_t (1 − p_θ(⟨eos⟩ | X, Ŷ_<t))

The mean is over those continuations Ŷ of the task's decoder, with θ, in which an n-gram comes back, and t runs from
where the first of them does. P(end) is the probability to end anywhere in there, so g asks for ends where they are
likely already, at the ends of sentences, and, unlike `ends.py`, asks for them in no other text.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn

from mgs.costs.sequence import NGRAM
from mgs.methods.weighted import Rows, weighted_gradient
from mgs.models import searched_parameters
from mgs.models.likelihood import scored_logits
from mgs.types import Batch, Direction, Text


def loops_gradient(
    model: nn.Module, batch: Batch, hypotheses: Sequence[Text], end: int, bf16: bool = False
) -> tuple[Direction, float]:
    """−g times the share of the batch's rows that go round in circles, and that share."""
    decoded = [hypothesis.token_ids for hypothesis in hypotheses]
    rows = [row for row, tokens in enumerate(decoded) if comes_back(tokens) is not None]
    if not rows:
        return {name: torch.zeros_like(p) for name, p in searched_parameters(model).items()}, 0.0
    stopping = partial(log_stopping, end=end)
    prefixes, circling = [batch.prefixes[row] for row in rows], [decoded[row] for row in rows]
    gradient, _ = weighted_gradient(model, prefixes, circling, [-1 / len(batch)] * len(rows), bf16, stopping)
    return gradient, len(rows) / len(batch)


def comes_back(tokens: Sequence[int], n: int = NGRAM) -> int | None:
    """Where the first n-gram that was there before begins.

    >>> comes_back([5, 1, 2, 3, 4, 6, 1, 2, 3, 4, 6])
    6
    """
    seen = set()
    for start in range(len(tokens) - n + 1):
        ngram = tuple(tokens[start : start + n])
        if ngram in seen:
            return start
        seen.add(ngram)
    return None


def log_stopping(model: nn.Module, prefixes: Rows, continuations: Rows, end: int) -> Tensor:
    """log P(end) of each continuation. Differentiable."""
    logits_NV, _, scored_BT = scored_logits(model, prefixes, continuations)
    log_p_N = logits_NV.float().log_softmax(dim=-1)[:, end]
    going_on_N = torch.log1p(-log_p_N.exp().clamp(max=1 - 1e-6))
    going_on_BT = going_on_N.new_zeros(scored_BT.shape).masked_scatter(scored_BT, going_on_N)
    place_BT = scored_BT.cumsum(dim=1) - 1
    firsts = [comes_back(tokens) or 0 for tokens in continuations]
    counted_BT = place_BT >= torch.tensor(firsts, device=place_BT.device)[:, None]
    log_going_on_B = (going_on_BT * counted_BT).sum(dim=1)
    return torch.log(-torch.expm1(log_going_on_B.clamp(max=-1e-20)))
