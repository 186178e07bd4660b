"""A method mixed with MLE by a coin for each batch.

`mle_share` is the probability of MLE, as in the paper's rows "(+MLE 0.1)"; its sentence on the coin reads the other
way.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from mgs.methods.method import Key, Method, Outcome
from mgs.methods.mle import MLE
from mgs.types import Batch


@dataclass
class Mixed:
    method: Method
    mle: MLE
    mle_share: float

    @property
    def name(self) -> str:
        return self.method.name

    def __call__(self, model: nn.Module, batch: Batch, key: Key) -> Outcome:
        if key.chance("mix") < self.mle_share:
            outcome = self.mle(model, batch, key)
            return replace(outcome, log={"chose_mle": 1.0, "mle_loss": outcome.loss})
        outcome = self.method(model, batch, key)
        return replace(outcome, log=outcome.log | {"chose_mle": 0.0})

    def state(self) -> dict[str, Any]:
        return self.method.state()

    def load_state(self, state: dict[str, Any]) -> None:
        self.method.load_state(state)
