"""The decoding algorithm F as a value: greedy search, beam search, or sampling with explicit noise."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor, nn
from transformers import (
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
    StoppingCriteria,
    StoppingCriteriaList,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from mgs.decoding.agreement import supports_graph
from mgs.decoding.cache import supports_loop
from mgs.decoding.graph import Loops
from mgs.decoding.loop import Process, decode_loop, ended_at
from mgs.decoding.memory import bytes_per_row, free_memory
from mgs.decoding.noise import gumbel, row_keys
from mgs.errors import UserError, unknown
from mgs.models import window
from mgs.models.likelihood import evaluating, is_encoder_decoder, padded

KINDS = ("greedy", "beam-N", "sample")
TRAINING_LENGTH = 1.3  # × the longest target of the batch: the cap while training
EVALUATION_LENGTH = 500
#: New tokens at most: a number, or what a prefix may have.
Cap = int | Callable[[Sequence[int]], int]
ROWS_AT_ONCE = {"cpu": 64, "cuda": 8_192}
MEMORY_SHARE = 0.3  # of what is free, for the rows that are decoded at once


@dataclass(frozen=True)
class Decoder:
    """F(θ, X, ε). The same value decodes for every candidate, in training and in evaluation.

    >>> Decoder.parse("beam-5").beams
    5
    >>> str(Decoder.parse("sample,top_k=40"))
    'sample,top_k=40'
    """

    beams: int = 1
    sample: bool = False
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0

    def __post_init__(self) -> None:
        if self.beams < 1 or not self.temperature > 0 or self.top_k < 0 or not 0 < self.top_p <= 1:
            raise UserError(f"a decoder needs beams ≥ 1, temperature > 0, top_k ≥ 0 and 0 < top_p ≤ 1; got {self!r}")
        if self.beams > 1 and self.sample:
            raise UserError("beam search does not sample: choose 'beam-N' or 'sample'")

    @classmethod
    def parse(cls, text: str) -> Decoder:
        """`greedy`, `beam-N`, or `sample` with options: `sample,top_k=40,top_p=0.9,temperature=0.7`."""
        kind, *options = text.replace(" ", "").split(",")
        beam = kind.startswith("beam-") and kind[5:].isdecimal() and len(kind) < 10  # thousands at most
        if not beam and kind not in ("greedy", "sample"):
            raise unknown("decoder", text, KINDS)
        if options and kind != "sample":
            raise UserError(f"the decoder {kind!r} takes no options, got {','.join(options)!r}: only 'sample' does")
        if beam:
            return cls(beams=int(kind[5:]))
        values: dict[str, float] = {}
        for option in options:
            name, _, value = option.partition("=")
            if name not in ("temperature", "top_k", "top_p"):
                raise unknown(f"option of decoder {kind!r}", name, ("temperature", "top_k", "top_p"))
            try:
                values[name] = int(value) if name == "top_k" else float(value)
            except ValueError:
                raise UserError(f"decoder option {name} needs a number, got {value!r}") from None
        return cls(sample=kind == "sample", **values)  # type: ignore[arg-type]

    def __str__(self) -> str:
        if self.beams > 1:
            return f"beam-{self.beams}"
        changed = [f for f in fields(self) if f.name != "sample" and getattr(self, f.name) != f.default]
        return ",".join(
            ["sample" if self.sample else "greedy", *(f"{f.name}={getattr(self, f.name)}" for f in changed)]
        )

    def __call__(
        self,
        model: nn.Module,
        prefixes: Sequence[Sequence[int]],
        max_new_tokens: Cap,
        eos: int,
        noise: Sequence[int] = (0,),
        done: Callable[[int], object] = lambda rows: None,
        numbers: Sequence[int] | None = None,
    ) -> list[tuple[int, ...]]:
        """Decode every prefix, `max_new_tokens` of each or so many as it says for a prefix. `noise` names the ε: the
        same integers give the same continuation for the same row, which is the same by its place or, if given, its
        number. `done` is told how many rows have just been finished, for a progress bar."""
        keys_B = row_keys(range(len(prefixes)) if numbers is None else numbers, *noise)
        caps = caps_of(model, prefixes, max_new_tokens)
        at_once = self._at_once(model, prefixes, max(caps, default=1))
        out: list[tuple[int, ...]] = [()] * len(prefixes)
        order = sorted(range(len(prefixes)), key=lambda row: len(prefixes[row]))  # least padding
        for start in range(0, len(prefixes), at_once):
            some = order[start : start + at_once]
            part = [prefixes[row] for row in some]
            decoded = self.rows(model, part, [caps[row] for row in some], eos, keys_B[some])
            for row, tokens in zip(some, decoded, strict=True):
                out[row] = tokens
            done(len(some))
        return out

    def _at_once(self, model: nn.Module, prefixes: Sequence[Sequence[int]], room: int) -> int:
        device = next(model.parameters()).device
        rows = ROWS_AT_ONCE.get(device.type, 64)
        if hasattr(model, "config"):
            each = bytes_per_row(model, room + max(map(len, prefixes), default=0))
            rows = min(rows, int(MEMORY_SHARE * free_memory(device) / each))
        return max(1, rows // self.beams)

    def rows(
        self,
        model: nn.Module,
        prefixes: Sequence[Sequence[int]],
        caps: Sequence[int],
        eos: int,
        keys_B: Tensor,
        left: Callable[[Tensor], object] = lambda kept: None,
    ) -> list[tuple[int, ...]]:
        """Decode these rows as one batch, each with its own cap and key of noise; `left` as in the loop."""
        keys_B = keys_B.to(next(model.parameters()).device)
        room = max(caps)
        with evaluating(model):
            if self.beams == 1 and supports_graph(model):
                decoded = Loops().decode(model, prefixes, room, eos, keys_B, self.process(), None)
            elif self.beams == 1 and supports_loop(model):
                decoded = decode_loop(model, prefixes, room, eos, keys_B, self.process(), left)
            else:
                decoded = self._generate(model, prefixes, caps, eos, keys_B)
        return [tokens[:cap] for tokens, cap in zip(decoded, caps, strict=True)]

    def _generate(
        self, model: nn.Module, prefixes: Sequence[Sequence[int]], caps: Sequence[int], eos: int, keys_B: Tensor
    ) -> list[tuple[int, ...]]:
        """`generate` on all rows at once, but for those that the others' room would take out of the model's window."""
        out: list[tuple[int, ...]] = [()] * len(prefixes)
        limit = None if is_encoder_decoder(model) else window(model)  # type: ignore[arg-type]
        most = max(caps)
        rooms = [
            cap if limit and len(prefix) + most > limit else most for prefix, cap in zip(prefixes, caps, strict=True)
        ]
        for room in sorted(set(rooms)):
            some = [row for row, its in enumerate(rooms) if its == room]
            own = [caps[row] for row in some]
            decoded = self.generate(model, [prefixes[row] for row in some], room, eos, keys_B[some], own)
            for row, tokens in zip(some, decoded, strict=True):
                out[row] = tokens
        return out

    def process(self) -> Process | None:
        """What makes greedy search of a loop sample: filters, and noise on the log-probabilities."""
        if not self.sample:
            return None
        warpers = self.warpers()

        def noisy(logits: Tensor, keys_B: Tensor, position: int | Tensor) -> Tensor:
            log_probs = torch.log_softmax(warpers(None, logits), dim=-1)  # type: ignore[arg-type]
            return log_probs + gumbel(keys_B, position, logits.shape[-1])

        return noisy

    @torch.no_grad()
    def generate(
        self,
        model: nn.Module,
        prefixes: Sequence[Sequence[int]],
        max_new_tokens: int,
        eos: int,
        keys_B: Tensor,
        caps: Sequence[int] = (),
    ) -> list[tuple[int, ...]]:
        """The general way, and the reference for the fast loop: the library's own `generate`. What a row has after its
        own cap, if it has one, means nothing."""
        device = next(model.parameters()).device
        translates = is_encoder_decoder(model)  # its input is a source, padded on the right; its output stands alone
        ids = padded(prefixes, eos, device, left=not translates)
        mask = padded([[1] * len(prefix) for prefix in prefixes], 0, device, left=not translates)
        start = 1 if translates else ids.shape[1]
        processors = LogitsProcessorList()
        if self.sample:
            processors = LogitsProcessorList([*self.warpers(), GumbelNoise(keys_B, start)])
        config = self.plain_config(max_new_tokens, eos)
        if translates:
            config.decoder_start_token_id = model.config.decoder_start_token_id  # type: ignore[union-attr]
        with own_settings_aside(model):
            out = model.generate(  # type: ignore[operator]
                input_ids=ids,
                attention_mask=mask,
                logits_processor=processors,
                stopping_criteria=StoppingCriteriaList([OwnCaps(caps, start)] if caps else []),
                generation_config=config,
            )
        return [ended_at(row, eos) for row in out[:, start:].tolist()]

    def plain_config(self, max_new_tokens: int, eos: int) -> GenerationConfig:
        """Without the library's own sampling: ours is greedy search on noisy logits."""
        return GenerationConfig(
            do_sample=False,
            num_beams=self.beams,
            max_new_tokens=max_new_tokens,
            eos_token_id=eos,
            pad_token_id=eos,
        )

    def warpers(self) -> LogitsProcessorList:
        """The library's own filters, in its order."""
        chosen: list[LogitsProcessor] = []
        if self.temperature != 1:
            chosen.append(TemperatureLogitsWarper(float(self.temperature)))
        if self.top_k:
            chosen.append(TopKLogitsWarper(self.top_k))
        if self.top_p < 1:
            chosen.append(TopPLogitsWarper(self.top_p))
        return LogitsProcessorList(chosen)


