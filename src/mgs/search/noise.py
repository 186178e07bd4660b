"""The noise ε_k around a centre: standard normal, or of low rank, always drawn again and never kept.

Low rank r makes a matrix of noise the product of two thin ones, ε = Σ_r a_r b_rᵀ / √r with standard normal a and b:
every entry still has variance 1, but hundreds of candidates fit where one dense matrix does, and inner products come
from the factors alone. Vectors (biases, norms) have no rank to lower and stay as they are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor

from mgs.search.directions import Layout, normal, sum_of_products

BLOCK = 8  # low-rank candidates drawn at once: a draw depends on the block and the place in it, not on who asks
TOGETHER = 64  # low-rank candidates, a multiple of a block, in one product: each costs a GPU mostly its start

ALIGNED = 8  # numbers: where parts begin, so that a GPU can read 16 bytes at once


class Noise:
    """ε_k for all parameters of a layout."""

    rank: int | None = None

    def __init__(self, layout: Layout, device: torch.device, *where: object):
        self.layout, self.device, self.where = layout, device, where

    def flat(self, k: int) -> Tensor:
        """ε_k as one vector."""
        return normal([self.layout.size], self.device, *self.where, k)

    def products(
        self, ks: Sequence[int], gradients: Sequence[Tensor], scale: dict[str, float]
    ) -> tuple[Tensor, Tensor]:
        """⟨ε_k ∘ scale, g_j⟩ and ‖ε_k ∘ scale‖², of shapes (K, J) and (K,)."""
        with_gradients, squares = [], []
        for k in ks:
            noise = self.scaled(k, scale)
            with_gradients.append(torch.stack([sum_of_products(noise, g) for g in gradients]))
            squares.append(sum_of_products(noise, noise))
        return torch.stack(with_gradients).cpu(), torch.stack(squares).cpu()

    def weighted_sum(self, weights: Sequence[float], scale: dict[str, float]) -> Tensor:
        """Σ_k w_k ε_k ∘ scale as one vector; those of weight 0 are not drawn."""
        total = torch.zeros(self.layout.size, device=self.device)
        for k, weight in enumerate(weights):
            if weight:
                total.add_(self.scaled(k, scale), alpha=weight)
        return total

    def scaled(self, k: int, scale: dict[str, float]) -> Tensor:
        """ε_k, each parameter's part times its scale."""
        noise = self.flat(k)
        torch._foreach_mul_(list(noise.split(self.layout.sizes)), [scale[name] for name in self.layout.shapes])
        return noise


