import gzip
import lzma

import pytest

from mgs.data.pairs import read_pairs
from mgs.data.sources import split_of
from mgs.errors import UserError

GERMAN, ENGLISH = "Ein Hund.\n Zwei Katzen \n", "A dog.\nTwo cats"
PAIRS = [("Ein Hund.", "A dog."), ("Zwei Katzen", "Two cats")]
TURNED = [pair[::-1] for pair in PAIRS]


def write(path, text):
    opener = {".gz": gzip.open, ".xz": lzma.open}.get(path.suffix, open)
    with opener(path, "wb") as file:
        file.write(text if isinstance(text, bytes) else text.encode())
    return str(path)


@pytest.fixture
def folder(tmp_path):
    for stem, line in (("train", "lernen"), ("val", "wählen"), ("test_2016_flickr", "prüfen")):
        write(tmp_path / f"{stem}.de.xz", f"{line}\n")
        write(tmp_path / f"{stem}.en", f"{line} in English\n")
        write(tmp_path / f"{stem}.fr.gz", f"{line} en français\n")
        write(tmp_path / f"con{stem}.de", "not a split, though its name has one inside\n")
        write(tmp_path / f"con{stem}.en", "not a split, though its name has one inside\n")
    write(tmp_path / "README", "about")
    return tmp_path


@pytest.mark.parametrize("suffix", ["", ".xz", ".gz"])
def test_two_files_are_paired_line_by_line(tmp_path, suffix):
    german, english = write(tmp_path / f"a.de{suffix}", GERMAN), write(tmp_path / "a.en", ENGLISH)
    assert read_pairs(f"{german},{english}") == PAIRS
    assert read_pairs(f"{english}, {german}") == TURNED
    assert read_pairs(f"{german},{english}", languages="de-en") == PAIRS


def test_blank_lines_keep_their_place(tmp_path):
    german = write(tmp_path / "a.de", "eins\n\ndrei\n\n")
    english = write(tmp_path / "a.en", "one\ntwo\n\nfour\n")
    assert read_pairs(f"{german},{english}") == [("eins", "one"), ("", "two"), ("drei", ""), ("", "four")]


def test_languages_that_contradict_the_order_of_the_files_are_an_error(tmp_path):
    german, english = write(tmp_path / "a.de.gz", GERMAN), write(tmp_path / "a.en", ENGLISH)
    with pytest.raises(UserError, match=r"has de first, but languages say en-de: the first file is the source"):
        read_pairs(f"{german},{english}", languages="en-de")


def test_files_of_different_lengths_are_an_error_with_both_counts(tmp_path):
    german, english = write(tmp_path / "a.de", "eins\nzwei\ndrei\n"), write(tmp_path / "a.en", "one\ntwo\n")
    with pytest.raises(UserError, match=r"a\.de has 3 lines and .*a\.en has 2: each line"):
        read_pairs(f"{german},{english}")


@pytest.mark.parametrize(("source", "pairs"), [(0, PAIRS), (1, TURNED)])
def test_a_tab_separated_file_says_which_column_is_the_source(tmp_path, source, pairs):
    name = write(tmp_path / "pairs.txt.xz", "Ein Hund.\tA dog.\r\n\n Zwei Katzen \t Two cats\n")
    assert read_pairs(name, source=source) == pairs


def test_further_columns_are_left_alone(tmp_path):
    name = write(tmp_path / "deu.txt", "Ein Hund.\tA dog.\tCC-BY\nZwei Katzen\tTwo cats\tCC-BY\n")
    assert read_pairs(name) == PAIRS


COLUMNS = {
    "one column": ("a\tb\nno tab\n", r"line 2 of .*a\.tsv has 1 column with tabs between, and needs 2 columns as the"),
    "one column at first": ("\nno tab\n", r"line 2 of .* has 1 column .* needs two columns.*'FILE\.de,FILE\.en'"),
    "a stray tab": ("a\tb\na\tb\nx\ty\tz\n", r"line 3 of .* has 3 columns .* needs 2 columns as the first"),
}


@pytest.mark.parametrize(("text", "message"), COLUMNS.values(), ids=COLUMNS.keys())
def test_a_line_without_its_columns_is_an_error_with_its_number(tmp_path, text, message):
    with pytest.raises(UserError, match=message):
        read_pairs(write(tmp_path / "a.tsv", text))


def test_a_third_source_column_is_an_error(tmp_path):
    with pytest.raises(UserError, match="column 0 or 1 of a tab-separated file, got 2"):
        read_pairs(write(tmp_path / "a.tsv", "a\tb\tc\n"), source=2)


