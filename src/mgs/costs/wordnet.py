"""The senses of English words, read from WordNet's own database files (`index.*` and `*.exc`, described in wndb(5)).

NLTK's reader is not used: it wants files that Debian's package does not have (`lexnames`, `index.sense`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from mgs.errors import UserError

#: Where packages put the database; `WNSEARCHDIR` and `WNHOME` are WordNet's own variables and come first.
PLACES = ("/usr/share/wordnet", "/usr/local/WordNet-3.0/dict", "/usr/local/share/wordnet/dict")

#: Endings of inflected words and what the base form has in their place, by part of speech, from morphy(7).
ENDINGS: dict[str, tuple[tuple[str, str], ...]] = {
    "noun": (
        *(("s", ""), ("ses", "s"), ("xes", "x"), ("zes", "z")),
        *(("ches", "ch"), ("shes", "sh"), ("men", "man"), ("ies", "y")),
    ),
    "verb": (
        *(("s", ""), ("ies", "y"), ("es", "e"), ("es", "")),
        *(("ed", "e"), ("ed", ""), ("ing", "e"), ("ing", "")),
    ),
    "adj": (("er", ""), ("est", ""), ("er", "e"), ("est", "e")),
    "adv": (),
}


def places() -> list[Path]:
    """Where to look."""
    named = [
        Path(os.environ[name], *below) for name, *below in (("WNSEARCHDIR",), ("WNHOME", "dict")) if name in os.environ
    ]
    return [*named, *map(Path, PLACES)]


def has_wordnet() -> bool:
    return any(map(_is_database, places()))


def folder() -> Path:
    """Where WordNet is, or an error that says how to get it."""
    for place in places():
        if _is_database(place):
            return place
    raise UserError(
        f"the cost 'meteor' needs WordNet 3, which is in none of {', '.join(map(str, places()))}: install it "
        "(Debian and Ubuntu: apt-get install wordnet-base), or unpack WNdb-3.0.tar.gz from wordnet.princeton.edu and "
        "set WNSEARCHDIR to the folder with index.noun"
    )


def _is_database(place: Path) -> bool:
    return all((place / f"index.{part}").is_file() for part in ENDINGS)


class WordNet:
    """The single words of the database. Reading it takes about half a second."""

    def __init__(self, place: Path):
        self._senses = {part: dict(_index(place / f"index.{part}", number)) for number, part in enumerate(ENDINGS)}
        self._irregular = {part: dict(_exceptions(place / f"{part}.exc")) for part in ENDINGS}

    def senses(self, word: str) -> frozenset[int]:
        """Numbers of all the synsets that the word is in, as it stands or as a form of another word.

        Two words are synonyms if they share one. Words must be in lower case.
        """
        found: set[int] = set()
        for part, senses in self._senses.items():
            for form in (word, *self._bases(word, part)):
                found.update(senses.get(form, ()))
        return frozenset(found)

    def _bases(self, word: str, part: str) -> list[str]:
        """What the word may be a form of: by the list of irregular forms, or else by its ending."""
        irregular = self._irregular[part].get(word)
        if irregular is not None:
            return irregular
        if len(word) <= 2 or word.endswith("ss"):
            return []
        return [word[: -len(ending)] + instead for ending, instead in ENDINGS[part] if word.endswith(ending)]


def _index(path: Path, number: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Each word with its synsets: `lemma pos synset_cnt ... synset_offset [synset_offset...]`."""
    for line in path.read_text("utf-8").splitlines():
        lemma, _, rest = line.partition(" ")
        if lemma and "_" not in lemma:  # the licence starts with spaces; phrases match no single word
            fields = rest.split()
            # Offsets are unique in a part of speech alone.
            yield lemma, tuple(int(offset) * len(ENDINGS) + number for offset in fields[-int(fields[1]) :])


def _exceptions(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Each irregular form with its base forms: `geese goose`."""
    if path.is_file():
        for line in path.read_text("utf-8").splitlines():
            form, *bases = line.split()
            yield form, bases