@contextmanager
def own_settings_aside(model: nn.Module) -> Iterator[None]:
    """The model, or one inside adapters, without its own settings of `generate`: those fill what a configuration leaves
    open, with penalties, tokens never to be chosen or an ⟨eos⟩ forced at the cap, which no decoder here asks for."""
    own = [(vars(module), vars(module).get("generation_config")) for module in model.modules()]
    own = [(attributes, settings) for attributes, settings in own if settings is not None]
    try:
        for attributes, _ in own:
            attributes["generation_config"] = GenerationConfig()
        yield
    finally:
        for attributes, settings in own:
            attributes["generation_config"] = settings


class GumbelNoise(LogitsProcessor):
    """Adds the noise of each row and position, so that `generate` without sampling samples."""

    def __init__(self, keys_B: Tensor, start: int):
        self.keys_B, self.start = keys_B, start

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        noise = gumbel(self.keys_B, input_ids.shape[1] - self.start, scores.shape[-1])
        return torch.log_softmax(scores, dim=-1) + noise


class OwnCaps(StoppingCriteria):
    """Every row ends at its own cap, as it would alone: a beam that went on could be another one before the cap."""

    def __init__(self, caps: Sequence[int], start: int):
        self.caps, self.start = caps, start

    def __call__(self, input_ids: Tensor, scores: Any, **kwargs: Any) -> Tensor:
        reached_B = torch.tensor([input_ids.shape[1] - self.start >= cap for cap in self.caps], device=input_ids.device)
        return reached_B.repeat_interleave(len(input_ids) // len(self.caps))  # beams of a row are next to each other


def training_length(max_target: int) -> int:
    """The cap on decoding while training: 1.3 × the longest target of the batch."""
    return max(1, int(TRAINING_LENGTH * max_target))


def caps_of(model: nn.Module, prefixes: Sequence[Sequence[int]], max_new_tokens: Cap) -> list[int]:
    """How many new tokens each prefix may have: so many, or what it leaves of the model's window."""
    limit = window(model) if hasattr(model, "config") else None  # type: ignore[arg-type]
    caps = []
    for prefix in prefixes:
        cap = max_new_tokens(prefix) if callable(max_new_tokens) else max_new_tokens
        if cap < 1:
            raise UserError(f"the number of new tokens must be at least 1, got {cap}")
        left = cap if limit is None else limit - (0 if is_encoder_decoder(model) else len(prefix))
        if left < 1:
            raise UserError(f"a prefix of {len(prefix)} tokens leaves no room in the model's window of {limit}")
        caps.append(min(cap, left))
    return caps
