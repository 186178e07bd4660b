"""The embedded corpus: English paragraphs from the docstrings of packages that are installed anyway.

Files are parsed with `ast` and never imported. For given versions of the packages the result is the same on
every machine; it is cached under the user's cache folder, keyed by those versions and by the rules below.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.metadata
import importlib.util
import os
import platform
import re
import sysconfig
import warnings
from collections.abc import Iterator
from pathlib import Path

from tqdm.auto import tqdm

PACKAGES = ("torch", "transformers", "numpy")
RULES = 1  # raise when the rules that choose paragraphs change, so that no stale cache is read
SKIPPED_FOLDERS = {"test", "tests", "testing", "idlelib", "lib2to3", "site-packages", "dist-packages", "__pycache__"}
MIN_CHARACTERS, MAX_CHARACTERS = 60, 1200

# Markup and code rather than prose: doctests, tables, lists of arguments, LaTeX, assignments, literal blocks.
NOT_PROSE = re.compile(r">>>|::|\{\{|\}\}|[|\\<>{}=$^~]|\.\.\.|--|__|\*\*|^[-*+#:\d]|\w\(\w|\[\d|https?:")
SENTENCE = re.compile(r"^[A-Z][^A-Z]*[a-z].*[.!?]$")


def docstring_paragraphs(cache: Path | None = None) -> list[str]:
    """All paragraphs of the corpus, in a fixed order."""
    folder = cache or Path(os.environ.get("MGS_CACHE") or Path.home() / ".cache" / "mgs")
    file = folder / f"docstrings-{_fingerprint()}.txt"
    if file.exists():
        return file.read_text(encoding="utf-8").splitlines()
    paragraphs = _collect()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        aside = file.with_suffix(f".{os.getpid()}.tmp")
        aside.write_text("\n".join(paragraphs) + "\n", encoding="utf-8")
        aside.replace(file)  # another process may do the same at once; either result is whole
    except OSError:
        pass  # without a cache the next call collects again
    return paragraphs


def _fingerprint() -> str:
    versions = [platform.python_version(), *(importlib.metadata.version(name) for name in PACKAGES), str(RULES)]
    return hashlib.blake2b("|".join(versions).encode(), digest_size=6).hexdigest()


def _collect() -> list[str]:
    seen: dict[str, None] = {}
    for file in tqdm(list(_source_files()), desc="reading docstrings", unit="file", leave=False):
        for paragraph in _paragraphs_of(file):
            seen.setdefault(paragraph)
    return list(seen)


def _source_files() -> Iterator[Path]:
    roots = [Path(sysconfig.get_paths()["stdlib"])]
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)  # of a top-level package: finds it without importing it
        if spec and spec.origin:
            roots.append(Path(spec.origin).parent)
    for root in roots:
        for folder, folders, files in os.walk(root):
            folders[:] = sorted(set(folders) - SKIPPED_FOLDERS)
            yield from (Path(folder, name) for name in sorted(files) if name.endswith(".py"))


def _paragraphs_of(file: Path) -> Iterator[str]:
    try:
        text = file.read_text(encoding="utf-8")
        if '"""' not in text:
            return
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in other people's files
            tree = ast.parse(text)
    except (OSError, UnicodeDecodeError, SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            docstring = ast.get_docstring(node) or ""
            for block in re.split(r"\n\s*\n", docstring):
                paragraph = " ".join(block.split()).replace("``", "`")
                if is_prose(paragraph):
                    yield paragraph


def is_prose(paragraph: str) -> bool:
    """English sentences: long enough, mostly letters, from a capital to a full stop, no markup."""
    if not MIN_CHARACTERS <= len(paragraph) <= MAX_CHARACTERS or not paragraph.isascii():
        return False
    if NOT_PROSE.search(paragraph) or not SENTENCE.match(paragraph):
        return False
    return sum(c.isalpha() or c == " " for c in paragraph) > 0.85 * len(paragraph)
