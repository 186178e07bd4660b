"""The proposal q: where candidate directions come from, as a pair of `sample` and `log_density`.

A proposal is a list of centres and a form of noise. The paper's mixture (its equation for q_MGS),

    q(Δ) = π N(Δ | 0, σ²) + (1 − π) N(Δ | g, σ²),      g = −∇L_MLE clipped to norm 1,

has two centres, the origin and g. More centres are several batches' gradients, each at several lengths, s · g_j.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mgs.errors import UserError, unknown
from mgs.search.directions import key, noise_like
from mgs.types import Direction

COMPONENTS = ("mixture", "zero", "mle")
NOISE_SCALES = ("tensor", "global", "constant")
DENSITIES = ("unit", "exact", "none")


@dataclass(frozen=True)
class Centre:
    """`length` · g_j, or the origin where `gradient` is None; `weight` is its share of the mixture."""

    weight: float
    gradient: int | None = None
    length: float = 0.0

    @property
    def component(self) -> str:
        return "zero" if self.gradient is None else "mle"


@dataclass(frozen=True)
class ProposalForm:
    """What stays the same from step to step."""

    components: str = "mixture"
    mix: float = 0.5  # π, the weight of the zero component
    lengths: tuple[float, ...] = (1.0,)
    noise: float = 1.0  # multiplies σ
    noise_scale: str = "tensor"
    density: str = "unit"
    stratified: bool = True
    stay: bool = False  # candidate 0 is Δ = 0 itself

    def __post_init__(self) -> None:
        for kind, given, allowed in (
            ("components", self.components, COMPONENTS),
            ("noise_scale", self.noise_scale, NOISE_SCALES),
            ("density", self.density, DENSITIES),
        ):
            if given not in allowed:
                raise unknown(kind, given, allowed)
        if not 0 <= self.mix <= 1:
            raise UserError(f"mix is the share of the zero component, between 0 and 1; got {self.mix}")
        if self.noise < 0 or not self.lengths:
            raise UserError(f"noise must be ≥ 0 and lengths not empty; got {self.noise} and {self.lengths}")
        if self.density == "exact" and (self.noise == 0 or self.stay):
            raise UserError(
                "the exact density needs noise on every candidate: set noise > 0 and stay off, or density unit"
            )

    def centres(self, num_gradients: int) -> list[Centre]:
        """The mixture's components: the origin with weight π, and every gradient at every length sharing 1 − π."""
        mix = {"mixture": self.mix, "zero": 1.0, "mle": 0.0}[self.components]
        zero = [Centre(mix)] if mix > 0 else []
        num = num_gradients * len(self.lengths)
        mle = [Centre((1 - mix) / num, j, s) for j in range(num_gradients) for s in self.lengths] if mix < 1 else []
        return zero + mle


class Proposal:
    """The proposal of one step: `form` around these gradients.

    Draws are functions of (seed, step, candidate, parameter), and of whatever else `where` holds.
    """

    def __init__(self, form: ProposalForm, gradients: Sequence[Direction], num_candidates: int, *where: int):
        if num_candidates < 1:
            raise UserError(f"num_candidates must be at least 1, got {num_candidates}")
        if not gradients:
            raise UserError("a proposal needs at least one gradient: its shapes and its noise scale come from them")
        self.form, self.gradients, self.where = form, list(gradients), where
        self.centres = form.centres(len(self.gradients))
        self.assigned = self._assign(num_candidates)
        self.sigma = self._sigma()

    def __len__(self) -> int:
        return len(self.assigned)

    @property
    def components(self) -> list[str]:
        return [centre.component for centre in self.assigned]

    def sample(self, k: int) -> Direction:
        """Δ_k ~ q: its centre plus noise."""
        centre = self.assigned[k]
        silent = self.form.noise == 0 or (self.form.stay and k == 0)
        direction = {}
        for name, like in self.gradients[0].items():
            if silent:
                tensor = torch.zeros_like(like, dtype=torch.float32)
            else:
                tensor = noise_like(like, *self.where, k, name).mul_(self.sigma[name])
            if centre.gradient is not None:
                tensor.add_(self.gradients[centre.gradient][name], alpha=centre.length)
            direction[name] = tensor
        return direction

    def log_density(self, direction: Direction) -> float:
        """log q̃(Δ).

        `unit` leaves out σ and the normaliser: values hardly differ between candidates and the cost decides.
        `exact` is the log of the mixture itself; in many dimensions it lets one candidate take all the weight.
        """
        if self.form.density == "none":
            return 0.0
        logs = torch.tensor([self._log_component(c, direction) for c in self.centres], dtype=torch.float64)
        return float(torch.logsumexp(logs, dim=0))

    def _log_component(self, centre: Centre, direction: Direction) -> float:
        exact = self.form.density == "exact"
        total = [math.log(centre.weight)]
        for name, tensor in direction.items():
            mean = 0.0 if centre.gradient is None else centre.length * self.gradients[centre.gradient][name].double()
            square = float((tensor.double() - mean).square().sum())
            sigma = self.sigma[name] if exact else 1.0
            if sigma == 0:  # a tensor without gradient gets no noise, and has no density
                continue
            total.append(-0.5 * square / sigma**2)
            if exact:
                total.append(-0.5 * tensor.numel() * math.log(2 * math.pi * sigma**2))
        return math.fsum(total)

    def _sigma(self) -> dict[str, float]:
        """σ of each tensor: `noise` times the mean |g| of that tensor, of all tensors, or 1."""
        sums = {name: _sum_of_magnitudes(self.gradients, name) for name in self.gradients[0]}
        if self.form.noise_scale == "constant":
            return dict.fromkeys(sums, self.form.noise)
        if self.form.noise_scale == "global":
            count = sum(tensor.numel() for tensor in self.gradients[0].values())
            mean = math.fsum(sums.values()) / count
            return dict.fromkeys(sums, self.form.noise * mean)
        return {name: self.form.noise * total / max(1, self.gradients[0][name].numel()) for name, total in sums.items()}

    def _assign(self, num: int) -> list[Centre]:
        """Which centre each candidate belongs to. Stratified: in proportion to the weights, so that K = 4 of the
        paper's mixture is two and two; else drawn independently."""
        chance = random.Random(key(*self.where, "centres"))
        first = [Centre(0.0)] if self.form.stay else []
        if not self.form.stratified:
            return first + chance.choices(self.centres, [c.weight for c in self.centres], k=num - len(first))
        zero = [c for c in self.centres if c.gradient is None]
        mle = [c for c in self.centres if c.gradient is not None]
        num_zero = num if not mle else round(zero[0].weight * num) if zero else 0
        num_zero = max(num_zero, len(first))
        chance.shuffle(mle)  # where there are more centres than candidates, each step takes others
        assigned = [mle[i % len(mle)] for i in range(num - num_zero)]
        return (first + zero * num_zero)[:num_zero] + assigned


def _sum_of_magnitudes(gradients: Sequence[dict[str, Tensor]], name: str) -> float:
    """Σ|g_w| of one tensor, averaged over the gradients."""
    return math.fsum(float(g[name].double().abs().sum()) for g in gradients) / len(gradients)
