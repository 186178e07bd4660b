"""The few values that every layer passes on.

Shape suffixes used across the package: B rows of a batch, T positions, V vocabulary, K candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

#: A direction Δ in parameter space: what is added to each searched parameter, by its name.
Direction = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Example:
    """One pair (X, Y) as token ids. `target` ends in ⟨eos⟩; `columns` is whatever else a cost may want to see."""

    prefix: tuple[int, ...]
    target: tuple[int, ...]
    columns: dict[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.prefix) + len(self.target)


@dataclass(frozen=True)
class Batch:
    """Several examples that are decoded and scored together.

    A share of a batch, one process's rows of it, knows the `whole` and its `rows`' numbers there: what depends on the
    batch as a whole (the cap on decoding, the noise of a row) is then the same however many processes share it.
    """

    examples: Sequence[Example]
    whole: Batch | None = None
    rows: Sequence[int] = ()

    def __len__(self) -> int:
        return len(self.examples)

    @property
    def prefixes(self) -> list[tuple[int, ...]]:
        return [example.prefix for example in self.examples]

    @property
    def targets(self) -> list[tuple[int, ...]]:
        return [example.target for example in self.examples]

    @property
    def max_target(self) -> int:
        return max(len(example.target) for example in self.all.examples)

    @property
    def all(self) -> Batch:
        """The batch itself, also of a share."""
        return self if self.whole is None else self.whole

    @property
    def numbers(self) -> Sequence[int]:
        """The number of each row, in the whole batch."""
        return self.rows or range(len(self))

    @property
    def is_counted(self) -> bool:
        """Whether its rows are its own; not, for a share of a batch that has fewer rows than there are shares."""
        return self.whole is None or bool(self.rows)

    def columns(self) -> dict[str, list[Any]]:
        """The extra columns that every example of the batch has."""
        shared = set.intersection(*(set(example.columns) for example in self.examples))
        return {name: [example.columns[name] for example in self.examples] for name in sorted(shared)}

    def select(self, rows: Sequence[int]) -> Batch:
        numbers = tuple(self.rows[row] for row in rows) if self.rows else ()
        return Batch([self.examples[row] for row in rows], self.whole, numbers)

    def share(self, rows: Sequence[int]) -> Batch:
        """One process's rows, or one round's. If there are none it gets the first, to go the same way as the others,
        for nothing."""
        return Batch([self.examples[row] for row in rows or [0]], self.all, tuple(self.numbers[row] for row in rows))


class Text(str):
    """What a cost sees of a sequence: the string, and the tokens it came from.

    `token_ids` includes the final ⟨eos⟩ when there is one; `ended` says whether there is.
    """

    token_ids: tuple[int, ...]
    ended: bool

    def __new__(cls, text: str, token_ids: Sequence[int] = (), ended: bool = True) -> Text:
        self = super().__new__(cls, text)
        self.token_ids = tuple(token_ids)
        self.ended = ended
        return self

    def __getnewargs__(self) -> tuple[str, tuple[int, ...], bool]:  # type: ignore[override]
        return str(self), self.token_ids, self.ended
