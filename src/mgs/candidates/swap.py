"""Swapping a model's parameters for ones that differ from row to row, so that one batch holds many candidates.

Everything between a transformer's parameters treats rows independently. So each searched parameter is replaced, for as
long as a block lasts, by a stand-in that knows what is done with a parameter (see `stand_in.py`). The model's code runs
as it is, with any decoder.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

from torch import Tensor, nn
from transformers import PreTrainedModel

from mgs.candidates.groups import Groups
from mgs.candidates.stand_in import PerCandidate

#: Parameters that a model looks things up in by indices without rows, as the probe has seen: with as many positions as
#: rows such indices look like any others.
APART: WeakKeyDictionary[nn.Module, frozenset[str]] = WeakKeyDictionary()


@contextmanager
def swapped(model: nn.Module, stand_ins: Mapping[str, PerCandidate]) -> Iterator[nn.Module]:
    """The model with these tensors in place of its parameters, wherever they are used (tied ones everywhere).

    The parameters themselves are put aside and put back: they are never written, also when the block raises.
    """
    for name in APART.get(model, ()):
        if name in stand_ins:
            stand_ins[name].apart = True
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
