"""A batch cut into the rows that score candidates and the parts whose gradients they are centred at."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from torch import Tensor

from mgs.types import Batch

SPLITS = ("order", "length")
SHORT = 20  # tokens of a target: what the log calls short


def divided(batch: Batch, num_scored: int | None, apart: bool) -> tuple[Batch, Batch]:
    """The rows that score, the first `num_scored` or all, and those that give gradients: all of them, or, `apart`, the
    others, of which there is always one. (A batch of a single row does both.)"""
    num = min(len(batch), num_scored or len(batch))
    if apart:
        num = max(1, min(num, len(batch) - 1))
    scored = batch.select(range(num))
    return scored, batch.select(range(num, len(batch))) if apart and len(batch) > 1 else batch


def parts(batch: Batch, num: int, split: str = "order") -> list[Batch]:
    """The batch in `num` parts of nearly equal size (fewer if it has fewer rows), as drawn or by length of target."""
    order = list(range(len(batch)))
    if split == "length":
        order.sort(key=lambda row: len(batch.examples[row].target))
    num = min(num, len(batch))
    cuts = [round(i * len(batch) / num) for i in range(num + 1)]
    return [batch.select(order[start:end]) for start, end in pairwise(cuts)]


def described(part: Batch) -> dict[str, Any]:
    """What tells a part from the others, for the log."""
    lengths = [len(target) for target in part.targets]
    short = sum(length <= SHORT for length in lengths)
    return {"mean_target": sum(lengths) / len(lengths), "share_short": short / len(lengths)}


def alignments(gram_JJ: Tensor) -> Sequence[float | None]:
    """The cosine of each gradient with the mean of the others, from their inner products; None where there is none."""
    squares_J = gram_JJ.diagonal()
    along_J = gram_JJ.sum(dim=1) - squares_J
    others_J = gram_JJ.sum() - 2 * gram_JJ.sum(dim=1) + squares_J  # ‖Σ of the others‖²
    lengths_J = (squares_J * others_J.clamp(min=0)).sqrt()
    pairs = zip(along_J.tolist(), lengths_J.tolist(), strict=True)
    return [along / length if length > 0 else None for along, length in pairs]
