"""A parameter that differs from candidate to candidate, in the forms it can take.

    Stack       K tensors, one a candidate
    Planes      the same on a GPU: θ in bf16 once, and what each candidate differs from it
    Factored    θ + s_k g_j + σ a_k b_kᵀ: one or two dense matrices, however many candidates
    Transposed  one of these, the other way round

Each can do what a model does with a parameter: multiply rows with it, look rows up in it, or hand out one candidate's.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Protocol

import torch
from torch import Tensor

from mgs import kernels
from mgs.candidates.groups import Groups

MANY_ROWS = 512  # of each candidate, from which products go over a GPU's tensor cores, at nearly fp32 accuracy
FULL_ENOUGH = 0.7  # of a grid of uneven groups, for one batched product over all of it


class Values(Protocol):
    """Rows are (N, …) tensors that lie candidate by candidate (see `Groups`)."""

    def times(self, rows_NI: Tensor, groups: Groups, transposed: bool, bias_KO: Tensor | None) -> Tensor:
        """Each row times its candidate's matrix (I, O), or, transposed, a matrix stored as (O, I); plus a bias."""
        ...

    def lookup(self, ids: Tensor, groups: Groups) -> Tensor:
        """For ids (N, …), rows of each one's candidate's matrix."""
        ...

    def one(self, k: int) -> Tensor:
        """Candidate k's own."""
        ...


@dataclass
class Stack:
    """All candidates' tensors, (K, *shape)."""

    tensors_K: Tensor

    def times(self, rows_NI: Tensor, groups: Groups, transposed: bool, bias_KO: Tensor | None) -> Tensor:
        matrices = self.tensors_K.mT if transposed else self.tensors_K
        sizes = groups.sizes(len(rows_NI))
        largest = max(sizes)
        if min(sizes) >= MANY_ROWS and kernels.usable(rows_NI.device):
            from mgs.kernels.linear import many_rows

            biases = [None] * groups.num if bias_KO is None else bias_KO.split(1)
            parts = zip(rows_NI.contiguous().split(sizes), matrices, biases, strict=True)
            products = [many_rows(rows, matrix, None, None, len(rows), bias) for rows, matrix, bias in parts]
            return torch.cat(products)
        if groups.even:
            y = _batched(rows_NI.view(groups.num, largest, -1), matrices, bias_KO)
            return y.view(len(rows_NI), -1)
        if len(rows_NI) >= FULL_ENOUGH * groups.num * largest:  # one batched product is faster than many small ones
            places = groups.places(len(rows_NI), rows_NI.device)
            grid = rows_NI.new_zeros(groups.num * largest, rows_NI.shape[1])
            grid[places] = rows_NI
            return _batched(grid.view(groups.num, largest, -1), matrices, bias_KO).flatten(0, 1)[places]
        y = rows_NI.new_empty(len(rows_NI), matrices.shape[-1])
        for k, (rows, out) in enumerate(zip(rows_NI.split(sizes), y.split(sizes), strict=True)):
            if bias_KO is None:
                torch.mm(rows, matrices[k], out=out)
            else:
                torch.addmm(bias_KO[k], rows, matrices[k], out=out)
        return y

    def lookup(self, ids: Tensor, groups: Groups) -> Tensor:
        return self.tensors_K[groups.spread(torch.arange(groups.num, device=ids.device), ids), ids]

    def one(self, k: int) -> Tensor:
        return self.tensors_K[k]


@dataclass
class Transposed:
    """A matrix the other way round."""

    values: Values

    def times(self, rows_NI: Tensor, groups: Groups, transposed: bool, bias_KO: Tensor | None) -> Tensor:
        return self.values.times(rows_NI, groups, not transposed, bias_KO)

    def lookup(self, ids: Tensor, groups: Groups) -> Tensor:
        return Stack(torch.stack([self.one(k) for k in range(groups.num)])).lookup(ids, groups)

    def one(self, k: int) -> Tensor:
        return self.values.one(k).T


def transposed(values: Values) -> Values:
    return Stack(values.tensors_K.mT) if isinstance(values, Stack) else Transposed(values)


