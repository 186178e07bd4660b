"""A guide of parameter search: towards what the decoder makes of some prefixes, away from what it makes of others.

    g = mean of z ∇ (1/|Ŷ|) log p_θ(Ŷ | X),    z = (c̄ − c(Ŷ)) / sd(c)

Ŷ is what the task's own decoder decodes with θ, so where greedy search repeats itself this says what to unlearn, which
no target does. It is no gradient of the decoded cost, which has none: candidates along it are
decoded and scored like all others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import nn

from mgs.candidates import Task
from mgs.methods.weighted import weighted_gradient
from mgs.ranks import ALONE, Ranks
from mgs.types import Batch, Direction, Text


def decoded_gradient(
    task: Task, model: nn.Module, batch: Batch, hypotheses: Sequence[Text], bf16: bool = False, ranks: Ranks = ALONE
) -> tuple[Direction, float]:
    """−g, and the mean cost of what was decoded. Costs are compared with those of all ranks' rows."""
    costs = task.costs(hypotheses, batch)
    everyone = [cost for told in ranks.pooled(lambda: costs if batch.is_counted else []) for cost in told]
    decoded = [hypothesis.token_ids for hypothesis in hypotheses]
    pairs = zip(standardised(costs, everyone), decoded, strict=True)
    weights = [-z / len(tokens) / len(batch) for z, tokens in pairs]
    gradient, _ = weighted_gradient(model, batch.prefixes, decoded, weights, bf16)
    return gradient, math.fsum(costs) / len(costs)


def standardised(costs: Sequence[float], everyone: Sequence[float]) -> list[float]:
    """How far each cost is below the mean, in standard deviations; zeros where all are alike.

    >>> standardised([1.0, 4.0], [1.0, 4.0, 4.0, 7.0])
    [1.414..., 0.0]
    """
    mean = math.fsum(everyone) / len(everyone)
    deviation = math.sqrt(math.fsum((cost - mean) ** 2 for cost in everyone) / len(everyone))
    return [(mean - cost) / deviation if deviation > 0 else 0.0 for cost in costs]
