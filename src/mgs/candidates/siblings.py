"""Linear layers that read the same rows (queries, keys and values; a gate and what it gates), as one product.

Each product of a few rows costs mostly its start. Where such layers' weights lie beside each other, the first one
called computes all, and the others take their part.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from mgs.candidates.groups import Groups
from mgs.candidates.probe import Found, example_inputs, once
from mgs.candidates.values import Planes
from mgs.search.directions import Layout

_FOUND: Found[list[list[str]]] = WeakKeyDictionary()


@dataclass
class Family:
    """The members' weights as one matrix, and the last product with it."""

    whole: Planes
    sizes: list[int]
    rows: Tensor | None = None
    parts: list[Tensor] = field(default_factory=list)


@dataclass
class Member(Planes):
    """One of a family of matrices (O, I) that are used transposed."""

    family: Family | None = None
    place: int = 0

    def times(self, rows_NI: Tensor, groups: Groups, transposed: bool, bias_KO: Tensor | None) -> Tensor:
        family = self.family
        if family is None or not transposed or bias_KO is not None:
            return super().times(rows_NI, groups, transposed, bias_KO)
        if self.place == 0:
            family.parts = list(family.whole.times(rows_NI, groups, True, None).split(family.sizes, dim=1))
            family.rows = rows_NI
            return family.parts[0]
        if family.rows is None or not _same_memory(family.rows, rows_NI):
            return super().times(rows_NI, groups, transposed, bias_KO)
        return family.parts[self.place]


def siblings(model: nn.Module) -> list[list[str]]:
    """Names of weights whose layers were, in one pass of the model, given the very same input one after another."""
    return once(_FOUND, model, _find)


@torch.no_grad()
def _find(model: nn.Module) -> list[list[str]]:
    calls: list[tuple[str, Tensor]] = []  # holding on to the inputs, so that none is mistaken for another
    names = {id(p): name for name, p in model.named_parameters()}

    def note(module: nn.Module, args: tuple[Tensor, ...]) -> None:
        if args and id(module.weight) in names and module.bias is None:
            calls.append((names[id(module.weight)], args[0]))

    hooks = [m.register_forward_pre_hook(note) for m in model.modules() if type(m) is nn.Linear]
    training = model.training
    try:
        model.eval()(**example_inputs(model))
    finally:
        model.train(training)
        for hook in hooks:
            hook.remove()
    families: list[list[str]] = [[calls[0][0]]] if calls else []
    for (_, before), (name, now) in pairwise(calls):
        families[-1].append(name) if now is before else families.append([name])
    return [family for family in families if len(family) > 1]


def join(families: list[list[str]], values: dict[str, Planes], layout: Layout, buffers: Planes) -> None:
    """Makes members of those `values` whose families lie in a row in the flat `buffers`."""
    high, low_K, unscale = buffers.high, buffers.low_K, buffers.unscale
    for names in families:
        if not all(name in values for name in names):
            continue
        starts = [layout.starts[name] for name in names]
        sizes = [layout.shapes[name].numel() for name in names]
        widths = {layout.shapes[name][1] for name in names}
        if len(widths) > 1 or any(a + size != b for (a, b), size in zip(pairwise(starts), sizes, strict=False)):
            continue
        shape, total = (-1, widths.pop()), sum(sizes)
        whole = Planes(
            high.narrow(0, starts[0], total).view(shape),
            low_K.narrow(1, starts[0], total).unflatten(1, shape),
            unscale,
        )
        family = Family(whole, [layout.shapes[name][0] for name in names])
        for place, name in enumerate(names):
            values[name] = Member(values[name].high, values[name].low_K, unscale, family, place)


def _same_memory(a: Tensor, b: Tensor) -> bool:
    return a.data_ptr() == b.data_ptr() and a.shape == b.shape and a.stride() == b.stride()
