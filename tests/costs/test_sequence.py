import random

import pytest
import rapidfuzz.distance
from rapidfuzz.distance import Levenshtein, Levenshtein_py

from mgs.costs import edit, nontermination, repeated_share, repetition
from mgs.types import Text


def text(*token_ids, ended=True):
    return Text("", token_ids, ended)


EDITS = [
    # hypothesis, reference, distance / length
    ((1, 2, 3, 0), (1, 2, 3, 0), 0),
    ((1, 2, 4, 0), (1, 2, 3, 0), 1 / 4),  # one substitution
    ((1, 2, 0), (1, 2, 3, 0), 1 / 4),  # one missing
    ((1, 9, 2, 3, 0), (1, 2, 3, 0), 1 / 4),  # one too many
    ((2, 3, 0), (1, 2, 3, 0), 1 / 4),  # a shift costs one, not all
    ((1, 2, 3), (1, 2, 3, 0), 1 / 4),  # ⟨eos⟩ left out
    ((0,), (1, 2, 3, 0), 3 / 4),
    ((), (1, 2, 3, 0), 1),
    ((5, 6, 7, 8), (1, 2, 3, 0), 1),
    (tuple(range(10, 60)), (1, 0), 1),  # 50 edits on two tokens: at most 1
    ((1, 0), (0,), 1),
    ((2, 1, 0), (1, 2, 0), 2 / 3),  # a swap costs two
]


@pytest.mark.parametrize(("hypothesis", "reference", "expected"), EDITS)
def test_edit_distance_over_the_references_length(hypothesis, reference, expected):
    assert edit([text(*hypothesis)], [text(*reference)]) == [pytest.approx(expected)]


def test_edit_compares_tokens_and_not_letters():
    assert edit([Text("same words", (1, 2))], [Text("same words", (3, 4))]) == [1.0]


def textbook(a, b):
    """The edit distance by its recurrence."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, start=1):
        last, row[0] = row[0], i
        for j, y in enumerate(b, start=1):
            last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (x != y))
    return row[-1]


@pytest.mark.parametrize("implementation", [Levenshtein, Levenshtein_py], ids=["compiled", "Python"])
def test_edit_of_many_rows_is_the_textbooks(implementation, monkeypatch):
    monkeypatch.setattr(rapidfuzz.distance, "Levenshtein", implementation)
    draw = random.Random(0)
    # Longer than one machine word, ids beyond a byte and beyond 16 bits.
    hypotheses, references = (
        [draw.choices((0, 1, 2, 300, 70_000), k=draw.randint(0, 90)) for _ in range(40)] for _ in range(2)
    )
    expected = [min(1, textbook(h, r) / max(1, len(r))) for h, r in zip(hypotheses, references, strict=True)]
    assert edit([text(*h) for h in hypotheses], [text(*r) for r in references]) == expected
    assert sum(value < 1 for value in expected) > 10


REPETITIONS = [
    ((), None),
    ((1, 2, 3), None),
    ((1, 2, 3, 4), 0),
    ((1, 2, 3, 4, 5), 0),
    ((1, 1, 1, 1, 1), 1 / 2),  # two 4-grams, one kind
    ((7,) * 13, 9 / 10),  # ten 4-grams, one kind
    ((1, 2, 3, 4, 1, 2, 3, 4), 1 / 5),  # 1234 2341 3412 4123 1234
    ((1, 2, 1, 2, 1, 2, 1, 2), 3 / 5),  # 1212 2121 1212 2121 1212
    ((1, 2, 3, 9, 1, 2, 3), 0),  # a repeated 3-gram is none
]


@pytest.mark.parametrize(("token_ids", "expected"), REPETITIONS)
def test_repetition_is_the_share_of_4_grams_seen_before(token_ids, expected):
    assert repeated_share(token_ids) == (None if expected is None else pytest.approx(expected))
    assert repetition([text(*token_ids)], [text()]) == [pytest.approx(expected or 0.0)]


def test_the_order_of_the_n_gram_can_be_chosen():
    assert repeated_share((1, 2, 3, 9, 1, 2, 3), n=3) == pytest.approx(1 / 5)


def test_nontermination_is_one_without_eos():
    hypotheses = [text(1, 0), text(1, 2, ended=False), text(0), text(ended=False)]
    assert nontermination(hypotheses, [text()] * 4) == [0.0, 1.0, 0.0, 1.0]


@pytest.mark.parametrize("cost", [edit, repetition, nontermination])
def test_values_come_in_the_order_of_the_hypotheses(cost):
    hypotheses = [text(1, 1, 1, 1, 1, ended=False), text(1, 2, 3, 4, 0), text(5, 0)]
    references = [text(1, 2, 3, 4, 0)] * 3
    alone = [cost([h], [r])[0] for h, r in zip(hypotheses, references, strict=True)]
    assert cost(hypotheses, references) == alone
    assert len(set(alone)) >= 2
