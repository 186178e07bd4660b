import importlib
import sys

import pytest

from mgs.data import docstrings
from mgs.data.docstrings import docstring_paragraphs, is_prose

FIRST = "The cat sat on the mat because the floor was cold and nobody had lit the fire."
SECOND = "Dogs, on the other hand, do not mind the cold at all and would rather be outside."
THIRD = "A method has a docstring as well, and its sentences are worth as much as others."

ACCEPTED = [
    FIRST,
    "Return the number of rows, which is never smaller than one, or nothing at all if asked to.",
    "Is this a question that somebody would write in a docstring of more than sixty characters?",
    "It wraps `quoted` names, commas, apostrophes (it isn't picky) and still counts as a sentence.",
]
REJECTED = {
    "too short": "The cat sat on the mat.",
    "too long": "The cat sat on the mat. " * 60 + "It was cold.",
    "no capital": "the cat sat on the mat because the floor was cold and nobody had lit the fire.",
    "no full stop": "The cat sat on the mat because the floor was cold and nobody had lit the fire",
    "doctest": ">>> print(the_cat_sat_on_the_mat_because_the_floor_was_cold_and_nobody_cared)",
    "literal block": "The cat sat on the mat because the floor was cold, as the example shows:: so.",
    "assignment": "The cat sat on the mat because warmth = 0 and nobody had lit the fire at all.",
    "LaTeX": r"The cat sat on \alpha mats because the floor was cold and nobody had lit a fire.",
    "call": "The cat calls sit(mat) because the floor was cold and nobody had lit the fire.",
    "address": "The cat has a page at https://cat.example where the floor is cold and the fire out.",
    "list": "- The cat sat on the mat because the floor was cold and nobody had lit the fire.",
    "ellipsis": "The cat sat on the mat... because the floor was cold and nobody had lit the fire.",
    "not ASCII": "The cat sat on the café's mat because the floor was cold and the fire was not lit.",
    "mostly figures": "The 1, 22, 333, 4444, 55555, 666666, 7777777, 88888888 and 999999999 are numbers.",
    "shouting only": "THE CAT SAT ON THE MAT BECAUSE THE FLOOR WAS COLD AND NOBODY HAD LIT THE FIRE.",
}


@pytest.mark.parametrize("paragraph", ACCEPTED)
def test_prose_is_accepted(paragraph):
    assert is_prose(paragraph)


@pytest.mark.parametrize("paragraph", REJECTED.values(), ids=REJECTED.keys())
def test_what_is_not_prose_is_rejected(paragraph):
    assert not is_prose(paragraph)


def test_the_limits_of_length_are_inclusive():
    assert is_prose("A" + "a" * 58 + ".")
    assert not is_prose("A" + "a" * 57 + ".")
    assert is_prose("A" + "a" * 1198 + ".")
    assert not is_prose("A" + "a" * 1199 + ".")


@pytest.fixture
def package(tmp_path, monkeypatch):
    """The only installed package: `madeup` 1.0, which cannot be imported."""
    site = tmp_path / "site"
    root = site / "madeup"
    (root / "tests").mkdir(parents=True)
    (root / "__init__.py").write_text(f'"""{FIRST}\n\n>>> cat()\n"""\nraise RuntimeError("imported")\n')
    wrapped = THIRD.replace("well, and", "well,\n        and")
    (root / "animals.py").write_text(
        f'"""{SECOND}\n\n{FIRST}"""\nclass Dog:\n    def bark(self):\n        """{wrapped}\n        """\n'
    )
    (root / "broken.py").write_text('"""' + FIRST.replace("cat", "cow") + '"""\ndef (')
    (root / "latin.py").write_bytes(b'"""' + FIRST.replace("cat", "hen").encode() + b'"""\n# \xe9\n')
    (root / "notes.txt").write_text(f'"""{FIRST.replace("cat", "pig")}"""')
    (root / "tests" / "test_animals.py").write_text(f'"""{FIRST.replace("cat", "fox")}"""')
    _set_version(site, "1.0")
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setattr(docstrings, "PACKAGES", ("madeup",))
    monkeypatch.setattr(docstrings.sysconfig, "get_paths", lambda: {"stdlib": str(tmp_path / "no-standard-library")})
    return root


def _set_version(site, version):
    folder = site / "madeup.dist-info"
    folder.mkdir(exist_ok=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: madeup\nVersion: {version}\n")
    importlib.invalidate_caches()


def test_paragraphs_come_in_a_fixed_order_each_once(package, tmp_path):
    assert docstring_paragraphs(tmp_path / "cache") == [FIRST, SECOND, THIRD]
    assert docstring_paragraphs(tmp_path / "other cache") == [FIRST, SECOND, THIRD]


def test_nothing_is_imported(package, tmp_path):
    docstring_paragraphs(tmp_path / "cache")
    assert "madeup" not in sys.modules


def test_the_cache_is_written_and_read(package, tmp_path, monkeypatch):
    cache = tmp_path / "cache"
    collected = docstring_paragraphs(cache)
    (file,) = cache.iterdir()
    assert file.read_text().splitlines() == collected
    monkeypatch.setattr(docstrings, "_collect", lambda: pytest.fail("collected again in spite of the cache"))
    file.write_text("Only the cache knows this sentence.\n")
    assert docstring_paragraphs(cache) == ["Only the cache knows this sentence."]


def test_the_environment_names_the_cache_folder(package, tmp_path, monkeypatch):
    monkeypatch.setenv("MGS_CACHE", str(tmp_path / "from environment"))
    docstring_paragraphs()
    assert [file.suffix for file in (tmp_path / "from environment").iterdir()] == [".txt"]


@pytest.mark.parametrize("change", ["version", "rules"])
def test_another_version_or_other_rules_do_not_read_a_stale_cache(package, tmp_path, monkeypatch, change):
    cache = tmp_path / "cache"
    docstring_paragraphs(cache)
    (package / "animals.py").unlink()
    assert docstring_paragraphs(cache) == [FIRST, SECOND, THIRD]
    if change == "version":
        _set_version(package.parent, "1.1")
    else:
        monkeypatch.setattr(docstrings, "RULES", docstrings.RULES + 1)
    assert docstring_paragraphs(cache) == [FIRST]


def test_a_cache_folder_that_cannot_be_written_does_no_harm(package, tmp_path):
    (tmp_path / "a file").write_text("")
    assert docstring_paragraphs(tmp_path / "a file" / "cache") == [FIRST, SECOND, THIRD]
