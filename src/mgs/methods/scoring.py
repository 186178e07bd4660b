"""How candidates are scored: by which processes, on which rows, and which of them are out of the question."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from mgs.candidates.forms import Number
from mgs.ranks import ALONE, Ranks
from mgs.types import Batch

#: What a function finds for each of these candidates on these rows, a mean over them.
Means = Callable[[Sequence[Number], Batch], list[float]]


@dataclass(frozen=True)
class Dealt:
    """Means over rows, for each candidate, found by the processes of a run together and the same on all of them: each
    takes some candidates, `unit` of them that must not be parted, or, with `by_rows`, some of the rows."""

    ranks: Ranks = ALONE
    by_rows: bool = False

    def means(
        self,
        compute: Means,
        numbers: Sequence[Number],
        batch: Batch,
        weight: Callable[[Batch], float] = len,
        unit: int = 1,
    ) -> list[float]:
        if not self.by_rows:
            starts = range(0, len(numbers), unit)
            own = [n for i in self.ranks.share(len(starts)) for n in numbers[starts[i] : starts[i] + unit]]
            return [value for each in self.ranks.pooled(lambda: compute(own, batch)) for value in each]
        rows = batch.share(self.ranks.share(len(batch)))
        told = self.ranks.pooled(lambda: compute(numbers, rows) if rows.is_counted else [])
        shares = [weight(batch.select(own)) / weight(batch) for own in self.ranks.shares(len(batch))]
        counted = [(share, values) for share, values in zip(shares, told, strict=True) if share]
        return [math.fsum(share * values[k] for share, values in counted) for k in range(len(numbers))]


@dataclass(frozen=True)
class Scores:
    """Each candidate's mean cost over the rows it was scored on, and how many those are; `base` is of θ."""

    costs: list[float | None]  # None: on none
    rows: list[int]
    base: float | None

    @property
    def finalists(self) -> list[int]:
        """Candidates that were scored on all rows."""
        return [k for k, rows in enumerate(self.rows) if rows and rows == max(self.rows)]

    @property
    def best(self) -> float:
        """The lowest cost of a finalist, or, if there is none, θ's."""
        costs = [cost for k in self.finalists if (cost := self.costs[k]) is not None]
        return min(costs) if costs or self.base is None else self.base

    @property
    def shown(self) -> float:
        """The cost that stands for the update: that of θ, if it is known."""
        return self.best if self.base is None else self.base

    def log(self) -> dict[str, Any]:
        return {"scored_rows": self.rows} if len(set(self.rows)) > 1 else {}


def scores(
    compute: Means,
    num: int,
    batch: Batch,
    halvings: int = 0,
    out: Collection[int] = (),
    stay: bool = False,
    with_base: bool = False,
) -> Scores:
    """The costs of `num` candidates, by successive halving: after each block of rows but the last the worse half, by
    mean cost so far, is scored no further. Those that are `out` are not scored at all, and if all are, θ is, so that
    there is a cost to show. Staying stays in."""
    left = [k for k in range(num) if k not in out]
    with_base = with_base or not left
    told: dict[Number, list[tuple[int, float]]] = {k: [] for k in range(num)} | ({None: []} if with_base else {})
    rounds = blocks(batch, halvings)
    for i, block in enumerate(rounds):
        numbers = [*left, *([None] if with_base else [])]
        for number, cost in zip(numbers, compute(numbers, block), strict=True):
            told[number].append((len(block), cost))
        if i < len(rounds) - 1:
            left = better_half({k: _mean(told[k]) for k in left}, stay)
    costs = {number: _mean(values) if values else None for number, values in told.items()}
    rows = [sum(num_rows for num_rows, _ in told[k]) for k in range(num)]
    return Scores([costs[k] for k in range(num)], rows, costs.get(None))


def better_half(costs: dict[int, float], stay: bool) -> list[int]:
    """The half of lower cost, the greater one where there are two, in order; ties go to the lower number."""
    ranking = sorted(costs, key=lambda k: (costs[k], k))
    kept = ranking[: (len(ranking) + 1) // 2]
    return sorted({*kept, 0} if stay and 0 in costs else kept)


def blocks(batch: Batch, halvings: int) -> list[Batch]:
    """The rows in rounds that cost about the same when each has half the candidates of the one before: n/2ᴿ, n/2ᴿ,
    n/2ᴿ⁻¹, …, n/2 of them; fewer rounds where there are too few rows. Rows keep their numbers, and so their noise.

    >>> [len(block) for block in blocks(Batch([None] * 48), 2)]
    [12, 12, 24]
    """
    if not halvings:
        return [batch]
    num = len(batch)
    ends = sorted({max(1, round(num / 2**i)) for i in range(halvings + 1)})
    return [batch.share(range(start, end)) for start, end in pairwise([0, *ends])]


def _mean(values: list[tuple[int, float]]) -> float:
    total = sum(num for num, _ in values)
    return math.fsum(num / total * value for num, value in values)
