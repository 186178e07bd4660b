"""What an update's time consists of, and what that makes of more GPUs and larger models.

Candidates are dealt to N processes. Each computes the same gradient, decodes K / N candidates, tells the others K / N
costs, draws all K directions again from their seeds and forms the same update:

    time = gradient + K/N · (draw + decode) + exchange + K · again

`again` is drawing a direction for its density and for the sum. It does not get less with more processes, so it sets how
many are worth having: about (draw + decode) / again for each doubling of nothing but waiting.
"""

from __future__ import annotations

import math
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
    """Seconds of the gradient; and of a candidate of full rank and of rank 1, drawing it, and drawing it again for the
    update. Decoding is measured elsewhere."""
    gradients, _ = method._gradients(model, batch)
    out = {"gradient": time(lambda step: method._gradients(model, batch))}
    for rank, num in PARTS_CANDIDATES.items():
        proposal = Proposal(ProposalForm(rank=rank), gradients, num, 0, 0)
        costs = [float(k) for k in range(num)]
        name = "dense" if rank is None else f"rank_{rank}"
        out[f"{name}_again"] = time(lambda step: mgs_update(proposal, costs, Temperature(1.0))) / num  # noqa: B023
        if rank is None:
            out[f"{name}_draw"] = time(lambda step: proposal.flat(0))  # noqa: B023
    return out


@dataclass(frozen=True)
class Machine:
    """What one GPU was measured to do, and on how large a model."""

    parameters: float
    gradient: float
    draw: float
    again: float
    thin_again: float
    decode: float  # of a dense candidate among several: the step's share times the tokens
    thin_decode: float  # of a candidate of rank 1 among hundreds

    @classmethod
    def of(cls, result: Mapping[str, Any]) -> Machine:
        """From what `mgs bench --json` wrote for a model."""
        parts, update, settings = result["parts"], result["update"], result["settings"]
        many = [row for row in result["many"] if "decode" in row]
        if not many:
            raise ValueError("the benchmark compared no number of candidates with inference")
        most = max(many, key=lambda row: row["candidates"])
        return cls(
            parameters=result["parameters"],
            gradient=parts["gradient"],
            draw=parts["dense_draw"],
            again=parts["dense_again"],
            thin_again=parts["rank_1_again"],
            decode=update["step"] * settings["new_tokens"] / (settings["candidates"] + 1),
            thin_decode=most["decode"] / most["candidates"],
        )

    def predict(self, processes: int, candidates: int, parameters: float, thin: bool) -> dict[str, float]:
        """Seconds of each part of an update. All but the exchange grow with the model."""
        scale = parameters / self.parameters
        mine = math.ceil(candidates / processes)
        return {
            "gradient": scale * self.gradient,
            "decode": scale * mine * (self.thin_decode if thin else self.decode + self.draw),
            "again": scale * candidates * (self.thin_again if thin else self.again),
            "exchange": ROUND_TRIP * math.log2(processes) if processes > 1 else 0.0,
        }