class LowRankNoise(Noise):
    """Matrices of noise of rank `rank`. A candidate's draw is one thin vector: for each matrix r rows a and r rows b,
    for each other parameter its noise itself."""

    def __init__(self, rank: int, layout: Layout, device: torch.device, *where: object):
        super().__init__(layout, device, *where)
        self.rank = rank
        self.sections: dict[str, list[slice]] = {}
        end = 0
        for name, shape in layout.shapes.items():
            sizes = [rank * size for size in shape] if len(shape) == 2 else [shape.numel()]
            self.sections[name] = []
            for size in sizes:
                self.sections[name].append(slice(end, end + size))
                end += -(-size // ALIGNED) * ALIGNED
        self.size = end

    def draw(self, ks: Sequence[int], scale: dict[str, float]) -> Thin:
        """Draws of several candidates, in any order; each block that holds some is drawn once."""
        rows: dict[int, list[int]] = {}
        for row, k in enumerate(ks):
            rows.setdefault(k // BLOCK, []).append(row)
        numbers = torch.empty(len(ks), self.size, device=self.device)
        for block, its_rows in rows.items():
            drawn = normal((BLOCK, self.size), self.device, *self.where, "block", block)
            places = [ks[row] % BLOCK for row in its_rows]
            asked_for = drawn if places == list(range(BLOCK)) else drawn[places]
            numbers.index_copy_(0, torch.tensor(its_rows, device=self.device), asked_for)
        return Thin(self, numbers.mul_(self._columns(scale)))

    def _columns(self, scale: dict[str, float]) -> Tensor:
        """What each number of a draw is multiplied with: a stays as it is, b takes the scale of the product."""
        columns = torch.ones(self.size)
        for name, sections in self.sections.items():
            columns[sections[-1]] = scale[name] / (math.sqrt(self.rank or 1) if len(sections) == 2 else 1.0)
        return columns.to(self.device)

    def flat(self, k: int) -> Tensor:
        thin = self.draw([k], dict.fromkeys(self.layout.shapes, 1.0))
        parts = []
        for name in self.layout.shapes:
            if thin.is_matrix(name):
                a, b = thin.factors(name)
                parts.append((a[0].T @ b[0]).reshape(-1))
            else:
                parts.append(thin.others(name).reshape(-1))
        return torch.cat(parts)

    def products(
        self, ks: Sequence[int], gradients: Sequence[Tensor], scale: dict[str, float]
    ) -> tuple[Tensor, Tensor]:
        parts = [self._products(self.draw(some, scale), gradients) for some in _together(ks)]
        with_gradients, squares = zip(*parts, strict=True)
        return torch.cat(with_gradients).cpu(), torch.cat(squares).cpu()

    def _products(self, thin: Thin, gradients: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        num = len(thin.numbers)
        with_gradients = torch.zeros(num, len(gradients), dtype=torch.float64, device=self.device)
        squares = torch.zeros(num, dtype=torch.float64, device=self.device)
        for name in self.layout.shapes:
            of_name = [self.layout.view(g, name) for g in gradients]
            if thin.is_matrix(name):
                a, b = thin.factors(name)
                inner = [sum_of_products(a @ g, b).sum(dim=1) for g in of_name]
                squares += ((a @ a.mT).double() * (b @ b.mT).double()).sum(dim=(1, 2))  # ⟨a_r, a_s⟩ ⟨b_r, b_s⟩
            else:
                noise = thin.others(name).reshape(num, -1)
                inner = [sum_of_products(noise, g.flatten()) for g in of_name]
                squares += sum_of_products(noise, noise)
            with_gradients += torch.stack(inner, dim=1)
        return with_gradients, squares

    def weighted_sum(self, weights: Sequence[float], scale: dict[str, float]) -> Tensor:
        total = torch.zeros(self.layout.size, device=self.device)
        for some in _together([k for k, weight in enumerate(weights) if weight]):
            w = torch.tensor([weights[k] for k in some], device=self.device)
            thin = self.draw(some, scale)
            for name in self.layout.shapes:
                part = self.layout.view(total, name)
                if thin.is_matrix(name):
                    a, b = thin.factors(name)
                    part.addmm_((a * w[:, None, None]).flatten(0, 1).T, b.flatten(0, 1))
                else:
                    part.add_(torch.tensordot(w, thin.others(name), dims=1))
        return total


@dataclass
class Thin:
    """The low-rank noise of several candidates, scaled; (K, size) numbers and views of them."""

    noise: LowRankNoise
    numbers: Tensor

    def is_matrix(self, name: str) -> bool:
        return len(self.noise.sections[name]) == 2

    def factors(self, name: str) -> tuple[Tensor, Tensor]:
        """a (K, r, rows) and b (K, r, columns) of a matrix; its scale and 1/√r are in b."""
        a, b = (self.numbers[:, section].unflatten(1, (self.noise.rank or 1, -1)) for section in self._sections(name))
        return a, b

    def others(self, name: str) -> Tensor:
        """The noise of a parameter that is no matrix."""
        (section,) = self._sections(name)
        return self.numbers[:, section].reshape(len(self.numbers), *self.noise.layout.shapes[name])

    def _sections(self, name: str) -> list[slice]:
        return self.noise.sections[name]


def _together(ks: Sequence[int]) -> list[list[int]]:
    """Candidates in ascending order, cut so that no block is parted."""
    return [list(some) for _, some in groupby(ks, key=lambda k: k // TOGETHER)]