@pytest.mark.parametrize(("split", "word"), [("train", "lernen"), ("valid", "wählen"), ("test", "prüfen")])
def test_a_folder_gives_the_files_of_the_split_and_the_languages(folder, split, word):
    assert read_pairs(str(folder), split, "de-en") == [(word, f"{word} in English")]
    assert read_pairs(f"{folder}/", split, "fr-de") == [(f"{word} en français", word)]


FOLDERS = {
    "all": ("all", "de-en", r"is a folder: say which split to read \(train, valid or test\), or name two files"),
    "unknown split": ("dev", "de-en", r"unknown split 'dev'.*allowed: train, valid, test, all"),
    "no languages": ("train", None, r"needs languages, such as 'de-en'"),
    "missing language": ("train", "de-it", r"unknown language in .* 'it' \(allowed: de, en, fr\)"),
    "not two": ("train", "de", r"languages 'de' are not a source and a target: give them as in 'de-en'"),
    "three": ("train", "de-en-fr", r"languages 'de-en-fr' are not"),
    "twice the same": ("train", "de-de", r"languages 'de-de' are not"),
}


@pytest.mark.parametrize(("split", "languages", "message"), FOLDERS.values(), ids=FOLDERS.keys())
def test_a_folder_that_has_not_what_was_asked_for_is_an_error_with_the_choices(folder, split, languages, message):
    with pytest.raises(UserError, match=message):
        read_pairs(str(folder), split, languages)


def test_a_split_that_is_missing_or_there_twice_is_an_error_with_what_there_is(folder):
    (folder / "val.en").unlink()
    stems = "contest_2016_flickr, contrain, conval, test_2016_flickr, train"
    with pytest.raises(UserError, match=rf"no files for split 'valid' in .* has {stems} in both de and en"):
        read_pairs(str(folder), "valid", "de-en")
    for language in ("de", "en"):
        write(folder / f"test_2017.{language}", "x\n")
    with pytest.raises(
        UserError, match=r"2 pairs of files for split 'test' .* has test_2016_flickr, test_2017 in both"
    ):
        read_pairs(str(folder), "test", "de-en")


def test_one_file_is_split_by_its_source_sentences(tmp_path):
    rows = [(f"Satz {i // 2}.", f"Sentence {i}.") for i in range(2000)]  # each source has two translations
    name = write(tmp_path / "a.tsv", "\n".join(map("\t".join, rows)))
    parts = {split: read_pairs(name, split) for split in ("train", "valid", "test")}
    assert sorted([*parts["train"], *parts["valid"], *parts["test"]]) == sorted(rows)
    assert all(split_of(source) == split for split, part in parts.items() for source, _ in part)
    assert 50 < len(parts["test"]) < 160  # 5%: 50 sources of two, with a standard deviation of 7 sources
    german, english = (write(tmp_path / f"a.{i}", "\n".join(row[i] for row in rows)) for i in (0, 1))
    assert read_pairs(f"{german},{english}", "test") == parts["test"]


@pytest.mark.parametrize("name", ["missing.tsv", "./missing", "here.de,missing.en", "missing.de,here.de"])
def test_a_missing_file_is_an_error_that_says_what_to_give(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "here.de", GERMAN)
    with pytest.raises(UserError, match=r"no such data file: '[./]*missing[.a-z]*' \(give 'FILE\.de,FILE\.en', a tab"):
        read_pairs(name)


@pytest.mark.parametrize("count", [2, 3])
def test_two_files_are_two(tmp_path, count):
    name = write(tmp_path / "a.de", GERMAN)
    with pytest.raises(UserError, match="must name two different files"):
        read_pairs(",".join([name] * count))


@pytest.mark.parametrize("text", ["", "\n  \n"])
def test_an_empty_file_is_an_error(tmp_path, text):
    empty, english = write(tmp_path / "a.de", text), write(tmp_path / "a.en", ENGLISH)
    for name in (empty, f"{empty},{english}", f"{english},{empty}"):
        with pytest.raises(UserError, match=r"a\.de is empty"):
            read_pairs(name)


def test_files_that_never_have_both_sides_hold_no_pairs(tmp_path):
    german, english = write(tmp_path / "a.de", "eins\n\n"), write(tmp_path / "a.en", "\ntwo\n")
    with pytest.raises(UserError, match=r"no sentence pairs in .*no line has text on both sides"):
        read_pairs(f"{german},{english}")


def test_what_is_not_utf8_is_an_error_that_names_the_file(tmp_path):
    german, english = write(tmp_path / "a.de", "Käse\n".encode("latin-1")), write(tmp_path / "a.en", "cheese\n")
    with pytest.raises(UserError, match=r"a\.de is not UTF-8 text \(byte 1\)"):
        read_pairs(f"{german},{english}")
