"""Modules without weights of their own worth mention, run as one kernel instead of a handful.

A step of decoding is hundreds of small kernels, and each costs more in being started than in running. Norms and
activations that a model writes out operation by operation are replaced by one kernel each while candidates are decoded
on a GPU: only where the replacement, tried on the module itself, gives the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mgs.candidates.swap import normalised

TOLERANCE = 1e-4
Forward = Callable[[Tensor], Tensor]


@contextmanager
def fused(model: nn.Module) -> Iterator[None]:
    """The model with these modules' forward passes replaced, for as long as the block lasts."""
    replaced = {module: forward for module in model.modules() if (forward := _replacement(module)) is not None}
    try:
        for module, forward in replaced.items():
            module.forward = forward  # type: ignore[method-assign]
        yield
    finally:
        for module in replaced:
            del module.forward


def _replacement(module: nn.Module) -> Forward | None:
    name = type(module).__name__
    if "forward" in module.__dict__:  # someone else has replaced it
        return None
    if name == "NewGELUActivation":
        return lambda x: F.gelu(x, approximate="tanh")
    eps = getattr(module, "variance_epsilon", None)
    weight = module._parameters.get("weight")
    if name.endswith("RMSNorm") and eps is not None and weight is not None and weight.ndim == 1:

        def forward(x: Tensor) -> Tensor:
            return normalised(x, module.weight, None, eps, centred=False)  # type: ignore[arg-type]

        return forward if _same(module, forward, weight) else None
    return None


_TRIED: dict[type, bool] = {}


@torch.no_grad()
def _same(module: nn.Module, forward: Forward, weight: Tensor) -> bool:
    """Tried once for each class of module."""
    if type(module) not in _TRIED:
        x = torch.linspace(-2, 3, 3 * len(weight), device=weight.device).view(3, len(weight)).to(weight.dtype)
        _TRIED[type(module)] = torch.allclose(module(x), forward(x), rtol=TOLERANCE, atol=TOLERANCE)
    return _TRIED[type(module)]
