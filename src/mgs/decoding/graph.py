"""The loop for GPUs: a cache of fixed size, and one captured graph that is replayed for every token.

Launching a small model's hundreds of kernels one by one takes longer than running them. Here a step is captured once
and replayed; the cache has room for all positions from the start, and its attention reads the positions that are there.
Capturing takes about as long as a step, so loops are kept and used again for batches of the same size. A captured step
cannot lose rows; where most have ended, a smaller loop in the front part of the same memory takes over.
"""

from __future__ import annotations

import copy
import sys
from collections import OrderedDict
from collections.abc import Hashable, Sequence

import torch
from torch import Tensor, nn
from transformers import Cache, DynamicCache

from mgs.decoding.fixed import ATTENTION, FixedLayer, State, running
from mgs.decoding.loop import Process, ended_at
from mgs.models import window
from mgs.models.likelihood import is_encoder_decoder, padded

LOOK_EVERY = 16  # tokens between looks at whether all rows have ended: each makes the GPU wait
ROOM_STEP = 64  # room is rounded up to this, so that loops fit more batches
KEPT_LOOPS = 4
WORTH_SHRINKING = 48  # tokens to come, at the least: a smaller loop must be captured, once, and rows must move


class FixedLoop:
    """Decodes `rows` rows at a time, which belong in equal shares to `groups` candidates, one after another."""

    shrinks = True

    def __init__(self, model: nn.Module, rows: int, room: int, eos: int, process: Process | None, groups: int = 1):
        self.state = State(rows, room, next(model.parameters()).device)
        self.cache: Cache = self._new_cache(model)
        self.eos, self.process, self.groups = eos, process, groups
        self.last = (window(model) or sys.maxsize) - 1  # type: ignore[arg-type]
        self.graph: torch.cuda.CUDAGraph | None = None
        self.smaller: dict[int, FixedLoop] = {}  # by number of rows

    def _new_cache(self, model: nn.Module) -> Cache:
        cache = DynamicCache(config=model.config)  # type: ignore[arg-type]
        cache.layers = [FixedLayer(self.state) for _ in cache.layers]
        return cache

    @torch.no_grad()
    def __call__(
        self, model: nn.Module, prefixes: Sequence[Sequence[int]], max_new_tokens: int, keys_B: Tensor
    ) -> list[tuple[int, ...]]:
        with running(self.state):
            self._prefill(model, prefixes, keys_B)
            config = model.config.get_text_config()  # type: ignore[union-attr, operator]
            before, config._attn_implementation = config._attn_implementation, ATTENTION
            try:
                self._steps(model, max_new_tokens - 1)
            finally:
                config._attn_implementation = before
        return [ended_at(row, self.eos) for row in self.state.out[:, :max_new_tokens].tolist()]

    def _prefill(self, model: nn.Module, prefixes: Sequence[Sequence[int]], keys_B: Tensor) -> None:
        """All prefixes in one pass, padded on the left, and the first token of each row."""
        state, device = self.state, self.state.ids.device
        ids = padded(prefixes, self.eos, device, left=True)
        starts = torch.tensor([ids.shape[1] - len(prefix) for prefix in prefixes])
        state.reset(keys_B)
        state.starts.copy_(starts)
        state.length.fill_(ids.shape[1] - 1)
        state.positions.copy_((ids.shape[1] - 1 - starts)[:, None])
        columns = torch.arange(ids.shape[1], device=device)
        mask = (columns >= state.starts[:, None]).long()
        positions = (columns - state.starts[:, None]).clamp(min=0)
        logits = model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=self.cache,
            use_cache=True,
            logits_to_keep=1,
        ).logits[:, -1]
        self._choose(logits)

    def _steps(self, model: nn.Module, num: int) -> None:
        with running(self.state):
            self.state.stepping = True
            try:
                for step in range(num):
                    if step % LOOK_EVERY == 0:
                        ended = self.state.ended.cpu()
                        if bool(ended.all()):
                            return
                        kept = self._kept(ended) if num - step >= WORTH_SHRINKING else None
                        if kept is not None:
                            return self._go_on_with(model, kept, num - step)
                    self._replay(model)
            finally:
                self.state.stepping = False
                self.state.layer = None  # a cycle would keep the cache until the next garbage collection

    def _replay(self, model: nn.Module) -> None:
        if self.graph is not None:
            self.graph.replay()
        else:
            self._step(model)  # compiles what needs compiling, and is a step like any other
            if self.state.ids.is_cuda:
                self._capture(model)

    def _kept(self, ended: Tensor) -> Tensor | None:
        """The rows to go on with, if a half or less of them will do for every candidate: those that have not ended,
        and others to make up for unequal numbers. Sizes are halved and halved again, to fit loops there are."""
        going = ~ended.view(self.groups, -1)
        most, size = int(going.sum(dim=1).max()), going.shape[1]
        while size // 2 >= most:
            size //= 2
        if size == going.shape[1] or not self.shrinks:
            return None
        first = going.byte().argsort(dim=1, descending=True, stable=True)[:, :size].sort(dim=1).values
        return (first + torch.arange(self.groups)[:, None] * going.shape[1]).flatten().to(self.state.ids.device)

    def _go_on_with(self, model: nn.Module, kept: Tensor, num: int) -> None:
        """A smaller loop decodes the rest of these rows."""
        out, length = self.state.out.clone(), int(self.state.length)
        self.state.move_to_front(kept)
        for buffer in (buffer for layer in self._layers() for buffer in layer.buffers):
            buffer[: len(kept), :, :length] = buffer[:, :, :length][kept]
        if len(kept) not in self.smaller:
            self.smaller[len(kept)] = self._front(len(kept))
        loop = self.smaller[len(kept)]
        loop._steps(model, num)
        out[kept] = loop.state.out
        self.state.out.copy_(out)

    def _front(self, rows: int) -> FixedLoop:
        """A loop in the front part of this one's memory."""
        loop = copy.copy(self)
        loop.state, loop.graph, loop.smaller = self.state.front(rows), None, {}
        loop.cache = copy.copy(self.cache)
        loop.cache.layers = [layer.front(loop.state, rows) for layer in self._layers()]
        return loop

    def _layers(self) -> list[FixedLayer]:
        return self.cache.layers  # type: ignore[return-value]

    def _step(self, model: nn.Module) -> None:
        logits = model(
            input_ids=self.state.ids,
            attention_mask=self.state.mask,
            position_ids=self.state.positions,
            past_key_values=self.cache,
            use_cache=True,
            logits_to_keep=1,
        ).logits[:, -1]
        self._choose(logits)

    def _choose(self, logits: Tensor) -> None:
        state = self.state
        scores = self.process(logits, state.keys, state.position) if self.process else logits
        tokens = scores.argmax(dim=-1)
        state.out.index_copy_(1, state.position.view(1), tokens[:, None])
        state.ended |= tokens == self.eos
        # Rows that have ended read some other token: a model may take ⟨eos⟩ for padding and warn.
        state.ids.copy_(torch.where(tokens == self.eos, int(self.eos == 0), tokens)[:, None])
        state.positions.add_(1).clamp_(max=self.last)  # a row beyond the window waits for shorter ones
        state.length += 1
        state.position += 1

    def _capture(self, model: nn.Module) -> None:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._step(model)
        self.graph = graph


