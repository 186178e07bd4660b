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
from mgs.search.directions import Layout, key, norms, sum_of_products
from mgs.search.noise import LowRankNoise, Noise
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
    rank: int | None = None  # of the noise in matrices; None is full rank

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
        if self.rank is not None and self.rank < 1:
            raise UserError(f"the rank of the noise must be at least 1, got {self.rank}")
        if self.density == "exact" and self.rank is not None:
            raise UserError("noise of low rank has no exact density: leave out rank, or use density unit")

    def centres(self, num_gradients: int) -> list[Centre]:
        """The mixture's components: the origin with weight π, and every gradient at every length sharing 1 − π."""
        mix = {"mixture": self.mix, "zero": 1.0, "mle": 0.0}[self.components]
        zero = [Centre(mix)] if mix > 0 else []
        num = num_gradients * len(self.lengths)
        mle = [Centre((1 - mix) / num, j, s) for j in range(num_gradients) for s in self.lengths] if mix < 1 else []
        return zero + mle


class Proposal:
    """The proposal of one step: `form` around these gradients.

    Draws are functions of (seed, step, candidate, parameter), and of whatever else `where` holds. `names` say what each
    gradient is of.
    """

    def __init__(
        self,
        form: ProposalForm,
        gradients: Sequence[Direction],
        num_candidates: int,
        *where: int,
        names: Sequence[str] | None = None,
    ):
        if num_candidates < 1:
            raise UserError(f"num_candidates must be at least 1, got {num_candidates}")
        if not gradients:
            raise UserError("a proposal needs at least one gradient: its shapes and its noise scale come from them")
        self.form, self.where = form, where
        self.names = names or ["mle"] * len(gradients)
        self.layout = Layout(gradients[0])
        self.gradients = [self.layout.flat(gradient) for gradient in gradients]
        device = self.gradients[0].device
        self.noise: Noise = (
            Noise(self.layout, device, *where)
            if form.rank is None
            else LowRankNoise(form.rank, self.layout, device, *where)
        )
        self.centres = form.centres(len(self.gradients))
        self.assigned = self._assign(num_candidates)
        self.sigma = self._sigma()
        self._known: dict[bool, tuple[Tensor, Tensor, Tensor]] = {}

    def __len__(self) -> int:
        return len(self.assigned)

    @property
    def components(self) -> list[str]:
        """Zero, or what the gradient is of that each candidate is centred at."""
        return ["zero" if centre.gradient is None else self.names[centre.gradient] for centre in self.assigned]

    def silent(self, k: int) -> bool:
        """Whether candidate k is its centre itself, without noise."""
        return self.form.noise == 0 or (self.form.stay and k == 0)

    def flat(self, k: int) -> Tensor:
        """Δ_k ~ q, its centre plus noise, as one vector."""
        centre, zero = self.assigned[k], self.gradients[0]
        delta = torch.zeros_like(zero) if self.silent(k) else self.noise.scaled(k, self.sigma)
        return delta if centre.gradient is None else delta.add_(self.gradients[centre.gradient], alpha=centre.length)

    def sample(self, k: int) -> Direction:
        """Δ_k by name."""
        return self.layout.views(self.flat(k))

    def mean(self, weights: Sequence[float]) -> Direction:
        """Σ w_k Δ_k, drawn again from the seeds; no more than one candidate's worth of noise is in memory."""
        if len(weights) != len(self):
            raise UserError(f"{len(self)} candidates need as many weights, got {len(weights)}")
        noisy = [0.0 if self.silent(k) else weight for k, weight in enumerate(weights)]
        total = self.noise.weighted_sum(noisy, self.sigma)
        along = torch.tensor(weights, dtype=torch.float64) @ self.coordinates(self.assigned)
        for weight, gradient in zip(along.tolist(), self.gradients, strict=True):
            if weight:
                total.add_(gradient, alpha=weight)
        return self.layout.views(total)

    def log_density(self, direction: Direction) -> float:
        """log q̃(Δ) of any direction.

        `unit` leaves out σ and the normaliser: values hardly differ between candidates and the cost decides.
        `exact` is the log of the mixture itself; in many dimensions it lets one candidate take all the weight.
        """
        if self.form.density == "none":
            return 0.0
        delta = self.layout.flat(direction).double()
        gradients = [gradient.double() for gradient in self.gradients]
        if self.form.density == "exact":
            for vector in (delta, *gradients):
                self._whiten(vector)
        distances = []
        for centre in self.centres:
            away = delta if centre.gradient is None else delta - centre.length * gradients[centre.gradient]
            distances.append(away.square().sum())
        return float(self._log_mixture(torch.stack(distances).cpu()))

    def log_densities(self) -> list[float]:
        """log q̃(Δ_k) of all candidates, from inner products: no Δ_k is formed."""
        if self.form.density == "none":
            return [0.0] * len(self)
        return self._log_mixture(self._squared_distances(self.form.density == "exact", self.centres)).tolist()

    def gram(self) -> Tensor:
        """⟨g_i, g_j⟩ of the gradients, (J, J)."""
        return self._products(False)[0]

    def squared_norms(self) -> list[float]:
        """‖Δ_k‖² of all candidates."""
        return self._squared_distances(False, [Centre(1.0)])[:, 0].tolist()

    def _squared_distances(self, whitened: bool, centres: Sequence[Centre]) -> Tensor:
        """‖Δ_k − c‖² for every candidate and centre, (K, C); whitened, in units of σ.

        Δ_k − c is a combination of gradients plus noise, so its square needs ⟨g, g⟩, ⟨ε_k, g⟩ and ‖ε_k‖² alone.
        """
        gram_JJ, inner_KJ, squares_K = self._products(whitened)
        away_KCJ = self.coordinates(self.assigned)[:, None] - self.coordinates(centres)[None]
        distances = torch.einsum("kci,ij,kcj->kc", away_KCJ, gram_JJ, away_KCJ)
        distances += 2 * torch.einsum("kcj,kj->kc", away_KCJ, inner_KJ) + squares_K[:, None]
        return distances.clamp(min=0)

    def _products(self, whitened: bool) -> tuple[Tensor, Tensor, Tensor]:
        """`_inner_products`, found once."""
        if whitened not in self._known:
            self._known[whitened] = self._inner_products(whitened)
        return self._known[whitened]

    def _inner_products(self, whitened: bool) -> tuple[Tensor, Tensor, Tensor]:
        """⟨g_i, g_j⟩, ⟨ε_k, g_j⟩ and ‖ε_k‖², with ε_k scaled as in Δ_k."""
        gradients, scale = self.gradients, self.sigma
        if whitened:
            gradients = [self._whiten(gradient.clone()) for gradient in gradients]
            scale = {name: float(sigma > 0) for name, sigma in self.sigma.items()}
        gram_JJ = torch.stack([torch.stack([sum_of_products(a, b) for b in gradients]) for a in gradients]).cpu()
        inner_KJ = torch.zeros(len(self), len(gradients), dtype=torch.float64)
        squares_K = torch.zeros(len(self), dtype=torch.float64)
        noisy = [k for k in range(len(self)) if not self.silent(k)]
        if noisy:
            inner_KJ[noisy], squares_K[noisy] = self.noise.products(noisy, gradients, scale)
        return gram_JJ, inner_KJ, squares_K

    def coordinates(self, centres: Sequence[Centre]) -> Tensor:
        """Centres in terms of the gradients: a row has its length in the column of its gradient."""
        rows = torch.zeros(len(centres), len(self.gradients), dtype=torch.float64)
        for row, centre in zip(rows, centres, strict=True):
            if centre.gradient is not None:
                row[centre.gradient] = centre.length
        return rows

    def _log_mixture(self, squared_distances: Tensor) -> Tensor:
        """log Σ_c weight_c exp(−½ d_c²), over the last dimension; with the normaliser if exact."""
        logs = torch.tensor([math.log(centre.weight) for centre in self.centres], dtype=torch.float64)
        total = torch.logsumexp(logs - 0.5 * squared_distances, dim=-1)
        if self.form.density == "exact":
            total = total - math.fsum(
                0.5 * self.layout.shapes[name].numel() * math.log(2 * math.pi * sigma**2)
                for name, sigma in self.sigma.items()
                if sigma > 0  # a tensor without gradient gets no noise, and has no density
            )
        return total

    def _whiten(self, vector: Tensor) -> Tensor:
        """Divides each parameter's part by its σ, in place."""
        for name, sigma in self.sigma.items():
            self.layout.view(vector, name).mul_(1 / sigma if sigma > 0 else 0.0)
        return vector

    def _sigma(self) -> dict[str, float]:
        """σ of each tensor: `noise` times the mean |g| of that tensor, of all tensors, or 1."""
        names = list(self.layout.shapes)
        if self.form.noise_scale == "constant" or self.form.noise == 0:
            return dict.fromkeys(names, self.form.noise)
        sums = norms([self.layout.view(g, name) for g in self.gradients for name in names], order=1)
        totals = sums.view(len(self.gradients), -1).mean(dim=0).tolist()
        if self.form.noise_scale == "global":
            return dict.fromkeys(names, self.form.noise * math.fsum(totals) / max(1, self.layout.size))
        sizes = self.layout.sizes
        return {n: self.form.noise * total / max(1, size) for n, total, size in zip(names, totals, sizes, strict=True)}

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
