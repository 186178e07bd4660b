"""A candidate model θ + Δ, for as long as a block lasts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from torch import Tensor, nn

from mgs.candidates.swap import swapped


@contextmanager
def perturbed(model: nn.Module, direction: Mapping[str, Tensor]) -> Iterator[nn.Module]:
    """The model with Δ added to the named parameters: one candidate by itself, the reference for many at once.

    θ is put aside and put back, so it is bit-identical after the block. (Adding Δ and taking it away would not be.)
    """
    parameters = dict(model.named_parameters())
    moved = {name: (parameters[name].detach() + delta.to(parameters[name].dtype)) for name, delta in direction.items()}
    with swapped(model, moved):
        yield model
