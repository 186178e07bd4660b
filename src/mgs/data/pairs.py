"""Where sentence pairs come from: two aligned files, a tab-separated one, a folder, a `datasets` name, or CLDR.

    FILE.de,FILE.en     two files, the source first; line n of one is the translation of line n of the other
    FILE.tsv            one file, a pair a line with a tab between; the source is the first column unless told otherwise
    FOLDER              train.de, train.en, val.de.xz, ...: the split is how a name begins, the language how it ends
    OWNER/NAME:CONFIG   a dataset of the hub with a column `translation`, or a column for each language
    cldr                dates, amounts, names and the like as the package `babel` has them, de-en unless told otherwise

Files may be compressed (.xz, .gz). What has no splits of its own is split by a hash of the source sentence: adding
pairs moves none, and a sentence that has several translations is never both trained on and tested.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mgs.data.cldr import LANGUAGES, cldr_pairs
from mgs.data.sources import NO_SPLIT, OPENERS, SPLIT_WORDS, SPLITS, load_hub, read_text_lines, split_of
from mgs.errors import UserError, unknown

Pair = tuple[str, str]  # source, target
WHAT_TO_GIVE = "'FILE.de,FILE.en', a tab-separated file, or a folder with files such as train.de and train.en"


def read_pairs(name: str, split: str = "all", languages: str | None = None, source: int = 0) -> list[Pair]:
    """The sentence pairs of `name`, stripped, in the order of the files; a side that is blank is an empty string.

    `languages`, such as `de-en`, says what is translated into what; folders and datasets need it. `source` is the
    column of a tab-separated file to translate from, 0 or 1.
    """
    if split not in SPLITS:
        raise unknown("split", split, SPLITS)
    wanted = _languages(languages) if languages is not None else None
    path = Path(name)
    if name == "cldr":
        pairs = _hashed_split(list(cldr_pairs(wanted or LANGUAGES)), split)
    elif path.is_file():
        pairs = _hashed_split(_from_columns(path, source), split)
    elif "," in name:
        pairs = _hashed_split(_from_two_files(_two_files(name, wanted)), split)
    elif path.is_dir():
        pairs = _from_two_files(_files_for_split(path, split, _needed(wanted, name)))
    elif path.suffix or name.startswith((".", "/", "~")):
        raise UserError(f"no such data file: {name!r} (give {WHAT_TO_GIVE})")
    else:
        pairs = _from_hub(name, split, _needed(wanted, name))
    if not any(left and right for left, right in pairs):
        why = "no line has text on both sides" if split == "all" else NO_SPLIT
        raise UserError(f"no sentence pairs in {name!r} (split {split!r}): {why}")
    return pairs


def _languages(languages: str) -> Pair:
    source, dash, target = languages.partition("-")
    if not (source and dash and target) or "-" in target or source == target:
        raise UserError(f"languages {languages!r} are not a source and a target: give them as in 'de-en'")
    return source, target


def _needed(languages: Pair | None, name: str) -> Pair:
    if languages is None:
        raise UserError(f"{name!r} needs languages, such as 'de-en' to translate de into en: none were given")
    return languages


def _hashed_split(pairs: list[Pair], split: str) -> list[Pair]:
    return pairs if split == "all" else [pair for pair in pairs if split_of(pair[0]) == split]


def _lines(path: Path) -> list[str]:
    """Stripped lines, blank ones kept but for what follows the last line's end."""
    lines = [line.strip() for line in read_text_lines(path)]
    if not any(lines):
        raise UserError(f"{path} is empty: it needs one sentence a line")
    return lines if lines[-1] else lines[:-1]


def _from_two_files(files: tuple[Path, Path]) -> list[Pair]:
    sources, targets = map(_lines, files)
    if len(sources) != len(targets):
        raise UserError(
            f"{files[0]} has {len(sources)} lines and {files[1]} has {len(targets)}: each line of one must be the "
            "translation of the same line of the other"
        )
    return list(zip(sources, targets, strict=True))


