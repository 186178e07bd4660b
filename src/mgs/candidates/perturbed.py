"""A candidate model θ + Δ, for as long as a block lasts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from torch import Tensor, nn


@contextmanager
def perturbed(model: nn.Module, direction: Mapping[str, Tensor]) -> Iterator[nn.Module]:
    """The model with Δ added to the named parameters.

    The parameters are pointed at new memory and pointed back: θ itself is never written, so it is bit-identical after
    the block, also when the block raises. (Adding Δ and taking it away again would not be.)
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
