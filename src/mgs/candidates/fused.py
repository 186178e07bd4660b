"""What a model writes out operation by operation, run as one kernel while candidates are decoded on a GPU.

A step of decoding is hundreds of small kernels, and each costs more in being started than in running. Norms,
activations and rotary positions are replaced only where the replacement, tried first, gives the same.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mgs.candidates.stand_in import normalised

TOLERANCE = 1e-4
ROTARY = "apply_rotary_pos_emb"  # the library's name for it, in the module of every model that has one
_TRIED: dict[Any, bool] = {}


@contextmanager
def fused(model: nn.Module) -> Iterator[None]:
    """The model with faster parts, for as long as the block lasts."""
    modules = {module: forward for module in model.modules() if (forward := _replacement(module)) is not None}
    functions = {source: _rotary(getattr(source, ROTARY)) for source in _sources(model)}
    originals = {source: getattr(source, ROTARY) for source in functions}
    try:
        for module, forward in modules.items():
            module.forward = forward
        for source, function in functions.items():
            setattr(source, ROTARY, function)
        yield
    finally:
        for module in modules:
            del module.forward
        for source, original in originals.items():
            setattr(source, ROTARY, original)


def _replacement(module: nn.Module) -> Callable[[Tensor], Tensor] | None:
    name = type(module).__name__
    if "forward" in module.__dict__:  # someone else has replaced it
        return None
    if name == "NewGELUActivation":
        return lambda x: F.gelu(x, approximate="tanh")
    eps = getattr(module, "variance_epsilon", None)
    weight = module._parameters.get("weight")
    if not name.endswith("RMSNorm") or eps is None or weight is None or weight.ndim != 1:
        return None

    def forward(x: Tensor) -> Tensor:
        return normalised(x, module.weight, None, eps, centred=False)  # type: ignore[arg-type]

    if type(module) not in _TRIED:
        x = torch.linspace(-2, 3, 3 * len(weight), device=weight.device).view(3, len(weight)).to(weight.dtype)
        _TRIED[type(module)] = _close(module(x), forward(x))
    return forward if _TRIED[type(module)] else None


def _sources(model: nn.Module) -> list[ModuleType]:
    """The library's modules that this model's layers come from and that have rotary positions like everyone's."""
    names = {type(module).__module__ for module in model.modules()}
    return [sys.modules[name] for name in sorted(names) if _usual(getattr(sys.modules[name], ROTARY, None), model)]


def _usual(function: Callable[..., Any] | None, model: nn.Module) -> bool:
    if function is None:
        return False
    if function not in _TRIED:
        device = next(model.parameters()).device
        q, k = torch.randn(3, 4, 1, 16, device=device), torch.randn(3, 2, 1, 16, device=device)
        cos, sin = torch.rand(3, 1, 16, device=device), torch.rand(3, 1, 16, device=device)
        try:
            wanted, found = function(q, k, cos, sin), _rotary(function)(q, k, cos, sin)
            _TRIED[function] = all(map(_close, wanted, found))
        except (TypeError, ValueError, RuntimeError):
            _TRIED[function] = False
    return _TRIED[function]


def _rotary(original: Callable[..., Any]) -> Callable[..., Any]:
    from mgs.kernels.rotary import rotate

    def function(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, *args: Any, **kwargs: Any) -> Any:
        usual = q.shape[2] == 1 and not args and not kwargs and cos.shape[-1] == q.shape[-1]
        if usual and q.stride(-1) == k.stride(-1) == 1 and q.dtype == cos.dtype:
            return rotate(q, k, cos, sin)
        return original(q, k, cos, sin, *args, **kwargs)

    return function


def _close(a: Tensor, b: Tensor) -> bool:
    return torch.allclose(a, b, rtol=TOLERANCE, atol=TOLERANCE)
