"""What minimum risk training and policy gradient share: sampled continuations with their costs and likelihoods."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from mgs.candidates import Task
from mgs.decoding import Decoder
from mgs.methods.method import Key, autocast
from mgs.models import log_likelihoods
from mgs.types import Batch, Text

ANCESTRAL = Decoder(sample=True)


@dataclass(frozen=True)
class Samples:
    """Continuations of a batch, flat: `owner` says which row each belongs to."""

    hypotheses: list[Text]
    costs: list[float]
    owner: list[int]
    log_likelihoods: Tensor  # log p_θ(Ŷ | X), differentiable

    @property
    def lengths(self) -> list[int]:
        return [len(hypothesis.token_ids) for hypothesis in self.hypotheses]


def draw(task: Task, model: nn.Module, batch: Batch, num_samples: int, key: Key) -> list[list[Text]]:
    """`num_samples` ancestral samples for each row, decoded as one batch."""
    repeated = batch.select([row for row in range(len(batch)) for _ in range(num_samples)])
    numbers = [number * num_samples + i for number in batch.numbers for i in range(num_samples)]
    flat = task.decode(model, repeated, key, ANCESTRAL, numbers)
    return [flat[start : start + num_samples] for start in range(0, len(flat), num_samples)]


def scored(task: Task, model: nn.Module, batch: Batch, sets: list[list[Text]], bf16: bool = False) -> Samples:
    """Cost and log-likelihood of every continuation in each row's set."""
    owner = [row for row, members in enumerate(sets) for _ in members]
    hypotheses = [hypothesis for members in sets for hypothesis in members]
    repeated = batch.select(owner)
    costs = task.costs(hypotheses, repeated)
    model.train()
    with autocast(model, bf16):
        likelihoods = log_likelihoods(model, repeated.prefixes, [hypothesis.token_ids for hypothesis in hypotheses])
    return Samples(hypotheses, costs, owner, likelihoods)


def sample_log(samples: Samples) -> dict[str, object]:
    return {
        "cost": sum(samples.costs) / len(samples.costs),
        "costs": samples.costs,
        "num_samples": len(samples.costs),
        "sample_length": sum(samples.lengths) / len(samples.lengths),
    }
