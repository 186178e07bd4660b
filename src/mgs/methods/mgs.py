"""MGS as a training method: gradients from the batch, candidates around them, the cost of what they decode."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import torch
from torch import nn
from tqdm.auto import tqdm

from mgs.candidates import Candidates, Task
from mgs.methods.method import Key, Outcome, Stateless
from mgs.methods.mle import mle_gradient
from mgs.search import Proposal, ProposalForm, Temperature, mgs_update
from mgs.search.directions import clipped, norm
from mgs.types import Batch

SPLITS = ("order", "length")


@dataclass
class MGS(Stateless):
    """Minimises `task` by parameter search.

    `num_gradients` J > 1 cuts the batch into J parts, each giving a centre of its own: in the order drawn, or, with
    `split` length, from short targets to long, which makes the gradients differ more. All prefixes, or the first
    `score_prefixes` of them, score every candidate. `log_base` also decodes θ itself, which only the log needs.
    """

    task: Task
    form: ProposalForm = field(default_factory=ProposalForm)
    num_candidates: int = 4
    temperature: Temperature = field(default_factory=Temperature)
    num_gradients: int = 1
    split: str = "order"
    score_prefixes: int | None = None
    max_gradient_norm: float = 1.0
    log_base: bool = False
    bf16: bool = False
    label_smoothing: float = 0.0  # of the likelihood whose gradients are the centres
    progress: bool = False  # a bar within each update that takes more than a few seconds
    name: str = "mgs"

    def __post_init__(self) -> None:
        self.candidates = Candidates(self.task)

    def __call__(self, model: nn.Module, batch: Batch, key: Key) -> Outcome:
        scored = batch.select(range(min(len(batch), self.score_prefixes or len(batch))))
        gradients, losses = self._gradients(model, batch)  # Algorithm 1, line 3
        proposal = Proposal(self.form, gradients, self.num_candidates, *key)  # lines 4 and 5
        total = len(proposal) + self.log_base
        with tqdm(total=total, desc="candidates", leave=False, delay=3, disable=not self.progress) as bar:
            costs, base_cost = self.candidates.costs(model, proposal, scored, key, self.log_base, bar.update)  # 6, 7
        update = mgs_update(proposal, costs, self.temperature, base_cost)  # lines 8 and 9
        log = update.log() | {
            "gradient_norm": norm(gradients[0]),
            "mle_loss": sum(losses) / len(losses),
            "num_scored": len(scored),
            "max_target": batch.max_target,
            "target_lengths": [len(target) for target in batch.targets],
        }
        descent = dict(zip(update.direction, torch._foreach_neg(list(update.direction.values())), strict=True))
        return Outcome(descent, update.base_cost if update.base_cost is not None else min(update.costs), log)

    def _gradients(self, model: nn.Module, batch: Batch) -> tuple[list[dict], list[float]]:
        """g_j = −∇L_MLE of each part of the batch, clipped."""
        model.train()
        gradients, losses = [], []
        cut = parts(batch, self.num_gradients, self.split)
        for part in tqdm(cut, desc="gradients", leave=False, delay=3, disable=not self.progress):
            gradient, loss = mle_gradient(model, part, self.bf16, label_smoothing=self.label_smoothing)
            ascent = dict(zip(gradient, torch._foreach_neg(list(gradient.values())), strict=True))
            gradients.append(clipped(ascent, self.max_gradient_norm))
            losses.append(loss)
        return gradients, losses


def parts(batch: Batch, num: int, split: str = "order") -> list[Batch]:
    """The batch in `num` parts of nearly equal size (fewer if it has fewer rows), as drawn or by length of target."""
    order = list(range(len(batch)))
    if split == "length":
        order.sort(key=lambda row: len(batch.examples[row].target))
    num = min(num, len(batch))
    cuts = [round(i * len(batch) / num) for i in range(num + 1)]
    return [batch.select(order[start:end]) for start, end in pairwise(cuts)]
