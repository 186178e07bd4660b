"""Self-normalised importance weights (the paper's equation for w), in the log domain and in float64.

    w(Δ_k) = exp(α (C(θ) − C(θ+Δ_k))) / q̃(Δ_k),    w̃_k = w_k / Σ w

Costs may be summed log-likelihoods of any size; only their differences ever enter an exponential.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from mgs.errors import UserError

STEPS, ZOOMS = 256, 6  # temperatures looked at, each time within the two steps around the one found: to 12 digits


def importance_weights(
    costs: Sequence[float] | Tensor,
    log_density: Sequence[float] | Tensor | None = None,
    temperature: float = 1.0,
) -> Tensor:
    """Normalised weights of the candidates, float64, summing to 1.

    C(θ) cancels in the normalisation.

    >>> importance_weights([1e6, 1e6 + math.log(3)], [0.0, 0.0], 1.0)
    tensor([0.7500, 0.2500], dtype=torch.float64)
    """
    costs_K, log_density_K = _checked(costs, log_density)
    if not (math.isfinite(temperature) and temperature >= 0):
        raise UserError(f"the temperature must be a number ≥ 0, got {temperature}")
    # The lowest cost stands in the place of C(θ): differences then keep all their digits at any size.
    return torch.softmax(temperature * (costs_K.min() - costs_K) - log_density_K, dim=0)


def effective_sample_size(weights: Tensor) -> float:
    """(Σ w)² / Σ w²: K for uniform weights, 1 when one candidate takes all, 0 when none has any."""
    return float(weights.sum() ** 2 / weights.square().sum()) if weights.any() else 0.0


def temperature_for(
    costs: Sequence[float] | Tensor, log_density: Sequence[float] | Tensor | None, effective: float
) -> float:
    """The largest α at which the effective sample size is `effective`, densities included.

    There may be lower ones, where densities differ by more than costs: with those, costs would hardly count. If none
    gives as much as that, it is the α that gives most. Where 1 is asked for, α is so large that the best candidate
    takes all, however close the second and however far the worst; where all of K, so small that costs do not count.
    """
    costs_K, log_density_K = _checked(costs, log_density)
    above_K = costs_K - costs_K.min()
    if not above_K.any():
        return 1.0
    high, low = math.log(1e6 / float(above_K[above_K > 0].min())), math.log(1e-6 / float(above_K.max()))
    if effective <= 1 or effective >= len(costs_K):
        return math.exp(high if effective <= 1 else low)
    for _ in range(ZOOMS):
        logs_N = torch.linspace(high, low, STEPS, dtype=torch.float64)
        weights_NK = torch.softmax(-logs_N.exp()[:, None] * above_K - log_density_K, dim=1)
        sizes_N = 1 / weights_NK.square().sum(dim=1)
        enough_N = sizes_N >= effective
        found = int((enough_N if enough_N.any() else sizes_N).double().argmax())  # the first, from above
        high, low = float(logs_N[max(0, found - 1)]), float(logs_N[min(STEPS - 1, found + 1)])
    return math.exp(float(logs_N[found]))


def _checked(costs: Sequence[float] | Tensor, log_density: Sequence[float] | Tensor | None) -> tuple[Tensor, Tensor]:
    """Both in float64; no density is the same for all."""
    costs_K = torch.as_tensor(costs, dtype=torch.float64)
    log_density_K = (
        torch.zeros_like(costs_K) if log_density is None else torch.as_tensor(log_density, dtype=torch.float64)
    )
    if costs_K.ndim != 1 or not len(costs_K) or costs_K.shape != log_density_K.shape:
        raise UserError(
            "weights need K ≥ 1 costs and as many densities, "
            f"got {tuple(costs_K.shape)} and {tuple(log_density_K.shape)}"
        )
    if not (costs_K.isfinite().all() and log_density_K.isfinite().all()):
        raise UserError("weights need finite costs and densities; replace or drop candidates that have none")
    return costs_K, log_density_K
