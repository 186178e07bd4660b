"""What stands in for a parameter while candidates are one batch: it has the parameter's shape and type, and a value for
each candidate.

It answers to functions, not to classes of modules, so it does not matter which module calls them. With rows, F.linear
multiplies each with its own candidate's matrix, F.embedding looks it up there, and so on. Without rows, as where a norm
adds 1 to its weight or a bias is looked up by relative positions, what comes of it is a stand-in again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

from mgs import kernels
from mgs.candidates.groups import Groups, NotByRows
from mgs.candidates.values import Stack, Values, transposed


class PerCandidate(Tensor):
    """Values are in fp32 whatever the type: rounding θ+Δ to half of it would erase most of Δ. Where it is `apart`,
    indices into it are the same for all rows."""

    own: Values
    groups: Groups
    apart: bool

    @staticmethod
    def __new__(cls, like: Tensor, values: Values, groups: Groups) -> PerCandidate:
        self = like.detach().as_subclass(cls)
        self.own, self.groups, self.apart = values, groups, False
        return self

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        handler = HANDLERS.get(func)
        if handler is not None:
            return handler(*args, **kwargs)
        if getattr(func, "__name__", "") == "__get__" or func in HARMLESS:  # .shape, .dtype, ...
            found = _of_theta(func, args, kwargs)
            if not isinstance(found, Tensor):
                return found
        return one_by_one(func, args, kwargs)


HARMLESS = (Tensor.dim, Tensor.size, Tensor.numel, Tensor.is_floating_point, Tensor.stride, Tensor.__repr__)


# -- with rows ------------------------------------------------------------------------------------------------------


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return _product(input.reshape(-1, input.shape[-1]), weight, bias, across=True).view(*input.shape[:-1], -1)


def addmm(input: Tensor, mat1: Tensor, mat2: Tensor) -> Tensor:
    return _product(mat1, mat2, input, across=False)


def matmul(input: Tensor, other: Tensor) -> Tensor:
    if isinstance(input, PerCandidate) or not isinstance(other, PerCandidate) or other.ndim != 2:
        return one_by_one(torch.matmul, (input, other), {})
    return _product(input.reshape(-1, input.shape[-1]), other, None, across=False).view(*input.shape[:-1], -1)


def embedding(input: Tensor, weight: PerCandidate, *args: Any, **kwargs: Any) -> Tensor:
    groups, leading = weight.groups, input.shape[0]
    if weight.apart or (leading != 1 and leading % groups.rows):
        weight.apart = True
        return without_rows(F.embedding, (input, weight), {})
    if leading == 1 and groups.rows > 1:  # positions, the same for every row
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


def pointwise(func: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def handled(a: Tensor, b: Tensor, **kwargs: Any) -> Tensor:
        value, other = (a, b) if isinstance(a, PerCandidate) else (b, a)
        if (value is a and _writes(func)) or not _has_rows(other, cast(PerCandidate, value)):
            return one_by_one(func, (a, b), kwargs)
        return func(_spread(a, b), _spread(b, a), **kwargs).to(torch.promote_types(a.dtype, b.dtype))

    return handled


def one_by_one(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Anything else: `func` for each candidate's rows with its own parameters, the results put together again."""
    if args and isinstance(args[0], PerCandidate) and _writes(func):  # which would write θ
        raise NotByRows(f"{func.__name__} writes a parameter")
    groups = next(value.groups for value in tree_leaves((args, kwargs)) if isinstance(value, PerCandidate))

    def has_rows(value: Any) -> bool:
        """A parameter that is not searched has none, whatever its shape."""
        tensor = isinstance(value, Tensor) and not isinstance(value, (PerCandidate, nn.Parameter))
        return tensor and value.ndim > 0 and value.shape[0] % groups.rows == 0

    def part(k: int) -> Callable[[Any], Any]:
        def pick(value: Any) -> Any:
            if isinstance(value, PerCandidate):
                return value.own.one(k).to(value.dtype)
            return value.split(groups.sizes(value.shape[0]))[k] if has_rows(value) else value

        return pick

    if not any(map(has_rows, tree_leaves((args, kwargs)))):
        return without_rows(func, args, kwargs)
    here = [k for k, rows in enumerate(groups.sizes(groups.rows)) if rows]  # others' rows have all left
    return torch.cat([func(*tree_map(part(k), args), **tree_map(part(k), kwargs)) for k in here])