def _two_files(name: str, languages: Pair | None) -> tuple[Path, Path]:
    files = [Path(part.strip()) for part in name.split(",")]
    missing = [str(file) for file in files if not file.is_file()]
    if missing:
        raise UserError(f"no such data file: {missing[0]!r} (give {WHAT_TO_GIVE})")
    if len(files) != 2 or files[0] == files[1]:
        raise UserError(f"{name!r} must name two different files, the source's and then the target's")
    found = (_language_of(files[0]), _language_of(files[1]))
    if languages and found == languages[::-1]:
        raise UserError(
            f"{name!r} has {found[0]} first, but languages say {'-'.join(languages)}: the first file is the source"
        )
    return files[0], files[1]


def _from_columns(path: Path, source: int) -> list[Pair]:
    if source not in (0, 1):
        raise UserError(f"the source is column 0 or 1 of a tab-separated file, got {source}")
    rows = [(number, line.split("\t")) for number, line in enumerate(read_text_lines(path), 1) if line.strip()]
    if not rows:
        raise UserError(f"{path} is empty: it needs a sentence, a tab and its translation on each line")
    width = len(rows[0][1])
    for number, columns in rows:
        if len(columns) < 2 or len(columns) != width:
            expected = "two columns, a sentence and its translation" if width < 2 else f"{width} columns as the first"
            raise UserError(
                f"line {number} of {path} has {len(columns)} column{'s' * (len(columns) > 1)} with tabs between, and "
                f"needs {expected} (for one language a file, name two: 'FILE.de,FILE.en')"
            )
    return [(columns[source].strip(), columns[1 - source].strip()) for _, columns in rows]


def _language_of(file: Path) -> str:
    """`train.de.xz` → `de`."""
    return (file.with_suffix("") if file.suffix in OPENERS else file).suffix.removeprefix(".")


def _stem_of(file: Path) -> str:
    """`train.de.xz` → `train`: what the files of two languages share."""
    return file.name.removesuffix(file.suffix if file.suffix in OPENERS else "").rpartition(".")[0]


def _files_for_split(folder: Path, split: str, languages: Pair) -> tuple[Path, Path]:
    if split == "all":
        raise UserError(f"{folder} is a folder: say which split to read (train, valid or test), or name two files")
    files = [file for file in sorted(folder.iterdir()) if file.is_file() and _stem_of(file)]
    found = [_files_of(files, language, folder) for language in languages]
    both = sorted(set(found[0]) & set(found[1]))
    stems = [stem for stem in both if stem.lower().startswith(SPLIT_WORDS[split])]
    if len(stems) != 1:
        problem = "no files" if not stems else f"{len(stems)} pairs of files"
        raise UserError(
            f"{problem} for split {split!r} in {folder}, which has {', '.join(stems or both) or 'nothing'} in both "
            f"{languages[0]} and {languages[1]}: name the two files themselves"
        )
    return found[0][stems[0]], found[1][stems[0]]


def _files_of(files: Sequence[Path], language: str, folder: Path) -> dict[str, Path]:
    found = {_stem_of(file): file for file in files if _language_of(file) == language}
    if not found:
        raise unknown(f"language in {folder}", language, sorted({_language_of(file) for file in files}) or ["none"])
    return found


def _from_hub(name: str, split: str, languages: Pair) -> list[Pair]:
    dataset = load_hub(name, split, ["FILE.de,FILE.en", "cldr"])
    columns: list[str] = list(dataset.column_names)
    if "translation" in columns and not set(languages) <= set(columns):
        rows = list(dataset["translation"])
        for language in languages:
            if rows and language not in rows[0]:
                raise unknown(f"language in dataset {name}", language, sorted(rows[0]))
        pairs = [(row[languages[0]], row[languages[1]]) for row in rows]
    elif set(languages) <= set(columns):
        pairs = list(zip(dataset[languages[0]], dataset[languages[1]], strict=True))
    else:
        raise UserError(
            f"dataset {name!r} has no column 'translation', nor columns '{languages[0]}' and '{languages[1]}' "
            f"(it has: {', '.join(columns)})"
        )
    return [(_text(left, name), _text(right, name)) for left, right in pairs]


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise UserError(f"a sentence of dataset {name!r} is not a string: {value!r}")
    return " ".join(value.split())  # a line break inside a sentence is a space
