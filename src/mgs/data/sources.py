"""Where sequences come from: the embedded corpus, text files, folders of them, or a `datasets` name.

A source is one string, so that a command line, a YAML file and Python name data alike. Each gives one sequence a
line, or, as JSON Lines and some datasets, rows of columns. Sources without splits of their own are split by a hash of
the line, or of a row's prompt: adding lines moves none, and no prompt is both trained on and tested.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import lzma
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from mgs.data.docstrings import docstring_paragraphs
from mgs.data.hub import work_offline_if_unreachable
from mgs.errors import UserError, first_line, unknown

SPLITS = ("train", "valid", "test", "all")
HELD_OUT_PERCENT = 5  # of the lines for `valid`, and as many for `test`
SPLIT_WORDS = {"train": ("train",), "valid": ("valid", "val", "dev"), "test": ("test",)}
HUB_SPLITS = {"train": "train", "valid": "validation", "test": "test"}
NO_SPLIT = f"{HELD_OUT_PERCENT}% of the lines each are for valid and test: give more lines, or files of their own"
ROWS = (".jsonl", ".ndjson")  # files of a JSON object a line, also compressed
COLUMNS = ({"prompt", "completion"}, {"messages"})  # that make a dataset without `text` one of rows
OPENERS: dict[str, Callable[..., IO[Any]]] = {".xz": lzma.open, ".gz": gzip.open}


def load_lines(source: str, split: str = "all", drop_headings: bool = False) -> list[str]:
    """The lines of `source`: stripped, blank ones dropped, ` = headings = ` kept unless told otherwise."""
    if split not in SPLITS:
        raise unknown("split", split, SPLITS)
    path = Path(source)
    if source == "docstrings":
        lines = _hashed_split(docstring_paragraphs(), split)
    elif path.is_file():
        lines = _hashed_split(read_text_lines(path), split, _asked if _holds_rows(path) else str)
    elif path.is_dir():
        lines = read_text_lines(_file_for_split(path, split))
    elif path.suffix or source.startswith((".", "/", "~")):
        raise UserError(
            f"no such data file: {source!r} (give a file of one sequence a line, a folder, or 'docstrings')"
        )
    else:
        lines = _hub_lines(source, split)
    lines = [line for line in (line.strip() for line in lines) if line]
    if drop_headings:
        lines = [line for line in lines if not (line.startswith("=") and line.endswith("="))]
    if not lines:
        why = "it holds no line that is not blank" if split == "all" else NO_SPLIT
        raise UserError(f"no sequences in {source!r} (split {split!r}): {why}")
    return lines


def load_rows(source: str, split: str = "all") -> list[dict[str, Any]] | None:
    """The rows of a source that has columns; None where it is one of lines."""
    path = Path(source)
    file = _file_for_split(path, split) if path.is_dir() else path
    if file.is_file():
        if not _holds_rows(file):
            return None
        return [_row(line, file) for line in load_lines(source, split)]
    if source == "docstrings" or path.suffix or source.startswith((".", "/", "~")):
        return None
    dataset = load_hub(source, split, ["docstrings"])
    return list(dataset) if any(columns <= {*dataset.column_names} for columns in COLUMNS) else None


def _holds_rows(file: Path) -> bool:
    return any(suffix in ROWS for suffix in file.suffixes[-2:])


def _asked(line: str) -> str:
    """What a row asks: its prompt, or all its messages but the last. The line itself if it asks nothing."""
    try:
        row = json.loads(line)
    except ValueError:  # said by whoever needs the row
        return line
    if not isinstance(row, dict) or "text" in row:
        return line
    messages = row.get("messages")
    asked = row.get("prompt", messages[:-1] if isinstance(messages, list) else None)
    return line if asked is None else json.dumps(asked, sort_keys=True)


def _row(line: str, file: Path) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise UserError(f"{file} is to hold a JSON object a line, but one line is {line[:80]!r}: {error}") from None
    if not isinstance(row, dict):
        raise UserError(f"{file} is to hold a JSON object a line, but one line is {line[:80]!r}")
    return row


def read_text_lines(path: Path) -> list[str]:
    """Lines of a UTF-8 file, plain or compressed."""
    try:
        with OPENERS.get(path.suffix, open)(path, "rb") as file:
            text = file.read().decode("utf-8-sig")  # with or without the mark that some editors put first
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 text (byte {error.start}): convert it, e.g. with iconv") from None
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        raise UserError(f"cannot read {path}: {error}") from None
    if "\0" in text:
        raise UserError(f"{path} holds NUL characters: it is not a text file of one sequence a line")
    return text.split("\n")  # not splitlines: a form feed or U+2028 inside a sequence does not end it


def _hashed_split(lines: list[str], split: str, what: Callable[[str], str] = str) -> list[str]:
    if split == "all":
        return lines
    return [line for line in lines if split_of(what(line)) == split]


def split_of(line: str) -> str:
    """The split a line belongs to, from its content alone."""
    bucket = int.from_bytes(hashlib.blake2b(line.strip().encode(), digest_size=8).digest(), "big") % 100
    if bucket < HELD_OUT_PERCENT:
        return "valid"
    return "test" if bucket < 2 * HELD_OUT_PERCENT else "train"


def _file_for_split(folder: Path, split: str) -> Path:
    if split == "all":
        raise UserError(f"{folder} is a folder: say which split to read (train, valid or test), or name one file")
    files = sorted(file for file in folder.iterdir() if file.is_file())
    found = [file for file in files if any(word in file.name.lower() for word in SPLIT_WORDS[split])]
    if len(found) != 1:
        names = ", ".join(file.name for file in (found or files)[:8]) or "nothing"
        problem = "no file" if not found else f"{len(found)} files"
        raise UserError(f"{problem} for split {split!r} in {folder} ({names}): name the file itself")
    return found[0]


def _hub_lines(name: str, split: str) -> list[str]:
    dataset = load_hub(name, split, ["docstrings"])
    if "text" not in dataset.column_names:
        wanted = "'text', nor 'prompt' and 'completion', nor 'messages'"
        raise UserError(f"dataset {name!r} has no column {wanted} (it has: {', '.join(dataset.column_names)})")
    return list(dataset["text"])


def load_hub(name: str, split: str, otherwise: list[str]) -> Any:
    """The rows of a `datasets` name, `OWNER/NAME` or `OWNER/NAME:CONFIGURATION`; `otherwise` is what else could have
    been meant."""
    try:
        import datasets
    except ImportError:
        raise UserError(
            f"unknown data {name!r}: no such file, and `datasets` is not installed to look it up on the hub "
            f"(allowed: {', '.join(otherwise)}, a file, a folder, or after `pip install datasets` a hub name)"
        ) from None
    work_offline_if_unreachable()
    owner_and_name, _, config = name.partition(":")
    hub_split = "+".join(HUB_SPLITS.values()) if split == "all" else HUB_SPLITS[split]
    try:
        return datasets.load_dataset(owner_and_name, config or None, split=hub_split)
    except Exception as error:  # the hub raises many kinds, all of them about the name given
        near = unknown("data", name, otherwise)
        raise UserError(f"{near}; as a file it does not exist, and the hub says: {first_line(error)}") from None
