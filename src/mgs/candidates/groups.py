"""Which rows of a batch belong to which candidate."""

from __future__ import annotations

from itertools import accumulate

import torch
from torch import Tensor


class NotByRows(Exception):
    """A tensor does not lie candidate by candidate along its first dimension: the model cannot be batched."""


class Groups:
    """Rows lie candidate by candidate: all of candidate 0's, then all of candidate 1's, and so on.

    `rows` is how many rows the pass in progress has (beams and positions aside), which is what a lookup or a norm that
    knows nothing of the batch must be spread to. Rows may leave while decoding; the groups then differ in size.
    """

    def __init__(self, num: int):
        self.num = num
        self.rows = num
        self._counts: list[int] | None = None  # None: all alike
        # While groups are alike an index depends on nothing else; a captured graph may go on reading it.
        self._indices: dict[tuple[int, torch.device], Tensor] = {}
        self._uneven_indices: dict[tuple[int, torch.device], Tensor] = {}

    def start(self, rows: int) -> None:
        """A new decoding, of `rows` rows in all."""
        self.rows, self._counts = rows, None

    def keep(self, kept: Tensor) -> None:
        """Only these rows (in order) go on."""
        index = self.index(self.rows, kept.device)[kept]
        self._counts = torch.bincount(index, minlength=self.num).tolist()
        self.rows = len(kept)
        self._uneven_indices.clear()

    def sizes(self, leading: int) -> list[int]:
        """Rows of each candidate in a tensor whose first dimension is `leading`: a multiple of the batch's rows, where
        positions or beams have been folded into it."""
        if self._counts is None:
            if leading % self.num:
                raise NotByRows(f"{leading} rows cannot be dealt to {self.num} candidates")
            return [leading // self.num] * self.num
        if leading % self.rows:
            raise NotByRows(f"{leading} rows where the batch has {self.rows}")
        return [count * (leading // self.rows) for count in self._counts]

    @property
    def even(self) -> bool:
        return self._counts is None

    def index(self, leading: int, device: torch.device) -> Tensor:
        """The candidate of each row."""
        known = self._indices if self.even else self._uneven_indices
        if (leading, device) not in known:
            sizes = torch.tensor(self.sizes(leading), device=device)
            numbers = torch.arange(self.num, device=device)
            known[leading, device] = numbers.repeat_interleave(sizes, output_size=leading)
        return known[leading, device]

    def places(self, leading: int, device: torch.device) -> Tensor:
        """Where each row goes in a grid of K × the largest group."""
        sizes = self.sizes(leading)
        starts = torch.tensor([0, *accumulate(sizes)][:-1], device=device)
        index = self.index(leading, device)
        return index * max(sizes) + torch.arange(leading, device=device) - starts[index]

    def spread(self, values_K: Tensor, like: Tensor) -> Tensor:
        """One value (of any shape) a candidate → one a row of `like`, ready to broadcast over its middle dimensions."""
        rows = values_K[self.index(like.shape[0], values_K.device)]
        if rows.ndim > like.ndim:  # values that have a place for rows themselves, of size 1
            rows = rows.squeeze(1)
        middle = like.ndim - rows.ndim
        return rows.reshape(rows.shape[0], *[1] * middle, *rows.shape[1:])
