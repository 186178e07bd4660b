"""What an update's time consists of, and what that makes of more GPUs and larger models.

Candidates are dealt to N processes. Each computes the same gradient, draws, decodes and scores K / N candidates, tells
the others their costs, draws all K directions again from their seeds and forms the same update:

    time = start + gradient + ⌈K/N⌉ · dealt + K · again + exchange

`start`, what a decoding of however few candidates takes, and `again`, drawing a direction for its density and for the
sum, do not get less with more processes.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from mgs.methods.mgs import MGS
from mgs.search import Proposal, ProposalForm, Temperature, mgs_update
from mgs.types import Batch

ROUND_TRIP = 5e-5  # seconds of a small exchange between processes, for each doubling of their number
PARTS_CANDIDATES = {None: 4, 1: 64}  # rank → candidates that parts are measured with

Timer = Callable[[Callable[[int], Any]], float]


def measure_parts(model: nn.Module, batch: Batch, method: MGS, time: Timer) -> dict[str, float]:
    """Seconds of what every process does: the gradient, and drawing a candidate, of full rank and of rank 1, again."""
    gradients, _ = method.centres(model, batch)
    out = {"gradient": time(lambda step: method.centres(model, batch))}
    for rank, num in PARTS_CANDIDATES.items():
        proposal = Proposal(ProposalForm(rank=rank), gradients, num, 0, 0)
        costs = [float(k) for k in range(num)]
        name = "dense" if rank is None else f"rank_{rank}"
        out[f"{name}_again"] = time(lambda step: mgs_update(proposal, costs, Temperature(1.0))) / num  # noqa: B023
    return out


@dataclass(frozen=True)
class Machine:
    """What one GPU was measured to do, in seconds, and on how large a model."""

    parameters: float
    gradient: float
    dealt: float  # drawing, decoding and scoring a candidate of full rank, ...
    again: float
    thin_dealt: float  # ... and of rank 1, among hundreds
    thin_again: float
    thin_start: float  # of low rank; at full rank, weights that are read decide from the first candidate on

    @classmethod
    def of(cls, result: Mapping[str, Any]) -> Machine:
        """From what `mgs bench --json` wrote for a model: whole updates, less the parts that are not dealt."""
        parts, update = result["parts"], result["update"]
        few, many = result["settings"]["candidates"], result["many"]
        gradient, again, thin_again = parts["gradient"], parts["dense_again"], parts["rank_1_again"]
        numbers, rest = zip(*((m["candidates"], m["update"] - gradient) for m in many), strict=True)
        each, start = statistics.linear_regression(numbers, rest)
        return cls(
            parameters=result["parameters"],
            gradient=gradient,
            dealt=(update["ours"] - gradient) / few - again,
            again=again,
            thin_dealt=each - thin_again,
            thin_again=thin_again,
            thin_start=max(0.0, start),
        )

    def predict(self, processes: int, candidates: int, parameters: float, thin: bool) -> dict[str, float]:
        """Seconds of each part of an update. All but the start and the exchange, which are waits, grow with the
        model."""
        scale = parameters / self.parameters
        dealt, again = (self.thin_dealt, self.thin_again) if thin else (self.dealt, self.again)
        return {
            "start": self.thin_start if thin else 0.0,
            "gradient": scale * self.gradient,
            "dealt": scale * math.ceil(candidates / processes) * dealt,
            "again": scale * candidates * again,
            "exchange": ROUND_TRIP * math.log2(processes) if processes > 1 else 0.0,
        }
