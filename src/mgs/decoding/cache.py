"""A key-value cache that grows by doubling.

The library's dynamic cache concatenates at every step, which copies the whole cache for each new token; here a step
writes one column into a buffer and hands out a view of it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedConfig
from transformers.cache_utils import DynamicLayer


class GrowingLayer(DynamicLayer):
    """`keys` and `values` are views of buffers with room to spare."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._buffers: tuple[Tensor, Tensor] | None = None

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        start = self.get_seq_length()
        end = start + key_states.shape[-2]
        buffers = self._buffers
        if buffers is None or self._stale(buffers) or end > buffers[0].shape[-2]:
            buffers = self._room(self.keys, key_states, end), self._room(self.values, value_states, end)
        for buffer, new in zip(buffers, (key_states, value_states), strict=True):
            buffer[..., start:end, :] = new
        self._buffers = buffers
        self.keys, self.values = (buffer[..., :end, :] for buffer in buffers)
        return self.keys, self.values

    def _stale(self, buffers: tuple[Tensor, Tensor]) -> bool:
        """Whether rows were selected, repeated or reordered since: `keys` is then no view of its buffer any more."""
        return self.keys is None or self.keys.data_ptr() != buffers[0].data_ptr()

    @staticmethod
    def _room(old: Tensor | None, like: Tensor, end: int) -> Tensor:
        buffer = like.new_empty((*like.shape[:-2], max(64, 2 * end), like.shape[-1]))
        if old is not None and old.numel():
            buffer[..., : old.shape[-2], :] = old
        return buffer


def growing_cache(config: PreTrainedConfig) -> DynamicCache | None:
    """A cache of growing layers, or None for models whose layers keep something other than all keys and values."""
    cache = DynamicCache(config=config)
    if not cache.layers or any(type(layer) is not DynamicLayer for layer in cache.layers):
        return None
    cache.layers = [GrowingLayer() for _ in cache.layers]
    return cache


def supports_loop(model: torch.nn.Module) -> bool:
    """Whether the fast loop can run this model; `generate` runs every other."""
    config = getattr(model, "config", None)
    if config is None or getattr(config, "is_encoder_decoder", False):
        return False
    try:
        return growing_cache(config) is not None
    except (AttributeError, KeyError, TypeError, ValueError):
        return False
