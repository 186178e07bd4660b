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
from mgs.data import token_batches
from mgs.methods.method import Key, autocast, gradient_of
from mgs.methods.mle import tokens_at_once
from mgs.models import log_likelihoods
from mgs.models.likelihood import padded_lengths
from mgs.ranks import ALONE, Ranks
from mgs.types import Batch, Direction


def decoded_gradient(
    task: Task, model: nn.Module, batch: Batch, key: Key, bf16: bool = False, ranks: Ranks = ALONE
) -> tuple[Direction, float]:
    """−g, and the mean cost of what was decoded. Costs are compared with those of all ranks' rows."""
    hypotheses = task.decode(model, batch, key)
    costs = task.costs(hypotheses, batch)
    everyone = [cost for told in ranks.pooled(lambda: costs if batch.counts else []) for cost in told]
    decoded = [hypothesis.token_ids for hypothesis in hypotheses]
    shares = [z / len(tokens) / len(batch) for z, tokens in zip(standardised(costs, everyone), decoded, strict=True)]
    lengths = padded_lengths(model, batch.prefixes, decoded)
    total: Direction = {}
    for rows in token_batches(lengths, tokens_at_once(model), sorted(range(len(batch)), key=lengths.__getitem__)):
        with autocast(model, bf16):
            log_p = log_likelihoods(model, [batch.prefixes[r] for r in rows], [decoded[r] for r in rows])
        part = -(log_p * log_p.new_tensor([shares[r] for r in rows])).sum()
        for name, gradient in gradient_of(part, model).items():
            total[name] = total[name].add_(gradient) if name in total else gradient
    return total, math.fsum(costs) / len(costs)


def standardised(costs: Sequence[float], everyone: Sequence[float]) -> list[float]:
    """How far each cost is below the mean, in standard deviations; zeros where all are alike.

    >>> standardised([1.0, 4.0], [1.0, 4.0, 4.0, 7.0])
    [1.414..., 0.0]
    """
    mean = math.fsum(everyone) / len(everyone)
    deviation = math.sqrt(math.fsum((cost - mean) ** 2 for cost in everyone) / len(everyone))
    return [(mean - cost) / deviation if deviation > 0 else 0.0 for cost in costs]
