"""Policy gradient (REINFORCE): ∇ = mean of (c(Ŷ) − b) ∇ log p_θ(Ŷ | X) over samples, b a moving average of costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from mgs.candidates import Task
from mgs.methods.method import Key, Outcome, gradient_of
from mgs.methods.sampling import Samples, draw, sample_log, scored
from mgs.types import Batch


@dataclass
class PG:
    task: Task
    num_samples: int = 4
    baseline_decay: float = 0.9
    bf16: bool = False
    baseline: float | None = None  # set by the first batch
    name: str = "pg"

    def __call__(self, model: nn.Module, batch: Batch, key: Key) -> Outcome:
        samples = scored(self.task, model, batch, draw(self.task, model, batch, self.num_samples, key), self.bf16)
        mean = sum(samples.costs) / len(samples.costs)
        baseline = mean if self.baseline is None else self.baseline
        loss = policy_loss(samples, baseline)
        self.baseline = self.baseline_decay * baseline + (1 - self.baseline_decay) * mean
        return Outcome(gradient_of(loss, model), mean, sample_log(samples) | {"baseline": baseline})

    def state(self) -> dict[str, Any]:
        return {"baseline": self.baseline}

    def load_state(self, state: dict[str, Any]) -> None:
        self.baseline = state["baseline"]


def policy_loss(samples: Samples, baseline: float) -> Tensor:
    """A scalar whose gradient is the policy gradient; its value means nothing."""
    likelihoods = samples.log_likelihoods
    advantages = torch.tensor(samples.costs, device=likelihoods.device, dtype=likelihoods.dtype) - baseline
    return (advantages * likelihoods).mean()
