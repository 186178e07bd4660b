"""What candidates cost in likelihood: how much they may, which are refused, and lengths that are measured in it.

How far a gradient may be followed depends on the model: with the same loss of likelihood one goes ten times as far as
another. So a gradient can be brought to the length at which it costs what an update may spend, and candidates are
shares of that. So can the update: the mean of directions that differ is shorter than they are, and costs less.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from mgs.candidates import Candidates
from mgs.candidates.forms import Number
from mgs.candidates.likelihood import TOGETHER, num_targets
from mgs.errors import NonFinite
from mgs.methods.scoring import Dealt
from mgs.models import score
from mgs.search import Proposal, ProposalForm
from mgs.search.directions import norm
from mgs.types import Batch, Direction

UNITS = ("norm", "budget")
AS_THEY_ARE = ProposalForm(components="mle", noise=0.0, density="none")
FIRST = 0.03  # the length at which it is first asked what a gradient costs, ...
FURTHEST = 10.0  # ... and how many times longer or shorter the second may be
BISECTIONS = 30


@dataclass(frozen=True)
class Limits:
    """Mean −log p of the scored rows' target tokens under θ and under the weights that the run started from, which
    candidates may exceed by log(1 + `budget`), in steps of `pace` of that."""

    base: float
    start: float
    budget: float
    pace: float = 1.0

    @property
    def over_start(self) -> float:
        return self.base - self.start

    @property
    def allowed(self) -> float:
        """What this update may add."""
        whole = math.log1p(self.budget)
        return max(0.0, min(self.pace * whole, whole - self.over_start))

    def refused(self, nlls: Sequence[float], stay: bool) -> set[int]:
        """Candidates over the budget, or of no likelihood at all. Where θ itself is over it, those nearer
        to it than θ may pass, and staying may always."""
        most = self.base + self.allowed
        return {k for k, nll in enumerate(nlls) if not (nll <= most or (stay and k == 0))}


@dataclass
class Budget:
    """Likelihoods of candidates, where anything asks for them: `weight` in their cost, a `share` over the start's
    perplexity that they may not exceed."""

    candidates: Candidates
    dealt: Dealt
    weight: float = 0.0
    share: float | None = None
    pace: float = 1.0
    anchor: nn.Module | None = None

    def limits(self, model: nn.Module, batch: Batch) -> Limits | None:
        """How likely these rows are to θ and to the weights that the run started from: once an update, if at all."""
        if self.share is None or self.anchor is None:
            return None
        (base,), (start,) = (
            self.dealt.means(partial(_nlls, each), [None], batch, num_targets) for each in (model, self.anchor)
        )
        return Limits(base, start, self.share, self.pace)

    def scale(
        self, model: nn.Module, gradients: list[Direction], batch: Batch, limits: Limits, key: Sequence[int]
    ) -> list[float]:
        """Brings the gradients, in place, to the lengths at which they cost what this update may spend, which it
        returns. Each is asked for at one length, and then at the one that the answer suggests."""
        lost = partial(self._lost, model, gradients, batch, limits.base, key)
        asked = [FIRST] * len(gradients)
        first = lost(asked)
        again = [suggested(loss, limits.allowed) for loss in first]
        pairs = zip(asked, first, again, lost(again), strict=True)
        lengths = [affordable({short: less, long: more}, limits.allowed) for short, less, long, more in pairs]
        _bring(gradients, lengths)
        return lengths

    def _lost(
        self,
        model: nn.Module,
        gradients: list[Direction],
        batch: Batch,
        base: float,
        key: Sequence[int],
        lengths: list[float],
    ) -> list[float]:
        """What each gradient costs at its length, to which it is brought."""
        _bring(gradients, lengths)
        proposal = Proposal(AS_THEY_ARE, gradients, len(gradients), *key)
        nlls = self._nlls(model, proposal, range(len(proposal)), batch)
        of = dict(zip((centre.gradient for centre in proposal.assigned), nlls, strict=True))
        return [of[j] - base for j in range(len(gradients))]

    def __call__(
        self, model: nn.Module, proposal: Proposal, batch: Batch, limits: Limits | None
    ) -> tuple[list[float], set[int], dict[str, Any]]:
        """NLL(θ+Δ_k) of every candidate, if anything asks for it, those that are refused, and what to log."""
        if not self.weight and limits is None:
            return [0.0] * len(proposal), set(), {}
        staying = [limits.base] if limits and proposal.form.stay else []  # which is known
        nlls = [*staying, *self._nlls(model, proposal, range(len(staying), len(proposal)), batch)]
        refused: set[int] = set()
        log: dict[str, Any] = {"nlls": nlls}
        if limits is not None:
            refused = limits.refused(nlls, proposal.form.stay)
            log |= {"refused": len(refused), "nll_over_start": limits.over_start}
        if not all(math.isfinite(nll) for k, nll in enumerate(nlls) if k not in refused):
            raise NonFinite("the likelihood of a candidate is not finite: shorter lengths or less noise may help")
        return nlls, refused, log

    def _nlls(self, model: nn.Module, proposal: Proposal, numbers: Sequence[int], batch: Batch) -> list[float]:
        find = partial(self.candidates.nlls, model, proposal)
        return self.dealt.means(find, numbers, batch, num_targets, TOGETHER)


def _nlls(model: nn.Module, numbers: Sequence[Number], batch: Batch) -> list[float]:
    """Of the model itself, once for each number."""
    return [-math.fsum(score(model, batch.prefixes, batch.targets)) / num_targets(batch) for _ in numbers]


def _bring(directions: list[Direction], lengths: list[float]) -> None:
    """To these lengths, in place: they are as large as models."""
    for direction, length in zip(directions, lengths, strict=True):
        torch._foreach_mul_(list(direction.values()), length / (norm(direction) or 1.0))


def suggested(loss: float, allowed: float) -> float:
    """Where as much is lost as may be, if the loss at FIRST grows with the square of the length; not too near FIRST,
    where it would say little new."""
    if not math.isfinite(loss) or allowed <= 0:
        return FIRST / FURTHEST
    times = math.sqrt(allowed / loss) if loss > 0 else FURTHEST
    times = min(max(times, 1 / FURTHEST), FURTHEST)
    return FIRST * (max(times, 1.25) if times >= 1 else min(times, 0.8))


def affordable(costs: dict[float, float], allowed: float) -> float:
    """The length at which as much is lost as may be, given what is lost at two lengths: along the parabola through both
    and the origin. It starts level where θ is at its most likely, and with a slope where it has been led away from
    there. No gradient is followed further than the longer of the two, nor where nothing is known.

    >>> round(affordable({0.1: 0.01, 1.0: 1.0}, 0.04), 6)
    0.2
    >>> round(affordable({0.1: 0.02, 1.0: 0.2}, 0.01), 6)
    0.05
    >>> affordable({0.1: 0.0, 1.0: 1.0}, 4.0)
    1.0
    """
    (low, less), (high, more) = sorted(costs.items())
    if not math.isfinite(less):
        return 0.0
    if not math.isfinite(more):
        return low if less <= allowed else low * math.sqrt(allowed / less)
    return _crossing(_parabola(low, less, high, more), high, allowed)


def _parabola(low: float, less: float, high: float, more: float) -> Callable[[float], float]:
    bend = (more / high - less / low) / (high - low)
    slope = less / low - bend * low
    return lambda length: (slope + bend * length) * length


def _crossing(lost: Callable[[float], float], longest: float, allowed: float) -> float:
    """The longest length up to `longest` at which no more is lost than allowed."""
    if lost(longest) <= allowed:
        return longest
    low, high = 0.0, longest
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if lost(middle) <= allowed else (low, middle)
    return low
