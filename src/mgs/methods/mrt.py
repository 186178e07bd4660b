"""Minimum risk training: the expected cost under the model, restricted to a set S of sequences and renormalised.

C_MRT = Σ_{Y ∈ S} q(Y) c(Y),    q(Y) = p_θ(Y | X)^α / Σ_{Y' ∈ S} p_θ(Y' | X)^α
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

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
        gradient, loss = samples.gradient(model, lambda log_p: self.risk(log_p, samples, len(batch)), self.bf16)
        return Outcome(gradient, loss, sample_log(samples) | {"risk": loss}, weight=len(batch))

    def sets(self, model: nn.Module, batch: Batch, key: Key) -> list[list[Text]]:
        """S of each row: a set, so equal sequences count once."""
        members = draw(self.task, model, batch, self.num_samples, key)
        if self.greedy:
            _extend(members, self.task.decode(model, batch, (*key,), Decoder()))
        if self.gold:
            _extend(members, self.task.references(batch))
        return [list({text.token_ids: text for text in row}.values()) for row in members]

    def risk(self, log_likelihoods: Tensor, samples: Samples, num_rows: int) -> Tensor:
        """Mean over rows of Σ q c."""
        scores = self.temperature * log_likelihoods
        if self.length_normalised:
            scores = scores / torch.tensor(samples.lengths, device=scores.device)
        return risk(scores, samples.costs, samples.owner, num_rows)


def risk(scores: Tensor, costs: list[float], owner: list[int], num_rows: int) -> Tensor:
    """Σ softmax(scores within each row) · cost, averaged over rows."""
    index = torch.tensor(owner, device=scores.device)
    costs_N = torch.tensor(costs, device=scores.device, dtype=scores.dtype)
    top = scores.new_full((num_rows,), -torch.inf).scatter_reduce(0, index, scores.detach(), "amax")
    shares = (scores - top[index]).exp()  # of the row's likeliest
    sums = scores.new_zeros(num_rows).index_add(0, index, shares)
    return (shares / sums[index] * costs_N).sum() / num_rows


def _extend(members: list[list[Text]], more: list[Text]) -> None:
    for row, text in zip(members, more, strict=True):
        row.append(text)
