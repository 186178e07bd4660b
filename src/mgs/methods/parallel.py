"""A method over batches whose rows are dealt to the processes of a run: the mean of what they make of their shares."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from mgs.methods.method import Key, Method, Outcome
from mgs.ranks import Ranks
from mgs.types import Batch, Direction


@dataclass
class DataParallel:
    """Any method whose gradient is a mean over rows or tokens. Without dropout it is the one process's, but for
    rounding; masks of dropout are each process's own."""

    method: Method
    ranks: Ranks

    @property
    def name(self) -> str:
        return self.method.name

    def __call__(self, model: nn.Module, batch: Batch, key: Key) -> Outcome:
        mine = batch.share(self.ranks.share(len(batch)))
        torch.manual_seed(key.number("share", self.ranks.rank))
        return averaged(self.ranks, mine, lambda: self.method(model, mine, key))

    def state(self) -> dict[str, Any]:
        return self.method.state()

    def load_state(self, state: dict[str, Any]) -> None:
        self.method.load_state(state)


def averaged(ranks: Ranks, share: Batch, compute: Callable[[], Outcome]) -> Outcome:
    """The mean of all ranks' outcomes by their weights, that of a share that does not count left out."""
    if ranks.size == 1:
        return compute()
    gradient: Direction = {}

    def facts() -> dict[str, Any]:
        nonlocal gradient
        outcome = compute()
        gradient = outcome.gradient
        return {"weight": outcome.weight if share.is_counted else 0.0, "loss": outcome.loss, "log": outcome.log}

    told = ranks.pooled(facts)
    total = math.fsum(each["weight"] for each in told)
    part = told[ranks.rank]["weight"] / total
    scaled = [tensor * part if part else torch.zeros_like(tensor) for tensor in gradient.values()]
    ranks.add_up(scaled)
    counted = [each for each in told if each["weight"]]
    weights = [each["weight"] / total for each in counted]
    log = {name: _merged([each["log"][name] for each in counted], weights) for name in counted[0]["log"]}
    return Outcome(dict(zip(gradient, scaled, strict=True)), _merged([e["loss"] for e in counted], weights), log, total)


def _merged(values: list[Any], weights: list[float]) -> Any:
    """One entry of the log out of many: lists end to end, counts added up, numbers averaged."""
    if isinstance(values[0], list):
        return [item for each in values for item in each]
    if isinstance(values[0], float):
        return math.fsum(weight * value for weight, value in zip(weights, values, strict=True))
    return sum(values) if isinstance(values[0], int) else values[0]
