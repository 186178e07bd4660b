"""Swapping a model's parameters for ones that differ from row to row, so that one batch holds many candidates.

Everything between a transformer's parameters treats rows independently. So each searched parameter is replaced, for as
long as a block lasts, by a stand-in that knows what is done with a parameter: F.linear multiplies every row with its
own candidate's matrix, F.embedding looks up in it, and so on. The model's code runs as it is, with any decoder. The
stand-ins answer to functions, not to classes of modules, so it does not matter which module calls them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._pytree import tree_map
from transformers import PreTrainedModel

from mgs import kernels
from mgs.candidates.groups import Groups, NotByRows
from mgs.candidates.values import Stack, Values


@contextmanager
def swapped(model: nn.Module, stand_ins: Mapping[str, Tensor]) -> Iterator[nn.Module]:
    """The model with these tensors in place of its parameters, wherever they are used (tied ones everywhere).

    The parameters themselves are put aside and put back: they are never written, also when the block raises.
    """
    parameters = dict(model.named_parameters())
    new = {id(parameters[name]): tensor for name, tensor in stand_ins.items()}
    places = [
        (module._parameters, name, parameter)
        for module in model.modules()
        for name, parameter in module._parameters.items()
        if id(parameter) in new
    ]
    try:
        for owner, name, parameter in places:
            owner[name] = new[id(parameter)]  # type: ignore[assignment]
        yield model
    finally:
        for owner, name, parameter in places:
            owner[name] = parameter


@contextmanager
def watched(model: nn.Module, groups: Groups) -> Iterator[None]:
    """Tells `groups` how many rows each pass has: an encoder and a decoder with beams differ."""

    def note(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        for tensor in (*args, *(kwargs.get(name) for name in ("decoder_input_ids", "input_ids", "inputs_embeds"))):
            if isinstance(tensor, Tensor) and groups.even:
                groups.rows = tensor.shape[0]
                return

    models = [module for module in model.modules() if isinstance(module, PreTrainedModel)]
    hooks = [module.register_forward_pre_hook(note, with_kwargs=True) for module in models]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


class PerCandidate(Tensor):
    """Stands in for a parameter: its shape and type, but a value for each candidate."""

    own: Values
    groups: Groups

    @staticmethod
    def __new__(cls, like: Tensor, values: Values, groups: Groups) -> PerCandidate:
        self = like.detach().as_subclass(cls)
        self.own, self.groups = values, groups
        return self

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        handler = HANDLERS.get(func)
        if handler is not None:
            return handler(*args, **(kwargs or {}))
        if getattr(func, "__name__", "") == "__get__" or func in HARMLESS:  # .shape, .dtype, ...
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **(kwargs or {}))
        return one_by_one(func, args, kwargs or {})


HARMLESS = (Tensor.dim, Tensor.size, Tensor.numel, Tensor.is_floating_point, Tensor.stride, Tensor.__repr__)


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return _product(input.reshape(-1, input.shape[-1]), weight, bias, transposed=True).view(*input.shape[:-1], -1)


def addmm(input: Tensor, mat1: Tensor, mat2: Tensor) -> Tensor:
    return _product(mat1, mat2, input, transposed=False)


def embedding(input: Tensor, weight: PerCandidate, *args: Any, **kwargs: Any) -> Tensor:
    groups = weight.groups
    if input.shape[0] == 1 and groups.rows > 1:  # positions, the same for every row
        input = input.expand(groups.rows, *input.shape[1:])
    return weight.own.lookup(input, groups).to(weight.dtype)


def layer_norm(
    input: Tensor, normalized_shape: Any, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    if weight is not None and kernels.usable(input.device):
        return normalised(input, weight, bias, eps, centred=True)
    y = F.layer_norm(input.float(), normalized_shape, eps=eps)
    y = y if weight is None else y * _spread(weight, y)
    return (y if bias is None else y + _spread(bias, y)).to(input.dtype)


def normalised(input: Tensor, weight: Tensor, bias: Tensor | None, eps: float, centred: bool) -> Tensor:
    """LayerNorm or RMSNorm in one kernel, for weights that differ from candidate to candidate or do not."""
    from mgs.kernels.norms import normalise

    groups = next((v.groups for v in (weight, bias) if isinstance(v, PerCandidate)), None)
    num = 1 if groups is None else groups.num
    return normalise(input, _stacked(weight, num), _stacked(bias, num), eps, centred)  # type: ignore[arg-type]


def rms_norm(input: Tensor, normalized_shape: Any, weight: Tensor | None = None, eps: float | None = None) -> Tensor:
    y = F.rms_norm(input.float(), normalized_shape, eps=eps)
    return (y if weight is None else y * _spread(weight, y)).to(input.dtype)


def mul(a: Tensor, b: Tensor) -> Tensor:
    return (_spread(a, b) * _spread(b, a)).to(torch.promote_types(a.dtype, b.dtype))


HANDLERS: dict[Any, Callable[..., Tensor]] = {
    F.linear: linear,
    torch.addmm: addmm,
    F.embedding: embedding,
    torch.embedding: lambda weight, input, *args: embedding(input, weight),
    F.layer_norm: layer_norm,
    F.rms_norm: rms_norm,
    torch.mul: mul,
    Tensor.mul: mul,
    Tensor.__mul__: mul,
    Tensor.__rmul__: mul,
}


def one_by_one(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Anything else: `func` for each candidate's rows with its own parameters, the results put together again."""
    groups = next(value.groups for value in _leaves((args, kwargs)) if isinstance(value, PerCandidate))

    def part(k: int) -> Callable[[Any], Any]:
        def pick(value: Any) -> Any:
            if isinstance(value, PerCandidate):
                return value.own.one(k).to(value.dtype)
            if isinstance(value, nn.Parameter):  # one that is not searched: no rows, whatever its shape
                return value
            if isinstance(value, Tensor) and value.ndim and value.shape[0] % groups.rows == 0:
                return value.split(groups.sizes(value.shape[0]))[k]
            return value

        return pick

    if not any(isinstance(v, Tensor) and not isinstance(v, PerCandidate) for v in _leaves((args, kwargs))):
        raise NotByRows(f"{getattr(func, '__name__', func)} of a parameter alone, apart from any rows")
    here = [k for k, rows in enumerate(groups.sizes(groups.rows)) if rows]  # others' rows have all left
    return torch.cat([func(*tree_map(part(k), args), **tree_map(part(k), kwargs)) for k in here])


