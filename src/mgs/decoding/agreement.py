"""Whether the captured loop decodes as a model itself would: on a GPU with our kernels, and tried once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from mgs import kernels
from mgs.decoding.cache import supports_loop
from mgs.decoding.graph import FixedLoop, Loops
from mgs.models.likelihood import is_encoder_decoder, scored_logits

_AGREES: WeakKeyDictionary[nn.Module, bool] = WeakKeyDictionary()


def supports_graph(model: nn.Module) -> bool:
    device = next(model.parameters()).device
    if not kernels.usable(device) or not (supports_loop(model) or is_encoder_decoder(model)):
        return False
    if model not in _AGREES:
        _AGREES[model] = agrees(model)
    return _AGREES[model]


@torch.no_grad()
def agrees(model: nn.Module) -> bool:
    """Prefix and two tokens through the loop's cache, against one pass without any."""
    device = next(model.parameters()).device
    prefixes = [(1, 2, 3, 4), (3, 2)]
    seen: list[Tensor] = []

    def watch(logits: Tensor, keys_B: Tensor, position: Any) -> Tensor:
        seen.append(logits.float())
        return logits.index_fill(1, torch.zeros(1, dtype=torch.long, device=device), -torch.inf)  # never ends

    training = model.training
    model.eval()
    try:
        with _uncaptured():
            rows = Loops().decode(model, prefixes, 3, 0, torch.zeros(2, dtype=torch.int64, device=device), watch, None)
        for row, (prefix, new) in enumerate(zip(prefixes, rows, strict=True)):
            logits, _, _ = scored_logits(model, [prefix], [new])
            found = torch.stack([step[row] for step in seen[: len(new)]])
            if not torch.allclose(found, logits.float(), rtol=1e-2, atol=1e-2 * float(logits.std())):
                return False
    except Exception:  # whatever a model or a compiler of kernels objects to: the other loops remain
        return False
    finally:
        model.train(training)
    return True


@contextmanager
def _uncaptured() -> Iterator[None]:
    """For a loop that is only watched: Python must see every step."""
    capture, FixedLoop._capture = FixedLoop._capture, lambda self, model: None  # type: ignore[method-assign]
    try:
        yield
    finally:
        FixedLoop._capture = capture  # type: ignore[method-assign]
