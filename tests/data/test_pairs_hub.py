"""Sentence pairs by a `datasets` name."""

import sys
from types import SimpleNamespace

import pytest

from mgs.data.pairs import read_pairs
from mgs.errors import UserError


@pytest.fixture
def hub(monkeypatch):
    """A stand-in for the `datasets` library that remembers how it was called."""

    class Dataset(dict):
        column_names = property(list)

    rows = {
        "some/pairs": {"id": [0, 1], "translation": [{"de": " Ein\nHund. ", "en": "A dog."}, {"de": "", "en": "x"}]},
        "some/columns": {"de": ["Ein Hund."], "en": ["A dog."]},
        "some/nothing": {"de": [None], "en": ["A dog."]},
    }

    def load_dataset(name, config, split):
        calls.append((name, config, split))
        if name not in rows:
            raise FileNotFoundError(f"Dataset {name!r} doesn't exist on the Hub\nmore lines")
        return Dataset(rows[name])

    calls = []
    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    return calls


def test_a_dataset_has_a_translation_column_or_one_a_language(hub):
    assert read_pairs("some/pairs:de-en", "valid", "de-en") == [("Ein Hund.", "A dog."), ("", "x")]
    assert read_pairs("some/pairs", "train", "en-de") == [("A dog.", "Ein Hund."), ("x", "")]
    assert read_pairs("some/columns", "test", "en-de") == [("A dog.", "Ein Hund.")]
    assert hub == [
        ("some/pairs", "de-en", "validation"),
        ("some/pairs", None, "train"),
        ("some/columns", None, "test"),
    ]


HUB = {
    "no such dataset": ("nobody/nothing", "de-en", r"unknown data 'nobody/nothing'.*hub says: .* exist on the Hub$"),
    "no languages": ("some/pairs", None, r"'some/pairs' needs languages"),
    "missing language": ("some/pairs", "de-fr", r"unknown language in dataset some/pairs 'fr' .*allowed: de, en\)"),
    "missing column": (
        "some/columns",
        "de-fr",
        r"no column 'translation', nor columns 'de' and 'fr' \(it has: de, en\)",
    ),
    "not a string": ("some/nothing", "de-en", r"a sentence of dataset 'some/nothing' is not a string: None"),
}


@pytest.mark.parametrize(("name", "languages", "message"), HUB.values(), ids=HUB.keys())
def test_a_dataset_without_what_was_asked_for_is_an_error(hub, name, languages, message):
    with pytest.raises(UserError, match=message):
        read_pairs(name, "train", languages)


def test_without_the_datasets_library_an_unknown_name_is_explained(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UserError, match=r"unknown data 'wmt14'.*FILE\.de,FILE\.en.*pip install datasets"):
        read_pairs("wmt14", "train", "de-en")
