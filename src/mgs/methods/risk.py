"""The other guide of parameter search: the gradient of the expected cost, from samples.

    ∇ E[c(Ŷ)] ≈ mean of (c(Ŷ) − c̄(X)) ∇ log p_θ(Ŷ | X)

c̄(X) is the mean cost of the same row's samples: a row that every sample finds hard says nothing about θ.
"""

from __future__ import annotations

import torch
from torch import nn

from mgs.candidates import Task
from mgs.methods.method import Key, gradient_of
from mgs.methods.sampling import Samples, draw, scored
from mgs.types import Batch, Direction


def risk_gradient(
    task: Task, model: nn.Module, batch: Batch, num_samples: int, key: Key, bf16: bool = False
) -> tuple[Direction, float]:
    """∇ of the expected cost, and the mean cost of the samples."""
    samples = scored(task, model, batch, draw(task, model, batch, num_samples, key), bf16)
    advantages = torch.tensor(row_advantages(samples, num_samples), device=samples.log_likelihoods.device)
    loss = (advantages.to(samples.log_likelihoods.dtype) * samples.log_likelihoods).mean()
    return gradient_of(loss, model), sum(samples.costs) / len(samples.costs)


def row_advantages(samples: Samples, num_samples: int) -> list[float]:
    """Each sample's cost less the mean of its row's."""
    costs = samples.costs
    rows = [costs[start : start + num_samples] for start in range(0, len(costs), num_samples)]
    return [cost - sum(row) / len(row) for row in rows for cost in row]