@dataclass
class Planes:
    """high + low_k · unscale: all candidates of a matrix in halves, the high ones shared (see `mgs.kernels.linear`)."""

    high: Tensor
    low_K: Tensor
    unscale: Tensor

    def times(self, rows_NI: Tensor, groups: Groups, transposed: bool, bias_KO: Tensor | None) -> Tensor:
        from mgs.kernels.linear import few_rows

        high, low = (self.high.T, self.low_K.mT) if transposed else (self.high, self.low_K)
        return few_rows(rows_NI.contiguous(), high, low, self.unscale, bias_KO)

    def lookup(self, ids: Tensor, groups: Groups) -> Tensor:
        k = groups.index(len(ids), ids.device).view(-1, *[1] * (ids.ndim - 1))
        return self.high[ids].float() + self.low_K[k, ids].float() * self.unscale

    def one(self, k: int) -> Tensor:
        return self.high.float() + self.low_K[k].float() * self.unscale


@dataclass
class Factored:
    """θ + Σ_j c_kj g_j + Σ_r a_kr b_krᵀ. Candidates lie sorted by gradient, those around zero first.

    A gradient that all its candidates use at one length is added to θ once, which saves its product: `bases` are the
    matrices that segments of candidates start from, `slopes` what is added to a segment at each candidate's length.
    """

    bases: list[Tensor]  # one a segment
    slopes: list[Tensor | None]  # one a segment
    cuts: list[int]  # candidates of segment i: from cuts[i] to cuts[i + 1]
    lengths_K: Tensor
    a_KRn: Tensor | None = None
    b_KRm: Tensor | None = None

    def times(self, rows_NI: Tensor, groups: Groups, transposed: bool, bias_KO: Tensor | None) -> Tensor:
        into, out_of = (self.b_KRm, self.a_KRn) if transposed else (self.a_KRn, self.b_KRm)
        bases = [base.T if transposed else base for base in self.bases]
        slopes = [slope.T if transposed and slope is not None else slope for slope in self.slopes]
        edges = [0, *accumulate(groups.sizes(len(rows_NI)))]
        if groups.even and kernels.usable(rows_NI.device) and len(bases) <= 2:
            from mgs.kernels.linear import many_rows

            y = many_rows(
                rows_NI.contiguous(), bases[0], edges[self.cuts[1]], bases[-1], edges[1], bias_KO, into, out_of
            )
        else:
            y = torch.cat(
                [rows_NI[edges[i] : edges[j]] @ base for base, (i, j) in zip(bases, pairwise(self.cuts), strict=True)]
            )
            if into is not None and out_of is not None:
                for k, (start, end) in enumerate(pairwise(edges)):
                    y[start:end].addmm_(rows_NI[start:end] @ into[k].float().T, out_of[k].float())
            if bias_KO is not None:
                y += groups.spread(bias_KO, y)
        for slope, (i, j) in zip(slopes, pairwise(self.cuts), strict=True):
            if slope is not None:
                here = slice(edges[i], edges[j])
                lengths = self.lengths_K[groups.index(len(rows_NI), y.device)[here]]
                y[here].addcmul_(rows_NI[here] @ slope, lengths[:, None])
        return y

    def lookup(self, ids: Tensor, groups: Groups) -> Tensor:
        edges = [0, *accumulate(groups.sizes(len(ids)))]
        index = groups.index(len(ids), ids.device)
        out = []
        for base, slope, (first, last) in zip(self.bases, self.slopes, pairwise(self.cuts), strict=True):
            some = ids[edges[first] : edges[last]]
            part = base[some]
            if slope is not None:
                lengths = self.lengths_K[index[edges[first] : edges[last]]]
                part = part + slope[some] * lengths.view(-1, *[1] * some.ndim)
            out.append(part)
        rows = torch.cat(out) if len(out) > 1 else out[0]
        if self.a_KRn is None or self.b_KRm is None:
            return rows
        k = index.view(-1, *[1] * (ids.ndim - 1))
        for r in range(self.a_KRn.shape[1]):
            rows = rows + self.a_KRn[k, r, ids].unsqueeze(-1).float() * self.b_KRm[:, r][k].float()
        return rows

    def one(self, k: int) -> Tensor:
        segment = next(i for i, last in enumerate(self.cuts[1:]) if k < last)
        tensor, slope = self.bases[segment], self.slopes[segment]
        if slope is not None:
            tensor = tensor + self.lengths_K[k] * slope
        if self.a_KRn is not None and self.b_KRm is not None:
            tensor = tensor + self.a_KRn[k].float().T @ self.b_KRm[k].float()
        return tensor


def _batched(rows_KMI: Tensor, matrices_KIO: Tensor, bias_KO: Tensor | None) -> Tensor:
    if bias_KO is None:
        return torch.bmm(rows_KMI, matrices_KIO)
    return torch.baddbmm(bias_KO[:, None], rows_KMI, matrices_KIO)
