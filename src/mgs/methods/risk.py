"""A guide of parameter search: the gradient of the expected cost, from samples.

    ∇ E[c(Ŷ)] ≈ mean of (c(Ŷ) − c̄(X)) ∇ log p_θ(Ŷ | X)

c̄(X) is the mean cost of the same row's samples: a row that every sample finds hard says nothing about θ.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from mgs.candidates import Task
from mgs.methods.method import Key
from mgs.methods.sampling import draw
from mgs.methods.weighted import weighted_gradient
from mgs.types import Batch, Direction


def risk_gradient(
    task: Task, model: nn.Module, batch: Batch, num_samples: int, key: Key, bf16: bool = False
) -> tuple[Direction, float]:
    """∇ of the expected cost, and the mean cost of the samples."""
    samples = [sample for row in draw(task, model, batch, num_samples, key) for sample in row]
    repeated = batch.select([row for row in range(len(batch)) for _ in range(num_samples)])
    costs = task.costs(samples, repeated)
    weights = [advantage / len(costs) for advantage in row_advantages(costs, num_samples)]
    decoded = [sample.token_ids for sample in samples]
    gradient, _ = weighted_gradient(model, repeated.prefixes, decoded, weights, bf16)
    return gradient, sum(costs) / len(costs)


def row_advantages(costs: Sequence[float], num_samples: int) -> list[float]:
    """Each sample's cost less the mean of its row's.

    >>> row_advantages([1.0, 3.0, 10.0, 10.0], 2)
    [-1.0, 1.0, 0.0, 0.0]
    """
    rows = [costs[start : start + num_samples] for start in range(0, len(costs), num_samples)]
    return [cost - sum(row) / len(row) for row in rows for cost in row]