def _leaves(tree: Any) -> list[Any]:
    return torch.utils._pytree.tree_leaves(tree)


def _product(rows: Tensor, weight: Tensor, bias: Tensor | None, transposed: bool) -> Tensor:
    """In fp32 whatever the model's precision: rounding θ+Δ to half of it would erase most of Δ."""
    if isinstance(weight, PerCandidate):
        groups = weight.groups
        y = weight.own.times(rows.float(), groups, transposed, _stacked(bias, groups.num))
        return y.to(rows.dtype)
    y = rows @ (weight.T if transposed else weight)
    return y if bias is None else (y + _spread(bias, y)).to(y.dtype)


def _stacked(vector: Tensor | None, num: int) -> Tensor | None:
    """A vector a candidate, (K, O)."""
    if isinstance(vector, PerCandidate):
        return _tensors(vector)
    return None if vector is None else vector.float().expand(num, -1)


def _tensors(value: PerCandidate) -> Tensor:
    if isinstance(value.own, Stack):
        return value.own.tensors_K
    return torch.stack([value.own.one(k) for k in range(value.groups.num)])  # a matrix used elementwise


def _spread(value: Tensor, like: Tensor) -> Tensor:
    """A parameter's values as one a row of `like`, in fp32; anything else as it is."""
    if not isinstance(value, PerCandidate):
        return value
    return value.groups.spread(_tensors(value), like)
