"""What a training method is: it turns (model, batch, key) into a gradient. The trainer does not know which it has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from mgs.models import searched_parameters
from mgs.search.directions import key as seed_of
from mgs.types import Batch, Direction

ATTENTION = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


class Key(NamedTuple):
    """Where in a run a batch is used: all randomness of a method comes from this. Dropout draws from torch's own
    generators, which the trainer seeds from it."""

    seed: int
    step: int
    micro: int = 0  # number of the batch within an accumulated update

    def number(self, *what: object) -> int:
        """A number below 2⁶³, for a seed."""
        return seed_of(*self, *what)

    def chance(self, what: str) -> float:
        """A number in [0, 1) for a coin."""
        return self.number(what) / 2**63


@dataclass(frozen=True)
class Outcome:
    """The gradient an optimizer is given, the loss to show, and what to log.

    `weight` is how much they count among those of other parts of the batch: the tokens or rows they are a mean over.
    """

    gradient: Direction
    loss: float
    log: dict[str, Any] = field(default_factory=dict)
    weight: float = 1.0


class Method(Protocol):
    """One signature for all methods."""

    @property
    def name(self) -> str: ...

    def __call__(self, model: nn.Module, batch: Batch, key: Key) -> Outcome: ...

    def state(self) -> dict[str, Any]:
        """What must survive a restart, as JSON."""
        ...

    def load_state(self, state: dict[str, Any]) -> None: ...


class Stateless:
    """For methods that remember nothing between batches."""

    def state(self) -> dict[str, Any]:
        return {}

    def load_state(self, state: dict[str, Any]) -> None:
        return None


def gradient_of(loss: Tensor, model: nn.Module) -> Direction:
    """∇loss for each searched parameter, in fp32; zero for those the loss does not reach."""
    parameters = searched_parameters(model)
    grads = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)
    return {
        name: torch.zeros_like(p, dtype=torch.float32) if grad is None else grad.detach().float()
        for (name, p), grad in zip(parameters.items(), grads, strict=True)
    }


def summed_gradient(
    model: nn.Module, pieces: Iterable[Sequence[int]], loss: Callable[[Sequence[int]], Tensor], bf16: bool = False
) -> tuple[Direction, float]:
    """∇ of a sum of losses, one for each piece of some rows, and the sum."""
    total: Direction = {}
    value = 0.0
    for rows in pieces:
        with autocast(model, bf16):
            part = loss(rows)
        value += part.item()
        for name, gradient in gradient_of(part, model).items():
            total[name] = total[name].add_(gradient) if name in total else gradient
    return total, value


@contextmanager
def autocast(model: nn.Module, bf16: bool) -> Iterator[None]:
    """bf16 arithmetic for a loss, where asked for. Attention is not cuDNN's, which would be chosen for it: that plans
    each new shape for longer than all else takes, and with batches by tokens nearly every shape is new."""
    if not bf16:
        yield
        return
    with torch.autocast(next(model.parameters()).device.type, dtype=torch.bfloat16), sdpa_kernel(ATTENTION):
        yield
