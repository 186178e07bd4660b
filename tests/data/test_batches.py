import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mgs.data import BatchStream, drawn_apart, packed, token_batches
from mgs.errors import UserError
from mgs.types import Batch, Example


def examples_of(lengths):
    """Examples of these lengths, each with its number as a column."""
    return [Example((1,), (2,) * (length - 1), {"number": i}) for i, length in enumerate(lengths)]


def numbers(batch):
    return [example.columns["number"] for example in batch.examples]


def numbers_of(batches):
    return [numbers(batch) for batch in batches]


def flat(lists):
    return [number for numbers in lists for number in numbers]


LENGTHS = [3, 9, 4, 12, 5, 5, 2, 30, 7, 8, 3, 6, 11, 2, 4]
# Their batches of 20 tokens with seed 3: a run that resumes counts on them.
PLAIN = [[5, 9], [12], [7], [10, 11, 13], [2, 4, 0], [3], [1, 14], [6, 8]]
GROUPED = [[13, 6, 10, 0, 2], [9, 1], [11, 8], [12], [14, 5, 4], [3], [7]]


@pytest.mark.parametrize(
    ("lengths", "budget", "batches"),
    [
        ([2, 2, 2, 2], 4, [[0, 1], [2, 3]]),
        ([1, 4, 1, 1], 8, [[0, 1], [2, 3]]),  # padded to the longest: 2 × 4, then a third would make 3 × 4
        ([1, 1, 1, 5], 5, [[0, 1, 2], [3]]),
        ([9, 2, 2], 4, [[0], [1, 2]]),  # one too long for the budget stands alone
        ([2, 9, 2], 4, [[0], [1], [2]]),
        ([], 4, []),
    ],
)
def test_batches_are_cut_where_padding_would_break_the_budget(lengths, budget, batches):
    assert token_batches(lengths, budget, range(len(lengths))) == batches


@given(
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=60),
    budget=st.integers(1, 120),
    seed=st.integers(0, 5),
    by_length=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_every_example_comes_once_an_epoch_within_the_budget(lengths, budget, seed, by_length):
    stream = BatchStream(examples_of(lengths), budget, seed, by_length, num_epochs=2)
    drawn = numbers_of(stream)
    for rows in drawn:
        longest = max(lengths[row] for row in rows)
        assert len(rows) * longest <= budget or len(rows) == 1
    first_epoch = drawn[: stream.start_of(1)]
    assert Counter(flat(first_epoch)) == Counter(range(len(lengths)))
    assert Counter(flat(drawn)) == Counter(dict.fromkeys(range(len(lengths)), 2))


@pytest.mark.parametrize("by_length", [False, True])
def test_a_batch_depends_on_its_number_alone(by_length):
    def stream():
        return BatchStream(examples_of(LENGTHS), 20, seed=3, by_length=by_length, num_batches=40)

    forward = numbers_of(stream())
    backward = stream()
    assert [numbers(backward[i]) for i in reversed(range(40))] == forward[::-1]
    assert numbers(stream()[25]) == forward[25]


def test_a_longer_run_starts_with_the_same_batches():
    short = BatchStream(examples_of(LENGTHS), 20, num_batches=10)
    long = BatchStream(examples_of(LENGTHS), 20, num_batches=30)
    assert numbers_of(short) == numbers_of(long)[:10]


def test_seeds_and_epochs_shuffle_differently():
    first, second = (BatchStream(examples_of(LENGTHS), 20, seed, num_epochs=2) for seed in (0, 1))
    first_epoch, second_epoch = numbers_of(first)[: first.start_of(1)], numbers_of(first)[first.start_of(1) :]
    assert flat(first_epoch) != flat(second_epoch)
    assert flat(first_epoch) != flat(numbers_of(second)[: second.start_of(1)])


def test_grouping_by_length_saves_padding():
    def padding(by_length):
        stream = BatchStream(examples_of(LENGTHS * 20), 60, by_length=by_length)
        return sum(len(batch) * max(map(len, batch.examples)) - sum(map(len, batch.examples)) for batch in stream)

    assert padding(by_length=True) < padding(by_length=False) / 3


@pytest.mark.parametrize(("num_epochs", "num_batches"), [(1, 8), (3, 24), (0.5, 4), (1.25, 10), (2.99, 24), (0.01, 1)])
def test_epochs_may_be_fractions(num_epochs, num_batches):
    stream = BatchStream(examples_of([5] * 16), budget=10, num_epochs=num_epochs)  # two rows a batch: 8 an epoch
    assert len(stream) == len(list(stream)) == num_batches


def test_a_number_of_batches_overrules_epochs_and_runs_on_as_long_as_asked():
    stream = BatchStream(examples_of([5] * 16), budget=10, num_batches=19, num_epochs=1)
    assert len(stream) == 19
    assert len(stream[18]) == 2
    with pytest.raises(IndexError):
        stream[19]


def test_no_examples_and_no_budget_are_errors():
    with pytest.raises(UserError, match="no training examples"):
        BatchStream([], 10)
    with pytest.raises(UserError, match="at least 1, got 0"):
        BatchStream(examples_of([3]), 0)


def pairs_of(lengths):
    """Examples whose two sides have these lengths, each with its number as a column."""
    return [Example((1,) * left, (2,) * right, {"number": i}) for i, (left, right) in enumerate(lengths)]


