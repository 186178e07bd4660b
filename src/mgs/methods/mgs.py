"""MGS as a training method: gradients from the batch, candidates around them, the cost of what they decode."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise

import torch
from torch import nn
from tqdm.auto import tqdm

from mgs.candidates import Candidates, Task
from mgs.errors import NonFinite
from mgs.methods.method import Key, Outcome, Stateless
from mgs.methods.mle import mle_gradient, num_scored
from mgs.methods.parallel import averaged
from mgs.methods.risk import risk_gradient
from mgs.ranks import ALONE, Ranks
from mgs.search import Proposal, ProposalForm, Temperature, mgs_update
from mgs.search.directions import clipped, norm
from mgs.types import Batch

SPLITS = ("order", "length")
GUIDES = ("mle", "risk")


@dataclass
class MGS(Stateless):
    """Minimises `task` by parameter search.

    `guides` are what the centres beside zero are gradients of: the likelihood, as in the paper, or the expected cost of
    `num_samples` samples a row, or both.

    `num_gradients` J > 1 cuts the batch into J parts, each giving a centre of its own: in the order drawn, or, with
    `split` length, from short targets to long, which makes the gradients differ more. All prefixes, or the first
    `score_prefixes` of them, score every candidate. `log_base` also decodes θ itself, which only the log needs.
    """

    task: Task
    form: ProposalForm = field(default_factory=ProposalForm)
    num_candidates: int = 4
    temperature: Temperature = field(default_factory=Temperature)
    guides: Sequence[str] = ("mle",)
    num_samples: int = 4
    num_gradients: int = 1
    split: str = "order"
    score_prefixes: int | None = None
    max_gradient_norm: float = 1.0
    log_base: bool = False
    bf16: bool = False
    label_smoothing: float = 0.0  # of the likelihood whose gradients are the centres
    ranks: Ranks = ALONE  # the processes that candidates are dealt to, ...
    shard_data: bool = False  # ... or the rows of each batch
    progress: bool = False  # a bar within each update that takes more than a few seconds
    name: str = "mgs"

    def __post_init__(self) -> None:
        self.candidates = Candidates(self.task)

    def __call__(self, model: nn.Module, batch: Batch, key: Key) -> Outcome:
        scored = batch.select(range(min(len(batch), self.score_prefixes or len(batch))))
        gradients, losses = self._gradients(model, batch, key)  # Algorithm 1, line 3
        proposal = Proposal(self.form, gradients, self.num_candidates, *key)  # lines 4 and 5
        costs = self._costs(model, proposal, scored, key)  # lines 6 and 7
        base_cost = costs.pop() if self.log_base else None
        update = mgs_update(proposal, costs, self.temperature, base_cost)  # lines 8 and 9
        each = len(gradients) // len(self.guides)
        by_guide = {guide: losses[i * each : (i + 1) * each] for i, guide in enumerate(self.guides)}
        log = update.log() | {f"{guide}_loss": sum(part) / len(part) for guide, part in by_guide.items()}
        log |= {
            "gradient_norm": norm(gradients[0]),
            "guides": [guide for guide in self.guides for _ in range(each)],  # of each gradient
            "num_scored": len(scored),
            "max_target": batch.max_target,
            "target_lengths": [len(target) for target in batch.targets],
        }
        descent = dict(zip(update.direction, torch._foreach_neg(list(update.direction.values())), strict=True))
        return Outcome(descent, update.base_cost if update.base_cost is not None else min(update.costs), log)

    def _gradients(self, model: nn.Module, batch: Batch, key: Key = Key(0, 0)) -> tuple[list[dict], list[float]]:
        """g_j = −∇L_MLE of each part of the batch, clipped; then, or instead, −∇ of the expected cost. The same on
        every rank: by the same computation, or, with `shard_data`, as the mean of what they make of their rows."""
        model.train()
        over = self.ranks if self.shard_data else ALONE
        if over.size > 1:
            torch.manual_seed(key.number("share", over.rank))  # of the dropout
        gradients, losses = [], []
        cut = [(guide, part) for guide in self.guides for part in parts(batch, self.num_gradients, self.split)]
        for guide, part in tqdm(cut, desc="gradients", leave=False, delay=3, disable=not self.progress):
            mine = part.share(over.share(len(part)))
            whole = averaged(over, mine, partial(self._gradient, model, mine, guide, key))
            if not math.isfinite(norm(whole.gradient)):
                raise NonFinite(f"the {guide.upper()} gradient of update {key.step + 1} is not finite")
            ascent = dict(zip(whole.gradient, torch._foreach_neg(list(whole.gradient.values())), strict=True))
            gradients.append(clipped(ascent, self.max_gradient_norm))
            losses.append(whole.loss)
        return gradients, losses

    def _gradient(self, model: nn.Module, batch: Batch, guide: str, key: Key) -> Outcome:
        if guide == "risk":
            gradient, loss = risk_gradient(self.task, model, batch, self.num_samples, key, self.bf16)
            return Outcome(gradient, loss, weight=len(batch))
        gradient, loss = mle_gradient(model, batch, self.bf16, label_smoothing=self.label_smoothing)
        return Outcome(gradient, loss, weight=num_scored(batch))

    def _costs(self, model: nn.Module, proposal: Proposal, batch: Batch, key: Key) -> list[float]:
        """C(θ+Δ_k) of every candidate, and last, for the log, C(θ): each rank finds those of its candidates, or, with
        `shard_data`, of all of them on its rows."""
        numbers = [*range(len(proposal)), *([None] if self.log_base else [])]
        rows = batch.share(self.ranks.share(len(batch))) if self.shard_data else batch
        mine = numbers if self.shard_data else [numbers[i] for i in self.ranks.share(len(numbers))]
        with tqdm(total=len(mine), desc="candidates", leave=False, delay=3, disable=not self.progress) as bar:
            told = self.ranks.pooled(
                lambda: self.candidates.means(model, proposal, mine, rows, key, bar.update) if rows.counts else []
            )
        if not self.shard_data:
            return [cost for each in told for cost in each]
        shares = [len(rank_rows) / len(batch) for rank_rows in self.ranks.shares(len(batch))]
        counted = [(share, costs) for share, costs in zip(shares, told, strict=True) if share]
        return [math.fsum(share * costs[k] for share, costs in counted) for k in range(len(numbers))]


def parts(batch: Batch, num: int, split: str = "order") -> list[Batch]:
    """The batch in `num` parts of nearly equal size (fewer if it has fewer rows), as drawn or by length of target."""
    order = list(range(len(batch)))
    if split == "length":
        order.sort(key=lambda row: len(batch.examples[row].target))
    num = min(num, len(batch))
    cuts = [round(i * len(batch) / num) for i in range(num + 1)]
    return [batch.select(order[start:end]) for start, end in pairwise(cuts)]
