"""The loop for GPUs: a cache of fixed size, and one captured graph that is replayed for every token.

Launching a small model's hundreds of kernels one by one takes longer than running them. Here a step is captured once
and replayed; the cache has room for all positions from the start, and its attention reads the positions that are there.
Capturing takes about as long as a step, so loops are kept and used again for batches of the same size.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from transformers import Cache, DynamicCache

from mgs import kernels
from mgs.decoding.cache import supports_loop
from mgs.decoding.fixed import ATTENTION, FixedLayer, State, running
from mgs.decoding.loop import Process, ended_at
from mgs.models.likelihood import is_encoder_decoder, padded, scored_logits

LOOK_EVERY = 16  # tokens between looks at whether all rows have ended: each makes the GPU wait
ROOM_STEP = 64  # room is rounded up to this, so that loops fit more batches
KEPT_LOOPS = 4


class FixedLoop:
    """Decodes `rows` rows at a time."""

    def __init__(self, model: nn.Module, rows: int, room: int, eos: int, process: Process | None):
        self.state = State(rows, room, next(model.parameters()).device)
        self.cache: Cache = self._new_cache(model)
        self.eos, self.process = eos, process
        self.graph: torch.cuda.CUDAGraph | None = None

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
            self.state.stepping = True
            try:
                self._steps(model, max_new_tokens - 1)
            finally:
                config._attn_implementation, self.state.stepping = before, False
                self.state.layer = None  # a cycle would keep the cache until the next garbage collection
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
        for step in range(num):
            if step % LOOK_EVERY == 0 and bool(self.state.ended.all()):
                return
            if self.graph is not None:
                self.graph.replay()
            else:
                self._step(model)  # compiles what needs compiling, and is a step like any other
                if self.state.ids.is_cuda:
                    self._capture(model)

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
        state.positions += 1
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
    ) -> list[tuple[int, ...]]:
        """`binding` also stands for `process`: whatever a captured step depends on."""
        longest = max(map(len, prefixes))
        translates = is_encoder_decoder(model)
        room = _rounded(max_new_tokens + (1 if translates else longest))
        source_room = _rounded(longest) if translates else 0
        key = (binding, len(prefixes), room, source_room, eos)
        loop = self._kept.pop(key, None)
        if loop is None and translates:
            from mgs.decoding.translation import TranslationLoop

            loop = TranslationLoop(model, len(prefixes), room, eos, process, source_room)
        elif loop is None:
            loop = FixedLoop(model, len(prefixes), room, eos, process)
        rows = loop(model, prefixes, max_new_tokens, keys_B)
        self._kept[key] = loop  # only now: a loop that failed is not kept
        while len(self._kept) > KEPT_LOOPS:
            self._kept.popitem(last=False)
        return rows

    def clear(self) -> None:
        self._kept.clear()


def _rounded(positions: int) -> int:
    return -(-positions // ROOM_STEP) * ROOM_STEP


_AGREES: WeakKeyDictionary[nn.Module, bool] = WeakKeyDictionary()


def supports_graph(model: nn.Module) -> bool:
    """Whether this loop decodes as the model itself would: on a GPU with our kernels, and tried once."""
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
