"""Who scores which candidates on which rows."""

import math
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from mgs.methods.scoring import Dealt, better_half, blocks, scores
from mgs.ranks import Ranks
from mgs.types import Batch, Example


def rows_of(num):
    return Batch([Example((i,), tuple(range(1, i + 2))) for i in range(num)])


class Thread(Ranks):
    """A process of a run, as a thread."""

    def __init__(self, rank, told, barrier):
        self.rank, self.size, self.told, self.barrier = rank, len(told), told, barrier

    def pooled(self, compute):
        self.told[self.rank] = compute()
        self.barrier.wait()
        return self.told


def dealt(num, by_rows, *args, **how):
    """What `num` processes find together; all must find the same."""
    told, barrier = [None] * num, threading.Barrier(num, timeout=10)

    def find(rank):
        return Dealt(Thread(rank, told, barrier), by_rows).means(*args, **how)

    with ThreadPoolExecutor(num) as pool:
        found = list(pool.map(find, range(num)))
    assert found == [found[0]] * num
    return found[0]


@pytest.mark.parametrize("num", [1, 2, 3, 7])
def test_candidates_are_dealt_in_units(num):
    seen = []

    def compute(numbers, batch):
        seen.append(list(numbers))
        return [10.0 * (99 if n is None else n) for n in numbers]

    numbers = [*range(6), None]
    assert dealt(num, False, compute, numbers, rows_of(4), unit=3) == [0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 990.0]
    units = [own[i : i + 3] for own in seen for i in range(0, len(own), 3)]
    assert sorted(units, key=str) == [[0, 1, 2], [3, 4, 5], [None]]
    assert len(seen) == num


@pytest.mark.parametrize("num", [1, 2, 3, 7])
def test_rows_are_dealt_and_weighted(num):
    """Row i has i + 1 target tokens. The mean over rows of i is 2; over tokens it is Σ i (i + 1) / Σ (i + 1)."""
    batch = rows_of(5)

    def over_rows(numbers, rows):
        return [sum(row[0] for row in rows.prefixes) / len(rows) + n for n in numbers]

    def tokens(rows):
        return sum(map(len, rows.targets))

    def over_tokens(numbers, rows):
        return [sum(e.prefix[0] * len(e.target) for e in rows.examples) / tokens(rows) + n for n in numbers]

    assert dealt(num, True, over_rows, [0, 10], batch) == pytest.approx([2.0, 12.0])
    assert dealt(num, True, over_tokens, [0, 10], batch, weight=tokens) == pytest.approx([40 / 15, 10 + 40 / 15])


# -- halving ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("num", "halvings", "sizes"),
    [
        (48, 0, [48]),
        (48, 1, [24, 24]),
        (48, 2, [12, 12, 24]),
        (48, 3, [6, 6, 12, 24]),
        (5, 1, [2, 3]),
        (5, 2, [1, 1, 3]),
        (2, 4, [1, 1]),
        (1, 3, [1]),
    ],
)
def test_rows_are_cut_into_rounds_that_double(num, halvings, sizes):
    batch = rows_of(num)
    cut = blocks(batch, halvings)
    assert [len(block) for block in cut] == sizes
    assert [number for block in cut for number in block.numbers] == list(range(num))
    assert all(block.all is batch for block in cut)
    assert [row for block in cut for row in block.prefixes] == batch.prefixes


def test_a_part_of_a_round_still_knows_the_numbers_of_its_rows():
    batch = rows_of(8)
    share = blocks(batch, 1)[1].share(range(1, 3))
    assert (share.all, list(share.numbers), share.prefixes) == (batch, [5, 6], [(5,), (6,)])


def test_the_better_half_is_kept():
    assert better_half({0: 5.0, 1: 1.0, 2: 3.0, 3: 2.0}, stay=False) == [1, 3]
    assert better_half({0: 5.0, 1: 1.0, 2: 3.0, 3: 2.0}, stay=True) == [0, 1, 3]
    assert better_half({0: 5.0, 1: 1.0, 2: 3.0}, stay=False) == [1, 2]
    assert better_half({2: 1.0, 4: 1.0, 6: 1.0, 8: 1.0}, stay=True) == [2, 4]
    assert better_half({}, stay=True) == []


#: The cost of each of five candidates on each of eight rows.
COSTS = [
    [9, 9, 9, 9, 9, 9, 9, 9],
    [1, 1, 8, 8, 8, 8, 8, 8],
    [2, 2, 2, 2, 2, 2, 2, 6],
    [3, 3, 0, 0, 0, 0, 0, 0],  # would be best of all
    [4, 4, 4, 4, 4, 4, 4, 4],
]
BASE = [5.0] * 8


def lookup(seen):
    def compute(numbers, batch):
        seen.append((list(numbers), list(batch.numbers)))
        rows = {None: BASE} | dict(enumerate(COSTS))
        return [sum(rows[n][i] for i in batch.numbers) / len(batch) for n in numbers]

    return compute


def test_without_halvings_all_are_scored_on_all_rows():
    seen = []
    found = scores(lookup(seen), 5, rows_of(8), with_base=True)
    assert seen == [([0, 1, 2, 3, 4, None], list(range(8)))]
    assert found.costs == [sum(row) / 8 for row in COSTS]
    assert (found.rows, found.base, found.finalists, found.log()) == ([8] * 5, 5.0, [0, 1, 2, 3, 4], {})


def test_the_worse_half_goes_after_each_round():
    seen = []
    found = scores(lookup(seen), 5, rows_of(8), halvings=2, with_base=True)
    assert seen == [([0, 1, 2, 3, 4, None], [0, 1]), ([1, 2, 3, None], [2, 3]), ([2, 3, None], [4, 5, 6, 7])]
    assert found.rows == [2, 4, 8, 8, 2]
    assert found.costs == [9.0, 4.5, 2.5, 0.75, 4.0]  # over the rows that each was scored on
    assert found.finalists == [2, 3]
    assert found.base == 5.0
    assert found.log() == {"scored_rows": [2, 4, 8, 8, 2]}


def test_staying_stays_in():
    seen = []
    found = scores(lookup(seen), 5, rows_of(8), halvings=2, stay=True)
    assert [numbers for numbers, _ in seen] == [[0, 1, 2, 3, 4], [0, 1, 2, 3], [0, 2, 3]]
    assert found.finalists == [0, 2, 3]


def test_what_is_refused_is_not_scored_and_takes_nobody_s_place():
    seen = []
    found = scores(lookup(seen), 5, rows_of(8), halvings=1, out={1, 2})
    assert [numbers for numbers, _ in seen] == [[0, 3, 4], [3, 4]]
    assert found.finalists == [3, 4]
    assert found.costs == [9.0, None, None, 0.75, 4.0]
    assert (found.best, found.shown) == (0.75, 0.75)


def test_if_all_are_refused_the_weights_themselves_are_scored():
    seen = []
    found = scores(lookup(seen), 5, rows_of(8), halvings=1, out=range(5))
    assert [numbers for numbers, _ in seen] == [[None], [None]]
    assert (found.costs, found.finalists, found.best, found.shown) == ([None] * 5, [], 5.0, 5.0)


def test_costs_of_blocks_are_averaged_by_their_rows():
    found = scores(lambda numbers, batch: [math.pi] * len(numbers), 3, rows_of(7), halvings=1)
    assert found.costs == pytest.approx([math.pi] * 3)
    alone = scores(lambda numbers, batch: [0.1 + 0.2] * len(numbers), 3, rows_of(7))
    assert alone.costs == [0.1 + 0.2] * 3  # the same bits
