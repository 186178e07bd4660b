"""A parameter that differs from candidate to candidate, in the forms it can take.

    Stack       K tensors, one a candidate
    Factored    θ + s_k g_j + σ a_k b_kᵀ: one or two dense matrices, however many candidates

Each can do what a model does with a parameter: multiply rows with it, look rows up in it, or hand out one candidate's.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Protocol

import torch
from torch import Tensor

from mgs.candidates.groups import Groups


class Values(Protocol):
    """Rows are (N, …) tensors that lie candidate by candidate (see `Groups`)."""

    def times(self, rows_NI: Tensor, groups: Groups, transposed: bool) -> Tensor:
        """Each row times its candidate's matrix (I, O), or, transposed, a matrix stored as (O, I)."""
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

    def times(self, rows_NI: Tensor, groups: Groups, transposed: bool) -> Tensor:
        matrices = self.tensors_K.mT if transposed else self.tensors_K
        if groups.even:
            by_candidate = rows_NI.view(groups.num, -1, rows_NI.shape[-1])
            return torch.bmm(by_candidate, matrices).view(len(rows_NI), -1)
        return torch.cat(
            [rows @ w for rows, w in zip(rows_NI.split(groups.sizes(len(rows_NI))), matrices, strict=True)]
        )

    def lookup(self, ids: Tensor, groups: Groups) -> Tensor:
        return self.tensors_K[groups.spread(torch.arange(groups.num, device=ids.device), ids), ids]

    def one(self, k: int) -> Tensor:
        return self.tensors_K[k]


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

    def times(self, rows_NI: Tensor, groups: Groups, transposed: bool) -> Tensor:
        edges = [0, *accumulate(groups.sizes(len(rows_NI)))]
        out = []
        for base, slope, (first, last) in zip(self.bases, self.slopes, pairwise(self.cuts), strict=True):
            rows = rows_NI[edges[first] : edges[last]]
            part = rows @ (base.T if transposed else base)
            if slope is not None:
                lengths = groups.index(len(rows_NI), rows.device)[edges[first] : edges[last]]
                part.addcmul_(rows @ (slope.T if transposed else slope), self.lengths_K[lengths][:, None])
            out.append(part)
        y = torch.cat(out) if len(out) > 1 else out[0]
        if self.a_KRn is None or self.b_KRm is None:
            return y
        into, out_of = (self.b_KRm, self.a_KRn) if transposed else (self.a_KRn, self.b_KRm)
        if groups.even:
            by_candidate = rows_NI.view(groups.num, -1, rows_NI.shape[-1])
            return torch.baddbmm(y.view(groups.num, -1, y.shape[-1]), by_candidate @ into.mT, out_of).view(y.shape)
        for k, (start, end) in enumerate(pairwise(edges)):
            y[start:end].addmm_(rows_NI[start:end] @ into[k].T, out_of[k])
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
            rows = rows + self.a_KRn[k, r, ids].unsqueeze(-1) * self.b_KRm[:, r][k]
        return rows

    def one(self, k: int) -> Tensor:
        segment = next(i for i, last in enumerate(self.cuts[1:]) if k < last)
        tensor, slope = self.bases[segment], self.slopes[segment]
        if slope is not None:
            tensor = tensor + self.lengths_K[k] * slope
        if self.a_KRn is not None and self.b_KRm is not None:
            tensor = tensor + self.a_KRn[k].T @ self.b_KRm[k]
        return tensor
