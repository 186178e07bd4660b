"""Costs of a sequence by itself or against its reference, as plain functions. Lower is better everywhere.

Token ids include the final ⟨eos⟩, so that leaving it out is a mistake like any other.
"""

from __future__ import annotations

from collections.abc import Sequence

from mgs.types import Text

NGRAM = 4


def edit(hypotheses: Sequence[Text], references: Sequence[Text]) -> list[float]:
    """Token edit distance divided by the reference's length, at most 1."""
    from rapidfuzz.distance import Levenshtein

    # `process.cpdist` takes all rows at once, but measures no faster than this, for 36 rows as for 9,216.
    return [
        min(1.0, Levenshtein.distance(hypothesis.token_ids, reference.token_ids) / max(1, len(reference.token_ids)))
        for hypothesis, reference in zip(hypotheses, references, strict=True)
    ]


def repetition(hypotheses: Sequence[Text], references: Sequence[Text]) -> list[float]:
    """Share of 4-grams that occurred before in the same sequence; 0 for a sequence too short to have one."""
    return [repeated_share(hypothesis.token_ids) or 0.0 for hypothesis in hypotheses]


def nontermination(hypotheses: Sequence[Text], references: Sequence[Text]) -> list[float]:
    """1 for a sequence without ⟨eos⟩."""
    return [0.0 if hypothesis.ended else 1.0 for hypothesis in hypotheses]


def repeated_share(token_ids: Sequence[int], n: int = NGRAM) -> float | None:
    """1 − unique n-grams / n-grams, or None where there is no n-gram.

    >>> repeated_share([1, 2, 3, 4, 1, 2, 3, 4])  # five 4-grams, the last like the first
    0.19999999999999996
    """
    ngrams = list(zip(*(token_ids[i:] for i in range(n)), strict=False))  # the shortest, the last, sets the number
    return 1 - len(set(ngrams)) / len(ngrams) if ngrams else None
