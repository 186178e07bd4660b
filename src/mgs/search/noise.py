"""The noise ε_k around a centre: standard normal, or of low rank, always drawn again and never kept.

Low rank r makes a matrix of noise the product of two thin ones, ε = Σ_r a_r b_rᵀ / √r with standard normal a and b:
every entry still has variance 1, but hundreds of candidates fit where one dense matrix does, and inner products come
from the factors alone. Vectors (biases, norms) have no rank to lower and stay as they are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby

import torch
from torch import Tensor

from mgs.search.directions import Layout, normal, sum_of_products

BLOCK = 64  # low-rank candidates drawn at once: a draw depends on the block and the place in it, not on who asks


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
    """Matrices of noise of rank `rank`."""

    def __init__(self, rank: int, layout: Layout, device: torch.device, *where: object):
        super().__init__(layout, device, *where)
        self.rank = rank

    def is_matrix(self, name: str) -> bool:
        return len(self.layout.shapes[name]) == 2

    def factors(self, ks: Sequence[int], name: str) -> tuple[Tensor, Tensor]:
        """a (K, r, rows) and b (K, r, columns) of a matrix; 1/√r is in b."""
        rows, columns = self.layout.shapes[name]
        both = self._stack(ks, name, (self.rank or 1, rows + columns))
        return both[..., :rows], both[..., rows:] / math.sqrt(self.rank or 1)

    def others(self, ks: Sequence[int], name: str) -> Tensor:
        """ε_k of a parameter that is no matrix, for several candidates."""
        return self._stack(ks, name, self.layout.shapes[name])

    def flat(self, k: int) -> Tensor:
        parts = []
        for name in self.layout.shapes:
            if self.is_matrix(name):
                a, b = self.factors([k], name)
                parts.append((a[0].T @ b[0]).reshape(-1))
            else:
                parts.append(self.others([k], name).reshape(-1))
        return torch.cat(parts)

    def products(
        self, ks: Sequence[int], gradients: Sequence[Tensor], scale: dict[str, float]
    ) -> tuple[Tensor, Tensor]:
        with_gradients = torch.zeros(len(ks), len(gradients), dtype=torch.float64, device=self.device)
        squares = torch.zeros(len(ks), dtype=torch.float64, device=self.device)
        for name in self.layout.shapes:
            of_name = [self.layout.view(g, name) for g in gradients]
            first = 0
            for some in _by_block(ks):
                rows = slice(first, first + len(some))
                first = rows.stop
                if self.is_matrix(name):
                    a, b = self.factors(some, name)
                    inner = [sum_of_products(a @ g, b).sum(dim=1) for g in of_name]
                    square = ((a @ a.mT).double() * (b @ b.mT).double()).sum(dim=(1, 2))  # ⟨a_r, a_s⟩ ⟨b_r, b_s⟩
                else:
                    noise = self.others(some, name).reshape(len(some), -1)
                    inner = [sum_of_products(noise, g.flatten()) for g in of_name]
                    square = sum_of_products(noise, noise)
                with_gradients[rows] += scale[name] * torch.stack(inner, dim=1)
                squares[rows] += scale[name] ** 2 * square
        return with_gradients.cpu(), squares.cpu()

    def weighted_sum(self, weights: Sequence[float], scale: dict[str, float]) -> Tensor:
        total = torch.zeros(self.layout.size, device=self.device)
        for some in _by_block([k for k, weight in enumerate(weights) if weight]):
            w = torch.tensor([weights[k] for k in some], device=self.device)
            for name in self.layout.shapes:
                part = self.layout.view(total, name)
                if self.is_matrix(name):
                    a, b = self.factors(some, name)
                    part.addmm_((a * w[:, None, None]).flatten(0, 1).T, b.flatten(0, 1), alpha=scale[name])
                else:
                    part.add_(torch.tensordot(w, self.others(some, name), dims=1), alpha=scale[name])
        return total

    def _stack(self, ks: Sequence[int], name: str, shape: Sequence[int]) -> Tensor:
        """Draws of several candidates, from the blocks that hold them."""
        stacks = []
        for some in _by_block(ks):
            drawn = normal((BLOCK, *shape), self.device, *self.where, "block", some[0] // BLOCK, name)
            places = [k % BLOCK for k in some]
            whole = places == list(range(len(places)))
            stacks.append(drawn[: len(places)] if whole else drawn[torch.tensor(places, device=self.device)])
        return torch.cat(stacks) if len(stacks) > 1 else stacks[0]


def _by_block(ks: Sequence[int]) -> list[list[int]]:
    """The candidates in their order, cut where the next is of another block, so that each block is drawn once."""
    return [list(some) for _, some in groupby(ks, key=lambda k: k // BLOCK)]