class Loops:
    """Loops kept for batches of the same size on the same weights (`binding` says which)."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Hashable, FixedLoop] = OrderedDict()

    def decode(
        self,
        model: nn.Module,
        prefixes: Sequence[Sequence[int]],
        max_new_tokens: int,
        eos: int,
        keys_B: Tensor,
        process: Process | None,
        binding: Hashable,
        groups: int = 1,
    ) -> list[tuple[int, ...]]:
        """`binding` also stands for `process`: whatever a captured step depends on."""
        longest = max(map(len, prefixes))
        translates = is_encoder_decoder(model)
        room = _rounded(max_new_tokens + (1 if translates else longest))
        source_room = _rounded(longest) if translates else 0
        key = (binding, len(prefixes), room, source_room, eos, groups)
        loop = self._kept.pop(key, None)
        if loop is None and translates:
            from mgs.decoding.translation import TranslationLoop

            loop = TranslationLoop(model, len(prefixes), room, eos, process, source_room)
        elif loop is None:
            loop = FixedLoop(model, len(prefixes), room, eos, process, groups)
        rows = loop(model, prefixes, max_new_tokens, keys_B)
        self._kept[key] = loop  # only now: a loop that failed is not kept
        while len(self._kept) > KEPT_LOOPS:
            self._kept.popitem(last=False)
        return rows

    def clear(self) -> None:
        self._kept.clear()


def _rounded(positions: int) -> int:
    return -(-positions // ROOM_STEP) * ROOM_STEP
