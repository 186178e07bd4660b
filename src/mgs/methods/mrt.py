"""Minimum risk training: the expected cost under the model, restricted to a set S of sequences and renormalised.

C_MRT = Σ_{Y ∈ S} q(Y) c(Y),    q(Y) = p_θ(Y | X)^α / Σ_{Y' ∈ S} p_θ(Y' | X)^α
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from mgs.candidates import Task
from mgs.decoding import Decoder
from mgs.methods.method import Key, Outcome, Stateless
from mgs.methods.sampling import Samples, draw, sample_log, scored
from mgs.types import Batch, Text


@dataclass
class MRT(Stateless):
    """`greedy` and `gold` add the greedy continuation and the human one to S."""

    task: Task
    num_samples: int = 4
    temperature: float = 1.0  # α
    greedy: bool = False
    gold: bool = False
    length_normalised: bool = False
    bf16: bool = False
    name: str = "mrt"

    def __call__(self, model: nn.Module, batch: Batch, key: Key) -> Outcome:
        samples = scored(self.task, batch, self.sets(model, batch, key))
        gradient, loss = samples.gradient(model, lambda log_p: self.risk(log_p, samples), self.bf16)
        return Outcome(gradient, loss, sample_log(samples) | {"risk": loss}, weight=len(batch))

    def sets(self, model: nn.Module, batch: Batch, key: Key) -> list[list[Text]]:
        """S of each row: a set, so equal sequences count once."""
        members = draw(self.task, model, batch, self.num_samples, key)
        if self.greedy:
            _extend(members, self.task.decode(model, batch, (*key,), Decoder()))
        if self.gold:
            _extend(members, self.task.references(batch))
        return [list({text.token_ids: text for text in row}.values()) for row in members]

    def risk(self, log_likelihoods: Tensor, samples: Samples) -> Tensor:
        """Mean over rows of Σ q c."""
        scores = self.temperature * log_likelihoods
        if self.length_normalised:
            scores = scores / torch.tensor(samples.lengths, device=scores.device)
        return risk(scores, samples.costs, samples.owner)


def risk(scores: Tensor, costs: list[float], owner: list[int]) -> Tensor:
    """Σ softmax(scores within each row) · cost, averaged over rows, whose samples follow each other. Sums over padded
    rows, unlike those by index, have the same order every time on a GPU."""
    sizes = list(Counter(owner).values())
    scores_RS = pad_sequence(scores.split(sizes), batch_first=True, padding_value=-torch.inf)
    costs_RS = pad_sequence(scores.new_tensor(costs).split(sizes), batch_first=True)
    return (scores_RS.softmax(dim=1) * costs_RS).sum(dim=1).mean()


def _extend(members: list[list[Text]], more: list[Text]) -> None:
    for row, text in zip(members, more, strict=True):
        row.append(text)
