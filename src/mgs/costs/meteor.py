"""METEOR for English, as a cost: 1 − METEOR.

Words of the hypothesis and the reference match if they are the same, have the same stem (Porter2), or share a WordNet
synset. Of the one-to-one alignments with the most matches m, one with the fewest chunks c is taken (`alignment`). With
P = m / |hypothesis| and R = m / |reference|,

    METEOR = P R / (α P + (1 − α) R) · (1 − γ (c / m)^β),    α = 0.9, β = 3, γ = 0.5

These are the parameters of Banerjee & Lavie (2005), and of NLTK. As in METEOR 1.5, one chunk that covers both sentences
has no penalty, so that a perfect hypothesis costs 0. METEOR 1.5 itself has other parameters and a table of paraphrases
too large to ship: these figures do not compare with its defaults. With the parameters and matchers above it agrees but
for habits of its own: it drops inexact matches that are ambiguous, its search often misses the fewest chunks, and it
looks for base forms without regard to the part of speech.

Text is lowercased and tokenized by sacrebleu's `13a`; punctuation counts as words.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple

from mgs.costs.alignment import align
from mgs.costs.wordnet import WordNet, folder
from mgs.types import Text

ALPHA, BETA, GAMMA = 0.9, 3.0, 0.5
SIGNATURE = f"nrefs:1|case:lc|tok:13a|match:exact+porter2+wordnet|alpha:{ALPHA}|beta:{BETA}|gamma:{GAMMA}"


def meteor(hypotheses: Sequence[Text], references: Sequence[Text]) -> list[float]:
    """1 − METEOR, in [0, 1], with WordNet's synonyms: for English."""
    scorer = _scorer(folder())
    return [1.0 - scorer.score(str(h), str(r)) for h, r in zip(hypotheses, references, strict=True)]


class _Reference(NamedTuple):
    """A reference's length and where its words are: bit j of a mask is word j."""

    length: int
    places: dict[str | int, int]
    #: Masks of hypothesis words met before.
    known: dict[str, int]


class Scorer:
    """METEOR of one sentence at a time, remembering words and references."""

    def __init__(self, wordnet: WordNet):
        import snowballstemmer
        from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

        self._wordnet, self._tokenize = wordnet, Tokenizer13a()
        # Porter's later stemmer, as in METEOR 1.5: his first has the same stem for `a` and `as`, `on` and `one`.
        self._stem = snowballstemmer.stemmer("english").stemWord
        self._keys = lru_cache(1 << 17)(self._make_keys)
        self._reference = lru_cache(1 << 14)(self._make_reference)

    def score(self, hypothesis: str, reference: str) -> float:
        """METEOR in [0, 1]; 0 where nothing matches."""
        length, places, known = self._reference(reference)
        words = self._words(hypothesis)
        for word in words:
            if word not in known:
                mask = 0
                for key in self._keys(word):
                    mask |= places.get(key, 0)
                known[word] = mask
        return value(*align([known[word] for word in words]), len(words), length)

    def _words(self, text: str) -> list[str]:
        return self._tokenize(text.lower()).split()

    def _make_keys(self, word: str) -> tuple[str | int, ...]:
        """Two words match if they share one of these. Words that are the same have the same stem."""
        return (self._stem(word), *self._wordnet.senses(word))

    def _make_reference(self, text: str) -> _Reference:
        words = self._words(text)
        places: dict[str | int, int] = {}
        for place, word in enumerate(words):
            for key in self._keys(word):
                places[key] = places.get(key, 0) | 1 << place
        return _Reference(len(words), places, {})


@cache
def _scorer(place: Path) -> Scorer:
    return Scorer(WordNet(place))


def value(matches: int, chunks: int, hypothesis: int, reference: int) -> float:
    """The score from the counts and the two lengths.

    >>> round(value(6, 2, 6, 7), 4)  # "the president spoke to the audience" for "the president then spoke to ..."
    0.8535
    """
    if not matches:
        return 0.0
    if matches == hypothesis == reference and chunks == 1:
        return 1.0
    precision, recall = matches / hypothesis, matches / reference
    mean = precision * recall / (ALPHA * precision + (1 - ALPHA) * recall)
    return mean * (1 - GAMMA * (chunks / matches) ** BETA)
