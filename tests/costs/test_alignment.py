"""The alignment against every alignment there is."""

import itertools
import random

import pytest

from mgs.costs import alignment
from mgs.costs.alignment import align

#: By hand: where each word may match, the most matches, the fewest chunks.
TABLE = [
    ([], 0, 0),
    ([0, 0], 0, 0),
    ([0b1], 1, 1),
    ([0b001, 0b010, 0b100], 3, 1),
    ([0b001, 0, 0b010], 2, 2),  # a gap in the hypothesis
    ([0b001, 0b100], 2, 2),  # a gap in the reference
    ([0b010, 0b001], 2, 2),
    ([0b1, 0b1], 1, 1),  # two words for one place
    ([0b11, 0b01], 2, 2),  # the first must leave its first place to the second
    ([0b1001, 0b0010, 0b1001], 3, 2),
    ([0b100, 0b001001, 0b010010, 0b001001], 4, 2),
]


@pytest.mark.parametrize(("masks", "matches", "chunks"), TABLE)
def test_alignments_counted_by_hand(masks, matches, chunks):
    assert align(masks) == (matches, chunks)


def every_alignment(masks):
    """(matches, −chunks) of each."""
    places = [[None, *(place for place in range(mask.bit_length()) if mask >> place & 1)] for mask in masks]
    for chosen in itertools.product(*places):
        taken = [place for place in chosen if place is not None]
        if len(set(taken)) == len(taken):
            before = [None, *chosen][: len(chosen)]
            starts = [
                place is not None and (last is None or last + 1 != place)
                for last, place in zip(before, chosen, strict=True)
            ]
            yield len(taken), -sum(starts)


def sentences(draw, length, words):
    """Where a sentence of a few different words matches another; some words have a second sense."""
    hypothesis, reference = (draw.choices(range(words), k=draw.randint(1, length)) for _ in range(2))
    senses = {word: {word} | ({draw.randrange(words)} if draw.random() < 0.3 else set()) for word in range(words)}
    return [sum((other in senses[word]) << place for place, other in enumerate(reference)) for word in hypothesis]


@pytest.mark.parametrize("words", [2, 3, 4, 6])
def test_no_alignment_is_better(words):
    draw = random.Random(words)
    for _ in range(60):
        masks = sentences(draw, 7, words)
        matches, chunks = align(masks)
        assert (matches, -chunks) == max(every_alignment(masks))


def test_a_narrow_search_keeps_the_most_matches(monkeypatch):
    draw = random.Random(0)
    cases = [sentences(draw, 30, 8) for _ in range(100)]
    wide = [align(masks) for masks in cases]
    monkeypatch.setattr(alignment, "NARROW", 1)
    monkeypatch.setattr(alignment, "WIDE", 1)
    narrow = [align(masks) for masks in cases]
    assert [matches for matches, _ in narrow] == [matches for matches, _ in wide]
    assert all(few <= many <= matches for (matches, few), (_, many) in zip(wide, narrow, strict=True))
    assert narrow != wide


def test_a_hypothesis_that_never_ends():
    assert align([0b0001, 0b0110, 0b1000, 0b0110] * 250) == (4, 2)  # places 0 and 1, and in another round 2 and 3


def test_a_place_that_thousands_of_words_must_move_for():
    assert align([0b11 << i for i in range(2000)] + [1]) == (2001, 2)
