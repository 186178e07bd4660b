"""What minimum risk training and policy gradient share: sampled continuations, their costs, and gradients through how
likely they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn

from mgs.candidates import Task
from mgs.decoding import Decoder
from mgs.methods.method import Key
from mgs.methods.weighted import gradient_through
from mgs.types import Batch, Direction, Text

ANCESTRAL = Decoder(sample=True)


@dataclass(frozen=True)
class Samples:
    """Continuations of a batch, flat: `owner` says which row each belongs to."""

    prefixes: list[tuple[int, ...]]
    hypotheses: list[Text]
    costs: list[float]
    owner: list[int]

    @property
    def lengths(self) -> list[int]:
        return [len(hypothesis.token_ids) for hypothesis in self.hypotheses]

    def gradient(
        self, model: nn.Module, loss: Callable[[Tensor], Tensor], bf16: bool = False
    ) -> tuple[Direction, float]:
        """∇ of a loss that depends on all log p_θ(Ŷ | X), and the loss."""
        model.train()
        return gradient_through(model, self.prefixes, [text.token_ids for text in self.hypotheses], loss, bf16)


def draw(task: Task, model: nn.Module, batch: Batch, num_samples: int, key: Key) -> list[list[Text]]:
    """`num_samples` ancestral samples for each row, decoded as one batch."""
    repeated = batch.select([row for row in range(len(batch)) for _ in range(num_samples)])
    numbers = [number * num_samples + i for number in batch.numbers for i in range(num_samples)]
    flat = task.decode(model, repeated, key, ANCESTRAL, numbers)
    return [flat[start : start + num_samples] for start in range(0, len(flat), num_samples)]


def scored(task: Task, batch: Batch, sets: list[list[Text]]) -> Samples:
    """The cost of every continuation in each row's set."""
    owner = [row for row, members in enumerate(sets) for _ in members]
    hypotheses = [hypothesis for members in sets for hypothesis in members]
    repeated = batch.select(owner)
    return Samples(repeated.prefixes, hypotheses, task.costs(hypotheses, repeated), owner)


def sample_log(samples: Samples) -> dict[str, object]:
    return {
        "cost": sum(samples.costs) / len(samples.costs),
        "costs": samples.costs,
        "num_samples": len(samples.costs),
        "sample_length": sum(samples.lengths) / len(samples.lengths),
    }
