"""Self-normalised importance weights (the paper's equation for w), in the log domain and in float64.

    w(Δ_k) = exp(α (C(θ) − C(θ+Δ_k))) / q̃(Δ_k),    w̃_k = w_k / Σ w

Costs may be summed log-likelihoods of any size; only their differences ever enter an exponential.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from mgs.errors import UserError
from mgs.types import Direction


def importance_weights(
    base_cost: float,
    costs: Sequence[float] | Tensor,
    log_density: Sequence[float] | Tensor | None = None,
    temperature: float = 1.0,
) -> Tensor:
    """Normalised weights of the candidates, float64, summing to 1.

    `base_cost` is C(θ); it cancels in the normalisation and is here because the equation has it.

    >>> importance_weights(1e6, [1e6, 1e6 + math.log(3)], [0.0, 0.0], 1.0)
    tensor([0.7500, 0.2500], dtype=torch.float64)
    """
    costs_K = torch.as_tensor(costs, dtype=torch.float64)
    log_density_K = (
        torch.zeros_like(costs_K) if log_density is None else torch.as_tensor(log_density, dtype=torch.float64)
    )
    if costs_K.ndim != 1 or not len(costs_K) or costs_K.shape != log_density_K.shape:
        raise UserError(
            "weights need K ≥ 1 costs and as many densities, "
            f"got {tuple(costs_K.shape)} and {tuple(log_density_K.shape)}"
        )
    if not (costs_K.isfinite().all() and log_density_K.isfinite().all() and math.isfinite(base_cost)):
        raise UserError("weights need finite costs and densities; replace or drop candidates that have none")
    if not (math.isfinite(temperature) and temperature >= 0):
        raise UserError(f"the temperature must be a number ≥ 0, got {temperature}")
    # C(θ) cancels, so the lowest cost may stand in its place: differences then keep all their digits at any size.
    return torch.softmax(temperature * (costs_K.min() - costs_K) - log_density_K, dim=0)


def effective_sample_size(weights: Tensor) -> float:
    """(Σ w)² / Σ w²: K for uniform weights, 1 when one candidate takes all, 0 when none has any."""
    return float(weights.sum() ** 2 / weights.square().sum()) if weights.any() else 0.0


def temperature_for(
    costs: Sequence[float] | Tensor, log_density: Sequence[float] | Tensor | None, effective: float
) -> float:
    """The α at which the effective sample size is `effective`, by bisection on a logarithmic scale.

    Where no temperature gives it (all costs equal: every α gives K), the nearest bound is returned. At the upper one
    the best candidate takes all, however close the second and however far the worst; so it is where 1 is asked for.
    """
    costs_K = torch.as_tensor(costs, dtype=torch.float64)
    importance_weights(0.0, costs_K, log_density)  # refuses what has no weights
    above = costs_K - costs_K.min()
    if not above.any():
        return 1.0
    low, high = math.log(1e-6 / float(above.max())), math.log(1e6 / float(above[above > 0].min()))
    if effective <= 1:
        return math.exp(high)
    for _ in range(60):
        middle = (low + high) / 2
        if effective_sample_size(importance_weights(0.0, costs_K, log_density, math.exp(middle))) > effective:
            low = middle
        else:
            high = middle
    return math.exp((low + high) / 2)


def variance(weights: Tensor, directions: Iterable[Direction]) -> Direction:
    """The estimator's variance for each parameter, Σ w̃_k (Δ_k − Δ̃)² (the paper's appendix).

    Reads the directions once, by Σ w̃ Δ² − Δ̃².
    """
    first: dict[str, Tensor] = {}
    second: dict[str, Tensor] = {}
    for weight, direction in zip(weights.tolist(), directions, strict=True):
        for name, tensor in direction.items():
            wide = tensor.double()
            first[name] = first.get(name, 0) + weight * wide
            second[name] = second.get(name, 0) + weight * wide.square()
    return {name: (second[name] - first[name].square()).clamp(min=0) for name in first}
