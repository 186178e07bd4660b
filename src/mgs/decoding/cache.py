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
        if self._buffers is None or end > self._buffers[0].shape[-2]:
            self._buffers = self._room(self.keys, key_states, end), self._room(self.values, value_states, end)
        for buffer, new in zip(self._buffers, (key_states, value_states), strict=True):
            buffer[..., start:end, :] = new
        self.keys, self.values = (buffer[..., :end, :] for buffer in self._buffers)
        return self.keys, self.values

    def batch_select_indices(self, indices: Tensor) -> None:
        super().batch_select_indices(indices)
        self._buffers = None  # sized for the old rows; made anew at the next update

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
