"""Batches by token budget, as one flat stream.

A trainer that resumes must see the same batches again. So batch number i of a run is a function of (examples,
budget, seed, i) alone: epochs are composed one after another from their own seeds and laid end to end.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from mgs.errors import UserError
from mgs.types import Batch, Example

Lengths = Sequence[int] | Sequence[tuple[int, ...]]  # of rows; or of their sides, where each is padded on its own

ENOUGH = 8192  # tokens that make a pass worth its while on a GPU
SPREAD = 1.25  # how much longer than its shortest a row of a batch may be, where there are rows enough
POOL = 50  # batches' worth of examples that are sorted by length together, when batches group by length


def token_batches(lengths: Lengths, budget: int, order: Sequence[int]) -> list[list[int]]:
    """Cut `order` into batches whose padded size, rows × longest row, stays within `budget` tokens.

    A length may be a pair, of a source and a target that are padded each to its own longest: then the size is
    rows × (longest source + longest target). A row longer than the budget becomes a batch of its own.

    >>> token_batches([3, 3, 3, 9], budget=6, order=[0, 1, 2, 3])
    [[0, 1], [2], [3]]
    >>> token_batches([(1, 2), (2, 1), (2, 2)], budget=6, order=[0, 1, 2])
    [[0], [1], [2]]
    >>> token_batches([(1, 2), (2, 1), (2, 2)], budget=8, order=[0, 1, 2])
    [[0, 1], [2]]
    """
    sides = [_sides(length) for length in lengths]
    batches: list[list[int]] = []
    current: list[int] = []
    longest: tuple[int, ...] = ()
    for index in order:
        longest = tuple(map(max, longest, sides[index])) if current else sides[index]
        if current and sum(longest) * (len(current) + 1) > budget:
            batches.append(current)
            current, longest = [], sides[index]
        current.append(index)
    if current:
        batches.append(current)
    return batches


def packed(lengths: Lengths, budget: int, enough: int = ENOUGH) -> list[list[int]]:
    """All rows in batches within `budget`, sorted by length. Where a batch has `enough` tokens to be worth a pass, rows
    that are much longer wait for the next: a large budget would otherwise be filled with padding.

    >>> packed([10, 10, 11, 12, 30], budget=200, enough=20)
    [[0, 1, 2, 3], [4]]
    >>> packed([30, 10, 10], budget=200, enough=30)
    [[1, 2, 0]]
    """
    sides = [_sides(length) for length in lengths]
    order = sorted(range(len(sides)), key=sides.__getitem__)
    if budget <= enough:
        return token_batches(lengths, budget, order)
    alike: list[list[int]] = []
    for index in order:
        length = sum(sides[index])
        last = alike[-1] if alike else []
        if not last or (len(last) * sum(sides[last[-1]]) >= enough and length > SPREAD * sum(sides[last[0]])):
            alike.append([])
        alike[-1].append(index)
    return [batch for rows in alike for batch in token_batches(lengths, budget, rows)]


def _sides(length: int | tuple[int, ...]) -> tuple[int, ...]:
    return length if isinstance(length, tuple) else (length,)


def epoch_batches(lengths: Lengths, budget: int, seed: int, epoch: int, by_length: bool) -> list[list[int]]:
    """The shuffled batches of one epoch. `by_length` puts rows of similar length together: less padding, and
    batches that differ more from each other."""
    shuffle = random.Random(f"{seed}/{epoch}")
    order = list(range(len(lengths)))
    shuffle.shuffle(order)
    if by_length:
        mean = max(1, sum(sum(_sides(length)) for length in lengths) // len(lengths))
        pool = max(1, budget * POOL // mean)
        order = [
            i
            for start in range(0, len(order), pool)
            for i in sorted(order[start : start + pool], key=lengths.__getitem__)
        ]
    batches = token_batches(lengths, budget, order)
    if by_length:
        shuffle.shuffle(batches)
    return batches


def drawn_apart(examples: Sequence[Example], num: int, batch: Batch, *where: int) -> Batch:
    """`num` examples that are not in `batch`, or as many as there are, always the same for the same `where`."""
    taken = {(example.prefix, example.target) for example in batch.examples}
    drawn = random.Random(repr(where)).sample(range(len(examples)), min(len(examples), num + len(batch)))
    others = [examples[i] for i in drawn if (examples[i].prefix, examples[i].target) not in taken]
    return Batch(others[:num])


class BatchStream(Sequence[Batch]):
    """The batches of a whole run: `num_batches` of them, or those of `num_epochs`.

    `by_side` is for models with an encoder: prefix and target are padded apart from each other, and the budget counts
    the padding of both.
    """

    def __init__(
        self,
        examples: Sequence[Example],
        budget: int,
        seed: int = 0,
        by_length: bool = False,
        num_batches: int | None = None,
        num_epochs: float = 1,
        by_side: bool = False,
    ):
        if budget < 1:
            raise UserError(f"the token budget of a batch must be at least 1, got {budget}")
        if not examples:
            raise UserError("there are no training examples")
        self.examples, self.budget, self.seed, self.by_length = examples, budget, seed, by_length
        whole_rows = [len(example) for example in examples]
        self._lengths: Lengths = [(len(e.prefix), len(e.target)) for e in examples] if by_side else whole_rows
        self._starts: list[int] = []  # of each epoch composed so far, in the stream
        self._epochs: list[list[list[int]]] = []
        if num_batches is None:
            whole = sum(len(self._epoch(e)) for e in range(int(num_epochs)))
            part = round(len(self._epoch(int(num_epochs))) * (num_epochs % 1)) if num_epochs % 1 else 0
            num_batches = max(1, whole + part)
        self.num_batches = num_batches

    def _epoch(self, epoch: int) -> list[list[int]]:
        while len(self._epochs) <= epoch:
            number = len(self._epochs)
            self._starts.append(self._starts[-1] + len(self._epochs[-1]) if number else 0)
            self._epochs.append(epoch_batches(self._lengths, self.budget, self.seed, number, self.by_length))
        return self._epochs[epoch]

    def __len__(self) -> int:
        return self.num_batches

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        if not 0 <= index < self.num_batches:
            raise IndexError(index)
        epoch = 0
        while index >= (start := self.start_of(epoch)) + len(self._epoch(epoch)):
            epoch += 1
        return Batch([self.examples[i] for i in self._epoch(epoch)[index - start]])

    def start_of(self, epoch: int) -> int:
        self._epoch(epoch)
        return self._starts[epoch]
