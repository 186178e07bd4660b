"""A guide followed step by step, held to what the model said before.

    minimise  KL(p_start ‖ p_θ) + λ L_guide(θ)      by a few small steps of Adam

One step along a gradient, however short, changes much that the guide does not ask for. A walk takes that back on its
way: the divergence is of the start's predictions over the batch's targets, so all tokens the start deemed likely hold
it, not only those that happen to be in the batch. Where it ends, less θ, is a centre for candidates, as a gradient is.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, islice, repeat

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mgs.methods.method import Outcome
from mgs.methods.weighted import Rows, weighted_gradient
from mgs.models import searched_parameters
from mgs.models.likelihood import evaluating, scored_logits
from mgs.search.directions import clipped
from mgs.types import Batch, Direction

BETAS = 0.9, 0.98  # of Adam: walks are short
MAX_NORM = 1.0  # of a step's gradient
#: A loss over these rows of a batch, with its gradient.
Loss = Callable[[Sequence[int]], Outcome]


@dataclass(frozen=True)
class Walk:
    """So many `steps` of Adam at this `rate`, each on so many `rows` of what holds and of what leads; λ is `weight`."""

    steps: int
    rate: float = 1e-4
    weight: float = 0.03
    rows: int = 32

    def __call__(
        self, model: nn.Module, hold: Loss, lead: Loss, num_rows: tuple[int, int], seed: int
    ) -> tuple[Direction, float, float]:
        """Where the walk ends, less θ, and what both losses were at its last step. Each loss has so many rows, which
        steps take in turns. The model is left as it was."""
        chances = random.Random(seed)
        holding, leading = (turns_of(num, self.rows, chances) for num in num_rows)
        parameters = searched_parameters(model)
        held = led = Outcome({}, 0.0)
        with evaluating(model), restored(parameters) as start:
            optimizer = torch.optim.Adam(list(parameters.values()), lr=self.rate, betas=BETAS)
            for step in range(self.steps):
                held, led = hold(next(holding)), lead(next(leading))
                total = {name: held.gradient[name] + self.weight * led.gradient[name] for name in held.gradient}
                for name, gradient in clipped(total, MAX_NORM).items():
                    parameters[name].grad = gradient.to(parameters[name].dtype)
                for group in optimizer.param_groups:
                    group["lr"] = self.rate * pace(step, self.steps)
                optimizer.step()
            ended = {name: parameter.detach().float() - start[name] for name, parameter in parameters.items()}
        return ended, held.loss, led.loss


def pace(step: int, steps: int) -> float:
    """Adam knows little at first, and a walk should end at rest: up for a quarter, and down from the half.

    >>> [pace(step, 8) for step in range(8)]
    [0.5, 1.0, 1.0, 1.0, 1.0, 0.75, 0.5, 0.25]
    """
    return min(1.0, 4 * (step + 1) / steps, 2 * (steps - step) / steps)


def turns_of(num: int, rows: int, chances: random.Random) -> Iterator[list[int]]:
    """`rows` of `num` at a time, or all: again and again through them, each time in an order of its own."""
    order = chain.from_iterable(chances.sample(range(num), num) for _ in repeat(None))
    while True:
        yield list(islice(order, min(rows, num)))


@contextmanager
def restored(parameters: Mapping[str, Tensor]) -> Iterator[Direction]:
    """What is inside may change parameters and their gradients; afterwards they are what they were, which it is given.
    They stay in their place in memory, where others may look for them."""
    start = {name: parameter.detach().clone() for name, parameter in parameters.items()}
    gradients = {name: parameter.grad for name, parameter in parameters.items()}
    try:
        yield start
    finally:
        with torch.no_grad():
            for name, parameter in parameters.items():
                parameter.copy_(start[name])
                parameter.grad = gradients[name]


def same_weights(model: nn.Module, other: nn.Module) -> bool:
    """Whether what is searched is the same in both."""
    theirs = dict(other.named_parameters())
    return all(torch.equal(parameter, theirs[name]) for name, parameter in searched_parameters(model).items())


def divergence_gradient(
    model: nn.Module, anchor: nn.Module, batch: Batch, bf16: bool = False
) -> tuple[Direction, float]:
    """∇ of KL(p_anchor ‖ p_θ), a mean over the places of the targets, and what it is."""

    def divergences(model: nn.Module, prefixes: Rows, targets: Rows) -> Tensor:
        logits_NV, _, scored_BT = scored_logits(model, prefixes, targets)
        with torch.no_grad():
            before_NV = scored_logits(anchor, prefixes, targets)[0].float().log_softmax(dim=-1)
        now_NV = logits_NV.float().log_softmax(dim=-1)
        each_N = F.kl_div(now_NV, before_NV, log_target=True, reduction="none").sum(dim=-1)
        return each_N.new_zeros(scored_BT.shape).masked_scatter(scored_BT, each_N).sum(dim=1)

    weights = [1 / sum(map(len, batch.targets))] * len(batch)
    return weighted_gradient(model, batch.prefixes, batch.targets, weights, bf16, divergences)
