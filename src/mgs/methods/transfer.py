"""Whether what a batch says about candidates holds on other prefixes: the correlation of their costs on both."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from mgs.search import Update

FEWEST = 3  # candidates: of two the correlation is always 1 or −1


def transfer_log(update: Update, costs: Sequence[float | None], fresh: Mapping[int, float]) -> dict:
    """Of all candidates that have `fresh` costs, and of each kind of them: those around zero, and those along gradients
    at each length. (That of changes of cost is that of costs: C(θ) is the same for all.)"""

    def correlation(numbers: Sequence[int]) -> float | None:
        pairs = [(cost, fresh[k]) for k in numbers if (cost := costs[k]) is not None]
        return pearson([cost for cost, _ in pairs], [other for _, other in pairs])

    kinds: dict[str, list[int]] = {}
    for k in fresh:
        along = update.gradients[k] is not None
        kinds.setdefault(f"gradient s={update.lengths[k]:g}" if along else update.components[k], []).append(k)
    log: dict[str, Any] = {"transfer": correlation([*fresh]), "probe_costs": [fresh.get(k) for k in range(len(costs))]}
    return log | {"transfer_by": {kind: correlation(of) for kind, of in kinds.items() if len(of) >= FEWEST}}


def pearson(xs: Sequence[float], ys: Sequence[float]) -> float | None:
    """None where there are too few values, or all are alike.

    >>> pearson([0.0, 1.0, 2.0], [5.0, 3.0, 1.0])
    -1.0
    """
    if len(xs) < FEWEST:
        return None
    mean_x, mean_y = math.fsum(xs) / len(xs), math.fsum(ys) / len(ys)
    dx, dy = [x - mean_x for x in xs], [y - mean_y for y in ys]
    size = math.sqrt(math.fsum(x * x for x in dx) * math.fsum(y * y for y in dy))
    return math.fsum(x * y for x, y in zip(dx, dy, strict=True)) / size if size > 0 else None