SIDES = [(3, 4), (9, 2), (4, 4), (2, 12), (5, 5), (1, 5), (6, 6), (30, 3), (7, 8), (8, 1), (3, 3), (6, 11), (2, 2)]


@pytest.mark.parametrize(
    ("lengths", "budget", "batches"),
    [
        ([(1, 1), (1, 1), (1, 1)], 4, [[0, 1], [2]]),
        ([(1, 3), (3, 1)], 8, [[0], [1]]),  # 4 tokens each, but side by side they are padded to 3 + 3
        ([(1, 3), (3, 1)], 12, [[0, 1]]),
        ([(1, 3), (1, 3), (3, 1), (3, 1)], 8, [[0, 1], [2, 3]]),  # a new batch forgets what the last was padded to
        ([(9, 9), (1, 1)], 4, [[0], [1]]),
    ],
)
def test_sides_are_padded_each_to_its_own_longest(lengths, budget, batches):
    assert token_batches(lengths, budget, range(len(lengths))) == batches


@given(
    lengths=st.lists(st.tuples(st.integers(1, 20), st.integers(1, 20)), min_size=1, max_size=60),
    budget=st.integers(1, 150),
    by_length=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_the_budget_holds_for_sources_and_targets_together(lengths, budget, by_length):
    stream = BatchStream(pairs_of(lengths), budget, by_length=by_length, by_side=True)
    for batch in stream:
        size = len(batch) * (max(map(len, batch.prefixes)) + batch.max_target)
        assert size <= budget or len(batch) == 1
    assert Counter(flat(numbers_of(stream))) == Counter(range(len(lengths)))


def test_sides_are_grouped_and_shuffled_like_rows():
    def stream(by_length, seed=3):
        return BatchStream(pairs_of(SIDES * 20), 120, seed, by_length=by_length, by_side=True)

    def padded(batches):
        return sum(len(batch) * (max(map(len, batch.prefixes)) + batch.max_target) for batch in batches)

    real = sum(map(sum, SIDES * 20))
    assert padded(stream(by_length=True)) - real < (padded(stream(by_length=False)) - real) / 3
    assert numbers_of(stream(True)) == numbers_of(stream(True)) != numbers_of(stream(True, seed=4))


@pytest.mark.parametrize("by_length", [False, True])
def test_sides_make_no_difference_where_all_prefixes_are_as_long(by_length):
    """Completions with a fixed context are batched alike either way."""
    examples = pairs_of([(3, length) for length in LENGTHS])
    rows, sides = (BatchStream(examples, 20, by_length=by_length, by_side=side, num_epochs=3) for side in (False, True))
    assert numbers_of(rows) == numbers_of(sides)


def test_the_batches_of_a_seed_are_those_of_earlier_versions():
    grouped = BatchStream(examples_of(LENGTHS), 20, seed=3, by_length=True)
    plain = BatchStream(examples_of(LENGTHS), 20, seed=3)
    assert (numbers_of(plain), numbers_of(grouped)) == (PLAIN, GROUPED)


def test_examples_are_drawn_apart_from_a_batch():
    examples = [Example((i,), (1, i)) for i in range(20)]
    batch = Batch(examples[3:9])
    drawn = drawn_apart(examples, 10, batch, 1, 2)
    assert len({example.prefix for example in drawn.examples}) == len(drawn) == 10
    assert not {*drawn.prefixes} & {*batch.prefixes}
    assert drawn == drawn_apart(examples, 10, batch, 1, 2) != drawn_apart(examples, 10, batch, 1, 3)
    assert sorted(drawn_apart(examples, 50, batch, 0).prefixes) == [(i,) for i in range(20) if not 3 <= i < 9]
    assert len(drawn_apart(examples[3:9], 4, batch, 0)) == 0


def test_an_example_that_repeats_one_of_the_batch_is_not_apart_from_it():
    examples = [Example((1,), (2, 0)) for _ in range(9)] + [Example((1,), (3, 0))]
    drawn = drawn_apart(examples, 9, Batch(examples[:1]), 0)
    assert drawn.targets == [(3, 0)]


@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize(("budget", "enough"), [(300, 8192), (4000, 500), (100_000, 500), (1, 0)])
def test_packing_leaves_no_row_out_and_little_padding(pairs, budget, enough):
    draw = random.Random(3)
    sizes = [draw.randint(1, 200) for _ in range(150)]
    lengths = [(size, draw.randint(1, size)) for size in sizes] if pairs else sizes
    whole = [sum(length) for length in lengths] if pairs else sizes
    batches = packed(lengths, budget, enough)
    assert sorted(row for rows in batches for row in rows) == list(range(len(lengths)))
    for rows in batches:
        longest = sum(max(lengths[r][side] for r in rows) for side in (0, 1)) if pairs else max(whole[r] for r in rows)
        assert len(rows) == 1 or longest * len(rows) <= budget
        if longest * len(rows) > 3 * max(enough, 200) and not pairs:
            assert longest * len(rows) <= 1.3 * sum(whole[r] for r in rows)
    if budget > enough:
        padded = sum(max(whole[r] for r in rows) * len(rows) for rows in batches)
        assert padded < 1.5 * sum(whole)


def test_rows_that_are_not_alike_still_share_a_pass_that_would_not_be_worth_its_while():
    assert packed([5, 100, 6, 90], budget=10_000, enough=1000) == [[0, 2, 3, 1]]
    assert packed([5, 100, 6, 90], budget=10_000, enough=10) == [[0, 2], [3, 1]]
