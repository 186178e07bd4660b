"""MGS as a training method: gradients from the batch, candidates around them, the cost of what they decode."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import nn
from tqdm.auto import tqdm

from mgs.candidates import Candidates, Task
from mgs.candidates.forms import Number
from mgs.errors import UserError
from mgs.methods.budget import Budget, Limits
from mgs.methods.centres import Centres
from mgs.methods.method import Key, Outcome, Stateless
from mgs.methods.parts import alignments, divided
from mgs.methods.scoring import Dealt, scores
from mgs.methods.transfer import transfer_log
from mgs.methods.walk import Walk
from mgs.ranks import ALONE, Ranks
from mgs.search import Proposal, ProposalForm, Temperature, Update, mgs_update
from mgs.search.directions import norm
from mgs.types import Batch


class Proposed(NamedTuple):
    """An update's candidates, the rows that score them, facts about each gradient, and what may be spent."""

    proposal: Proposal
    scored: Batch
    facts: list[dict[str, Any]]
    limits: Limits | None


@dataclass
class MGS(Stateless):
    """Minimises `task` by parameter search.

    `guides` are what the centres beside zero are gradients of: the likelihood, as in the paper, the logit of the end
    (see `ends.py`), the chance to stop where the model goes round in circles (`loops.py`), how far it is from stopping
    before it does (`stops.py`), the expected cost of `num_samples` samples a row, or the likelihood of what is decoded,
    weighted by its cost (`decoded.py`). All but the first take the batch's first `guide_prefixes`, or all. With a
    `walk`, centres are where that leads down such a loss, held to the `anchor` (`walk.py`), rather than gradients.

    `num_gradients` J > 1 cuts the batch into J parts, each giving a centre of likelihood: in the order drawn, or, with
    `split` length, from short targets to long, which makes the gradients differ more. All prefixes, or the first
    `score_prefixes` of them, score every candidate; with `score_apart` only the others give gradients. `halvings` lets
    the worse half go after a part of the rows. `log_base` also decodes θ itself, which only the log needs.

    `likelihood_weight` λ adds λ times the negative log-likelihood of a target token to a candidate's cost;
    `likelihood_budget` refuses candidates whose perplexity is more than that share above that of `anchor`, the weights
    the run started from, and an update may spend `likelihood_pace` of it; with `length_unit` budget, lengths are shares
    of the one at which a gradient spends that, and so is the update's. Every `probe_transfer` updates the log says how
    candidates do on prefixes that `fresh` draws.
    """

    task: Task
    form: ProposalForm = field(default_factory=ProposalForm)
    num_candidates: int = 4
    temperature: Temperature = field(default_factory=Temperature)
    guides: Sequence[str] = ("mle",)
    num_samples: int = 4
    guide_prefixes: int | None = None
    walk: Walk | None = None
    num_gradients: int = 1
    split: str = "order"
    score_prefixes: int | None = None
    score_apart: bool = False
    halvings: int = 0
    likelihood_weight: float = 0.0
    likelihood_budget: float | None = None
    likelihood_pace: float = 1.0
    length_unit: str = "norm"
    anchor: nn.Module | None = None
    probe_transfer: int = 0
    fresh: Callable[[int, Batch, Key], Batch] | None = None  # so many rows that are not in the batch
    max_gradient_norm: float = 1.0
    log_base: bool = False
    bf16: bool = False
    label_smoothing: float = 0.0  # of the likelihood whose gradients are the centres
    ranks: Ranks = ALONE  # the processes that candidates are dealt to, ...
    shard_data: bool = False  # ... or the rows of each batch
    progress: bool = False  # a bar within each update that takes more than a few seconds
    name: str = "mgs"

    def __post_init__(self) -> None:
        if self.halvings and not self.task.cost.by_sequence:
            self.task = replace(self.task, cost=replace(self.task.cost, by_sequence="halvings"))
        if self.likelihood_budget is not None and self.anchor is None:
            raise UserError("likelihood_budget is counted from a model: give the one that training starts from, anchor")
        if self.length_unit == "budget" and self.likelihood_budget is None:
            raise UserError("length_unit budget needs one: give likelihood_budget, or length_unit norm")
        if self.walk is not None and self.anchor is None:
            raise UserError("a walk is held to what a model says: give the one that training starts from, anchor")
        self.candidates = Candidates(self.task)
        self.dealt = Dealt(self.ranks, self.shard_data)
        self.centres = Centres(
            task=self.task,
            guides=self.guides,
            num_parts=self.num_gradients,
            split=self.split,
            prefixes=self.guide_prefixes,
            num_samples=self.num_samples,
            walk=self.walk,
            anchor=self.anchor,
            max_norm=self.max_gradient_norm,
            bf16=self.bf16,
            label_smoothing=self.label_smoothing,
            over=self.ranks if self.shard_data else ALONE,
            progress=self.progress,
        )
        self.budget = Budget(
            self.candidates,
            self.dealt,
            self.likelihood_weight,
            self.likelihood_budget,
            self.likelihood_pace,
            self.anchor,
        )

    def __call__(self, model: nn.Module, batch: Batch, key: Key) -> Outcome:
        proposal, scored, facts, limits = self.propose(model, batch, key)
        nlls, refused, said = self.budget(model, proposal, scored, limits)
        compute = partial(self._costs, model, proposal, key)  # lines 6 and 7
        found = scores(compute, len(proposal), scored, self.halvings, refused, self.form.stay, self.log_base)
        pairs = zip(found.costs, nlls, strict=True)
        weighed = [None if cost is None else cost + self.likelihood_weight * nll for cost, nll in pairs]
        update = mgs_update(proposal, weighed, self.temperature, found.base, found.finalists)  # lines 8 and 9
        said |= self._stretch(model, update, scored, limits, key)
        log = update.log() | {"costs": found.costs, "best_cost": found.best} | found.log() | said
        log |= self._of_parts(proposal, facts)
        log |= {
            "gradient_norm": float(torch.linalg.vector_norm(proposal.gradients[0], dtype=torch.float64)),
            "num_scored": len(scored),
            "max_target": batch.max_target,
            "target_lengths": [len(target) for target in batch.targets],
        }
        fresh = self._probe(model, proposal, found.finalists, batch, len(scored), key)
        log |= transfer_log(update, found.costs, fresh) if fresh else {}
        descent = dict(zip(update.direction, torch._foreach_neg(list(update.direction.values())), strict=True))
        return Outcome(descent, found.shown, log)

    def propose(self, model: nn.Module, batch: Batch, key: Key) -> Proposed:
        scored, rest = divided(batch, self.score_prefixes, self.score_apart)
        if self.score_apart and len(rest) < (self.guide_prefixes or 0) / 2:
            told = f"{self.guide_prefixes} rows for guides beside {self.score_prefixes} that score"
            do = "raise batch_tokens if there are more data, or lower guide_prefixes and score_prefixes"
            warnings.warn(f"batches are too small to have {told}: {do}", stacklevel=2)
        gradients, facts = self.centres(model, rest, key)  # Algorithm 1, line 3
        limits = self.budget.limits(model, scored)
        if limits and self.length_unit == "budget":
            spans = self.budget.scale(model, gradients, scored, limits, key)
            facts = [fact | {"span": span} for fact, span in zip(facts, spans, strict=True)]
        guides = [fact["guide"] for fact in facts]
        proposal = Proposal(self.form, gradients, self.num_candidates, *key, names=guides)  # lines 4 and 5
        return Proposed(proposal, scored, facts, limits)

    def _stretch(
        self, model: nn.Module, update: Update, scored: Batch, limits: Limits | None, key: Key
    ) -> dict[str, float]:
        """Brings a mean of several candidates, in place, to the length at which it costs what they do in the mean. It
        is shorter than they are, and has not been decoded there."""
        length = norm(update.direction)
        if limits is None or self.length_unit != "budget" or not length or update.weights.count_nonzero() < 2:
            return {}
        (span,) = self.budget.scale(model, [update.direction], scored, limits, key)
        pairs = zip(update.weights.tolist(), update.lengths, strict=True)
        share = math.fsum(weight * abs(length) for weight, length in pairs)
        torch._foreach_mul_(list(update.direction.values()), share)
        return {"stretched": share * span / length}

    def _of_parts(self, proposal: Proposal, facts: list[dict[str, Any]]) -> dict[str, Any]:
        """What the log says of each gradient, so that one can tell which of them win."""
        losses = {guide: [fact["loss"] for fact in facts if fact["guide"] == guide] for guide in self.guides}
        log: dict[str, Any] = {f"{guide}_loss": sum(each) / len(each) for guide, each in losses.items()}
        aligned = zip(facts, alignments(proposal.gram()), strict=True)
        return log | {"guides": proposal.names, "parts": [fact | {"alignment": cosine} for fact, cosine in aligned]}

    def _costs(
        self, model: nn.Module, proposal: Proposal, noise: Sequence[int], numbers: Sequence[Number], batch: Batch
    ) -> list[float]:
        """C(θ+Δ_k) on these rows; where `numbers` has None, C(θ)."""

        def compute(mine: Sequence[Number], rows: Batch) -> list[float]:
            with tqdm(total=len(mine), desc="candidates", leave=False, delay=3, disable=not self.progress) as bar:
                return self.candidates.means(model, proposal, mine, rows, noise, bar.update)

        return self.dealt.means(compute, numbers, batch)

    def _probe(
        self, model: nn.Module, proposal: Proposal, numbers: Sequence[int], batch: Batch, num: int, key: Key
    ) -> dict[int, float]:
        """These candidates' costs on `num` fresh prefixes, at updates that are probed. It changes nothing."""
        if not self.probe_transfer or key.step % self.probe_transfer or key.micro or self.fresh is None:
            return {}
        rows = self.fresh(num, batch, key)
        if not len(rows) or not numbers:
            return {}
        return dict(zip(numbers, self._costs(model, proposal, (key.number("probe"),), numbers, rows), strict=True))
