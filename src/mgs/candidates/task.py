"""The task: the cost of what a model decodes. C(θ) of the paper, for any θ."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from torch import nn
from transformers import PreTrainedTokenizerBase

from mgs.candidates.fused import fused
from mgs.costs import Cost
from mgs.data.completion import end_of_sequence
from mgs.decoding import Decoder, training_length
from mgs.decoding.agreement import supports_graph
from mgs.decoding.decoder import caps_of
from mgs.metrics import decode_texts, texts
from mgs.types import Batch, Text


@dataclass(frozen=True)
class Task:
    """A decoder and a cost. `max_new_tokens` None is the training cap, 1.3 × the batch's longest target."""

    tokenizer: PreTrainedTokenizerBase
    decoder: Decoder
    cost: Cost
    max_new_tokens: int | None = None

    @property
    def end(self) -> int:
        """⟨eos⟩."""
        return end_of_sequence(self.tokenizer)

    def cap(self, batch: Batch) -> int:
        return self.max_new_tokens or training_length(batch.max_target)

    def caps(self, model: nn.Module, batch: Batch) -> list[int]:
        """Of each row: the cap, or what the model's window leaves of it."""
        return caps_of(model, batch.prefixes, self.cap(batch))

    def decode(
        self,
        model: nn.Module,
        batch: Batch,
        noise: Sequence[int],
        decoder: Decoder | None = None,
        numbers: Sequence[int] | None = None,
    ) -> list[Text]:
        """Ŷ for each X of the batch. Noise belongs to a row's number, its own in the batch unless given."""
        decoder = decoder or self.decoder
        rows = batch.numbers if numbers is None else numbers
        with fused(model) if decoder.beams == 1 and supports_graph(model) else nullcontext():
            return decode_texts(model, self.tokenizer, batch.prefixes, decoder, self.cap(batch), noise, numbers=rows)

    def costs(self, hypotheses: Sequence[Text], batch: Batch) -> list[float]:
        """c(Ŷ, Y) of each row."""
        return self.cost.per_sequence(hypotheses, self.references(batch), **self.columns(batch))

    def mean_cost(self, model: nn.Module, batch: Batch, noise: Sequence[int] = (0,)) -> float:
        """C(θ) on a batch."""
        return self.cost.mean(self.decode(model, batch, noise), self.references(batch), **self.columns(batch))

    def references(self, batch: Batch) -> list[Text]:
        return texts(self.tokenizer, batch.targets)

    def columns(self, batch: Batch) -> dict[str, list[Any]]:
        """What a cost may ask for by name beside hypotheses and references."""
        return batch.columns() | {"prefixes": texts(self.tokenizer, batch.prefixes)}
