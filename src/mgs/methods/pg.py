"""Policy gradient (REINFORCE): ∇ = mean of (c(Ŷ) − b) ∇ log p_θ(Ŷ | X) over samples, b a moving average of costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from mgs.candidates import Task
from mgs.methods.method import Key, Outcome
from mgs.methods.sampling import draw, sample_log, scored
from mgs.ranks import ALONE, Ranks
from mgs.types import Batch


@dataclass
class PG:
    task: Task
    num_samples: int = 4
    baseline_decay: float = 0.9
    bf16: bool = False
    baseline: float | None = None  # set by the first batch
    ranks: Ranks = ALONE  # those that share a batch share its mean cost, and so the baseline
    name: str = "pg"

    def __call__(self, model: nn.Module, batch: Batch, key: Key) -> Outcome:
        samples = scored(self.task, batch, draw(self.task, model, batch, self.num_samples, key))
        parts = self.ranks.pooled(lambda: [sum(samples.costs), len(samples.costs)] if batch.is_counted else [0.0, 0])
        mean = sum(total for total, _ in parts) / sum(num for _, num in parts)
        baseline = mean if self.baseline is None else self.baseline
        gradient, _ = samples.gradient(model, lambda log_p: policy_loss(log_p, samples.costs, baseline), self.bf16)
        self.baseline = self.baseline_decay * baseline + (1 - self.baseline_decay) * mean
        log = sample_log(samples) | {"baseline": baseline}
        return Outcome(gradient, mean, log, weight=len(batch))

    def state(self) -> dict[str, Any]:
        return {"baseline": self.baseline}

    def load_state(self, state: dict[str, Any]) -> None:
        self.baseline = state["baseline"]


def policy_loss(log_likelihoods: Tensor, costs: Sequence[float], baseline: float) -> Tensor:
    """A scalar whose gradient is the policy gradient; its value means nothing."""
    return ((log_likelihoods.new_tensor(costs) - baseline) * log_likelihoods).mean()
