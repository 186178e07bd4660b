"""A candidate model θ + Δ, for as long as a block lasts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from torch import Tensor, nn


@contextmanager
def perturbed(model: nn.Module, direction: Mapping[str, Tensor]) -> Iterator[nn.Module]:
    """The model with Δ added to the named parameters: one candidate by itself, the reference for many at once.

    The parameters are pointed at new memory and pointed back, so θ is bit-identical after the block. (Adding Δ and
    taking it away would not be.) They stay the same objects: a model may keep them where no swap would find them.
    """
    parameters = dict(model.named_parameters())
    originals = {name: parameters[name].data for name in direction}
    try:
        for name, delta in direction.items():
            parameters[name].data = originals[name] + delta.to(originals[name].dtype)
        yield model
    finally:
        for name, original in originals.items():
            parameters[name].data = original
