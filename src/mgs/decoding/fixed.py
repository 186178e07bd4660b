"""A cache of fixed size, the state of a step, and the attention of one new token: what a captured loop replays."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.cache_utils import DynamicLayer

from mgs import kernels

ATTENTION = "mgs_cached"  # what the models' configuration calls it while a loop runs


class FixedLayer(DynamicLayer):
    """Keys and values of one layer, with room for every position to come."""

    def __init__(self, state: State) -> None:
        super().__init__()
        self.state = state
        self.buffers: tuple[Tensor, ...] = ()

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            rows, heads, _, dim = key_states.shape
            self.dtype, self.device, self.is_initialized = key_states.dtype, key_states.device, True
            self.buffers = (
                key_states.new_empty(rows, heads, self.state.room, dim),
                value_states.new_empty(rows, heads, self.state.room, value_states.shape[-1]),
            )
        if self.state.stepping:  # the attention writes it
            self.state.layer = self
        else:
            for buffer, new in zip(self.buffers, (key_states, value_states), strict=True):
                buffer[:, :, : new.shape[2]] = new
        return key_states, value_states

    def front(self, state: State, rows: int) -> FixedLayer:
        """The same memory, its first rows."""
        layer = FixedLayer(state)
        layer.dtype, layer.device, layer.is_initialized = self.dtype, self.device, True
        layer.buffers = tuple(buffer[:rows] for buffer in self.buffers)
        return layer

    def get_seq_length(self) -> Any:
        """Nothing precedes a prefix; at a step a number on the device, which a captured graph reads again."""
        return self.state.length.long() if self.state.stepping else 0


class State:
    """What a step reads and writes: always the same memory, so that it can be replayed."""

    def __init__(self, rows: int, room: int, device: torch.device):
        self.room, self.stepping, self.layer = room, False, None
        self.starts = torch.zeros(rows, dtype=torch.int32, device=device)  # where each row begins, after its padding
        self.length = torch.zeros((), dtype=torch.int32, device=device)  # positions in the cache
        self.position = torch.zeros((), dtype=torch.int64, device=device)  # tokens decoded so far
        self.ids = torch.zeros(rows, 1, dtype=torch.long, device=device)
        self.positions = torch.zeros(rows, 1, dtype=torch.long, device=device)
        self.ended = torch.zeros(rows, dtype=torch.bool, device=device)
        self.out = torch.zeros(rows, room, dtype=torch.long, device=device)
        self.keys = torch.zeros(rows, dtype=torch.int64, device=device)  # of the noise
        self.mask = torch.ones(rows, 1, dtype=torch.long, device=device)  # nothing reads it; without, a model may ask

    def reset(self, keys_B: Tensor) -> None:
        self.keys.copy_(keys_B)
        for tensor in (self.starts, self.length, self.position, self.positions, self.ended):
            tensor.zero_()

    def front(self, rows: int) -> State:
        """The same memory, its first rows; what is not by row is shared."""
        part = copy.copy(self)
        for name in self.BY_ROW:
            setattr(part, name, getattr(self, name)[:rows])
        return part

    def move_to_front(self, kept: Tensor) -> None:
        for name in self.BY_ROW:
            tensor = getattr(self, name)
            tensor[: len(kept)] = tensor[kept]

    BY_ROW = ("starts", "ids", "positions", "ended", "out", "keys", "mask")
    layer: FixedLayer | None  # the one whose new token waits for its attention
    source_lengths: Tensor | None = None  # of an encoder-decoder's sources


_STATE: State | None = None  # of the loop that is running


def cached_attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: Any
) -> tuple[Tensor, None]:
    """Attention of one new token, in the form the library calls it; puts the token into the cache as well."""
    if _STATE is None or any(options.get(name) is not None for name in ("softcap", "s_aux")):
        raise NotImplementedError("this attention is for one new token of a plain transformer")
    scaling = options.get("scaling") or query.shape[-1] ** -0.5
    own, to_source = _attentions(query.device)
    layer, _STATE.layer = _STATE.layer, None
    if layer is not None:
        return own(query, key, value, *layer.buffers, _STATE.starts, _STATE.length, scaling), None
    if _STATE.source_lengths is None:
        raise NotImplementedError("an attention to something that is not in the cache")
    return to_source(query, key, value, _STATE.source_lengths, scaling), None


def _attentions(device: torch.device) -> tuple[Callable[..., Tensor], Callable[..., Tensor]]:
    """Of a new token to those before it, and to a source."""
    if not kernels.usable(device):
        return _attend, _attend_to
    from mgs.kernels.attention import attend, attend_to

    return attend, attend_to


def _attend_to(query: Tensor, keys: Tensor, values: Tensor, lengths: Tensor, scaling: float) -> Tensor:
    there = torch.arange(keys.shape[2], device=keys.device) < lengths[:, None]
    scores = (query @ keys.mT * scaling).masked_fill(~there[:, None, None], float("-inf"))
    return (scores.softmax(dim=-1) @ values).transpose(1, 2)


def _attend(
    query: Tensor, new_keys: Tensor, new_values: Tensor, keys: Tensor, values: Tensor, starts: Tensor, length: Tensor,
    scaling: float,
) -> Tensor:  # fmt: skip
    """The kernel's meaning in plain operations."""
    keys.index_copy_(2, length.long().view(1), new_keys)
    values.index_copy_(2, length.long().view(1), new_values)
    sharing = query.shape[1] // keys.shape[1]
    scores = query @ keys.repeat_interleave(sharing, dim=1).mT * scaling
    t = torch.arange(keys.shape[2], device=keys.device)
    there = (t >= starts[:, None]) & (t <= length)
    weights = scores.masked_fill(~there[:, None, None], float("-inf")).softmax(dim=-1)
    filled = values.masked_fill(~there[:, None, :, None], 0.0)  # room not yet used may hold anything
    return (weights @ filled.repeat_interleave(sharing, dim=1)).transpose(1, 2)


AttentionInterface.register(ATTENTION, cached_attention)


@contextmanager
def running(state: State) -> Iterator[None]:
    """The loop whose state the attention reads and writes."""
    global _STATE
    before, _STATE = _STATE, state
    try:
        yield
    finally:
        _STATE = before