# -- without ---------------------------------------------------------------------------------------------------------


def without_rows(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """`func` of parameters alone: of each candidate's own, and so is what comes of it."""
    leaves, shape = tree_flatten(_of_theta(func, args, kwargs))
    tensors = [value for value in tree_leaves((args, kwargs)) if isinstance(value, Tensor)]
    first = next(value for value in tensors if isinstance(value, PerCandidate))
    alone = len(tensors) == 1
    if not all(isinstance(leaf, Tensor) for leaf in leaves):
        raise NotByRows(f"{getattr(func, '__name__', func)} of a parameter alone is no tensor")
    if func in CASTS and alone:
        values: list[Values] = [first.own]
    elif func in TRANSPOSES and first.ndim == 2:
        values = [transposed(first.own)]
    elif func in POINTWISE and alone:  # with a number: for all at once
        values = [Stack(func(*(_tensors(first) if value is first else value for value in args), **kwargs))]
    else:
        own = [
            tree_leaves(func(*tree_map(_own(k), args), **tree_map(_own(k), kwargs))) for k in range(first.groups.num)
        ]
        values = [Stack(torch.stack(each)) for each in zip(*own, strict=True)]
    return tree_unflatten([PerCandidate(t, v, first.groups) for t, v in zip(leaves, values, strict=True)], shape)


def _writes(func: Any) -> bool:
    """Whether it changes its first argument, by its name: add_, __iadd__, __setitem__."""
    name = getattr(func, "__name__", "")
    return name.startswith(("__i", "__set")) if name.startswith("__") else name.endswith("_")


def _of_theta(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """What the parameter itself would have given: the result's shape and type."""
    with torch._C.DisableTorchFunctionSubclass():
        return func(*args, **kwargs)


def _own(k: int) -> Callable[[Any], Any]:
    return lambda value: value.own.one(k) if isinstance(value, PerCandidate) else value


CASTS = {Tensor.to, Tensor.float, Tensor.type, Tensor.type_as, Tensor.half, Tensor.bfloat16}
TRANSPOSES = {Tensor.T.__get__, Tensor.mT.__get__, Tensor.t, torch.t}  # type: ignore[attr-defined]
POINTWISE = (
    *(torch.mul, Tensor.mul, Tensor.__mul__, Tensor.__rmul__),
    *(torch.add, Tensor.add, Tensor.__add__, Tensor.__radd__, Tensor.__iadd__, Tensor.add_),
    *(torch.sub, Tensor.sub, Tensor.__sub__, Tensor.__rsub__),
)
HANDLERS: dict[Any, Callable[..., Tensor]] = {
    F.linear: linear,
    torch.addmm: addmm,
    F.embedding: embedding,
    torch.embedding: lambda weight, input, *args: embedding(input, weight),
    F.layer_norm: layer_norm,
    F.rms_norm: rms_norm,
    **{func: pointwise(func) for func in POINTWISE},
    **dict.fromkeys((torch.matmul, Tensor.matmul, Tensor.__matmul__), matmul),
}


# -- values and rows -------------------------------------------------------------------------------------------------


def _product(rows: Tensor, weight: Tensor, bias: Tensor | None, across: bool) -> Tensor:
    """Rows times a matrix, or, `across`, one that is stored the other way round."""
    if isinstance(weight, PerCandidate):
        groups = weight.groups
        y = weight.own.times(rows.float(), groups, across, _stacked(bias, groups.num))
        return y.to(rows.dtype)
    y = rows @ (weight.T if across else weight)
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


def _has_rows(other: Any, value: PerCandidate) -> bool:
    """Whether a value of each candidate meets rows there, and does not just look like it."""
    if not isinstance(other, Tensor) or isinstance(other, (PerCandidate, nn.Parameter)) or not other.ndim:
        return False
    before = other.ndim > value.ndim or (other.ndim == value.ndim and value.shape[0] == 1)
    return before and other.shape[0] % value.groups.rows == 0


def _spread(value: Tensor, like: Tensor) -> Tensor:
    """A parameter's values as one a row of `like`, in fp32; anything else as it is."""
    if not isinstance(value, PerCandidate):
        return value
    return value.groups.spread(_tensors(value), like)
