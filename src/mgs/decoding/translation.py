"""The captured loop for encoder-decoder models: sources are read once, then tokens as in any other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import Cache, DynamicCache, EncoderDecoderCache
from transformers.cache_utils import DynamicLayer

from mgs.decoding.fixed import FixedLayer, State
from mgs.decoding.graph import FixedLoop
from mgs.decoding.loop import Process
from mgs.models.likelihood import padded


class SourceLayer(DynamicLayer):
    """Keys and values of the sources, always in the same place."""

    def __init__(self, state: State, room: int) -> None:
        super().__init__()
        self.state, self.room = state, room

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            rows, heads, _, dim = key_states.shape
            self.dtype, self.device, self.is_initialized = key_states.dtype, key_states.device, True
            self.keys, self.values = (key_states.new_zeros(rows, heads, self.room, dim) for _ in range(2))
        for buffer, new in ((self.keys, key_states), (self.values, value_states)):
            buffer[:, :, : new.shape[2]] = new  # type: ignore[index]
        return key_states, value_states


class TranslationLoop(FixedLoop):
    """`prefixes` are sources; what is decoded stands alone."""

    shrinks = False  # translations of one batch end at about the same time

    def __init__(
        self, model: nn.Module, rows: int, room: int, eos: int, process: Process | None, source_room: int
    ) -> None:
        self.source_room = source_room
        super().__init__(model, rows, room, eos, process)
        self.state.source_lengths = torch.zeros(rows, dtype=torch.int32, device=self.state.ids.device)
        self.encoded: Any = None

    def _new_cache(self, model: nn.Module) -> Cache:
        config: Any = model.config
        own, source = DynamicCache(), DynamicCache()
        own.layers = [FixedLayer(self.state) for _ in range(config.decoder_layers)]
        source.layers = [SourceLayer(self.state, self.source_room) for _ in range(config.decoder_layers)]
        return EncoderDecoderCache(own, source)

    def _prefill(self, model: nn.Module, prefixes: Sequence[Sequence[int]], keys_B: Tensor) -> None:
        """The encoder's pass, and the decoder's first step from its start token."""
        state, device = self.state, self.state.ids.device
        config: Any = model.config
        lengths = torch.tensor([len(prefix) for prefix in prefixes])
        state.reset(keys_B)
        state.source_lengths.copy_(lengths)  # type: ignore[union-attr]
        self.cache.is_updated = dict.fromkeys(range(config.decoder_layers), False)  # type: ignore[attr-defined]
        outputs = model(
            input_ids=padded(prefixes, config.pad_token_id or 0, device),
            attention_mask=padded([[1] * len(prefix) for prefix in prefixes], 0, device),
            decoder_input_ids=torch.full_like(state.ids, config.decoder_start_token_id),
            past_key_values=self.cache,
            use_cache=True,
        )
        if self.encoded is None:  # a step asks for it and does not read it: keys and values are in the cache
            self.encoded = (outputs.encoder_last_hidden_state,)
        self._choose(outputs.logits[:, -1])

    def _step(self, model: nn.Module) -> None:
        logits = model(
            encoder_outputs=self.encoded,
            decoder_input_ids=self.state.ids,
            decoder_attention_mask=self.state.mask,
            past_key_values=self.cache,
            use_cache=True,
        ).logits[:, -1]
        self._choose(logits)
