"""MLE-guided parameter search: Algorithm 1 of the paper.

    Given a batch, a model p_θ, a decoder F, a task cost c; K candidates, temperature α, noise σ.
    1-2  decode with θ, C(θ) = mean cost
    3    g = −∇L_MLE by backpropagation on the same batch
    4    for k = 1 … K:
    5        Δ_k ~ q_MGS(· | θ, g, σ²)
    6-7      decode with θ+Δ_k, C(θ+Δ_k)
    8        w(Δ_k) = exp(α (C(θ) − C(θ+Δ_k))) / q_MGS(Δ_k)
    9    Δ_MGS = Σ_k w(Δ_k) / Σ_k' w(Δ_k') · Δ_k

Lines 1 to 3, 6 and 7 are the caller's: they need a model, and decode all candidates at once. C(θ) cancels in line 9,
so it may be left out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mgs.errors import UserError
from mgs.search.directions import norm
from mgs.search.proposal import Proposal
from mgs.search.weights import effective_sample_size, importance_weights, temperature_for
from mgs.types import Direction


@dataclass(frozen=True)
class Temperature:
    """α: a number, or chosen at every step, the largest at which the effective sample size is `share` of the candidates
    that may have weight.

    Where staying (Δ = 0) is candidate 0, those are the ones that are better than it: if none is, the search stays.
    """

    value: float | None = 1.0
    share: float = 0.5

    def __post_init__(self) -> None:
        if self.value is not None and not (math.isfinite(self.value) and self.value >= 0):
            raise UserError(f"the temperature must be a number ≥ 0, or chosen at every step; got {self.value}")

    def for_step(self, costs: Sequence[float], log_density: Sequence[float]) -> float:
        if self.value is not None:
            return self.value
        return temperature_for(costs, log_density, max(1.0, self.share * len(costs)))

    def worthy(self, costs: Sequence[float | None], chosen: list[int], stay: bool) -> list[int]:
        """Those of the chosen that weights are for."""
        if self.value is not None or not stay or (staying := costs[0]) is None:
            return chosen
        return [k for k in chosen if (cost := costs[k]) is not None and cost < staying] or [0]


@dataclass(frozen=True)
class Update:
    """Δ_MGS and everything that led to it. Only candidates that are `weighed` may have weight: those that were allowed
    and, where the temperature is chosen and staying is one of them, are better than it."""

    direction: Direction
    weights: Tensor
    costs: list[float | None]
    weighed: list[int]
    log_density: list[float]
    components: list[str]
    gradients: list[int | None]  # which gradient each candidate is centred at; None at the origin
    lengths: list[float]
    temperature: float
    base_cost: float | None
    variance: float  # Σ_k w̃_k ‖Δ_k − Δ_MGS‖², the appendix's variance summed over parameters

    def log(self) -> dict[str, object]:
        """What every update reports."""
        best = max(self.weighed, key=lambda k: float(self.weights[k]), default=None)  # None: the search stays
        guided = [float(w) for w, gradient in zip(self.weights, self.gradients, strict=True) if gradient is not None]
        return {
            "cost": self.base_cost,
            "costs": self.costs,
            "best_cost": min((cost for k in self.weighed if (cost := self.costs[k]) is not None), default=None),
            "weights": self.weights.tolist(),
            "weights_std": float(self.weights.std(correction=0)),
            "effective": effective_sample_size(self.weights),
            "temperature": self.temperature,
            "components": self.components,
            "gradients": self.gradients,
            "lengths": self.lengths,
            "winner": "zero" if best is None else self.components[best],
            "winner_gradient": None if best is None else self.gradients[best],
            "winner_length": 0.0 if best is None else self.lengths[best],
            "guided_won": float(best is not None and self.gradients[best] is not None),
            "guided_weight": math.fsum(guided),
            "log_density_spread": max(self.log_density) - min(self.log_density),
            "update_norm": norm(self.direction),
            "variance": self.variance,
        }


def mgs_update(
    proposal: Proposal,
    costs: Sequence[float | None],
    temperature: Temperature = Temperature(),
    base_cost: float | None = None,
    allowed: Sequence[int] | None = None,
) -> Update:
    """Lines 8 and 9 of Algorithm 1, from the candidates' costs C(θ+Δ_k).

    Where only some are `allowed` (in order, and staying, if it is a candidate, among them), the weights are theirs
    alone, and the others need no cost; where none is, the update is zero.
    """
    if len(costs) != len(proposal):
        raise UserError(f"{len(proposal)} candidates need as many costs, got {len(costs)}")
    chosen = temperature.worthy(costs, list(range(len(costs)) if allowed is None else allowed), proposal.form.stay)
    log_density = proposal.log_densities()
    weights = torch.zeros(len(costs), dtype=torch.float64)
    alpha = temperature.value or 0.0
    if chosen:
        own_density = [log_density[k] for k in chosen]
        own_costs = [math.nan if (cost := costs[k]) is None else cost for k in chosen]  # which no weight takes
        alpha = temperature.for_step(own_costs, own_density)
        weights[chosen] = importance_weights(own_costs, own_density, alpha)  # 8, normalised as in 9
    mean = proposal.mean(weights.tolist())  # 9
    mean_square = math.fsum(w * s for w, s in zip(weights.tolist(), proposal.squared_norms(), strict=True))
    return Update(
        direction=mean,
        weights=weights,
        costs=list(costs),
        weighed=chosen,
        log_density=log_density,
        components=proposal.components,
        gradients=[centre.gradient for centre in proposal.assigned],
        lengths=[centre.length for centre in proposal.assigned],
        temperature=alpha,
        base_cost=base_cost,
        variance=max(0.0, mean_square - norm(mean) ** 2),
    )
