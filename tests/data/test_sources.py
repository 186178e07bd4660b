import gzip
import json
import lzma
import re
import sys
from types import SimpleNamespace

import pytest

from mgs.data import load_completions, sources
from mgs.data.sources import load_lines, load_rows, split_of
from mgs.errors import UserError

TEXT = "First line. \n\n = A heading = \n  \n\tSecond line, with a form feed\x0c inside.\nThird: ¿é?\n\n"
LINES = ["First line.", "= A heading =", "Second line, with a form feed\x0c inside.", "Third: ¿é?"]


def write(path, data):
    opener = {".gz": gzip.open, ".xz": lzma.open}.get(path.suffix, open)
    with opener(path, "wb") as file:
        file.write(data if isinstance(data, bytes) else data.encode())
    return str(path)


@pytest.mark.parametrize("name", ["lines.txt", "lines", "lines.txt.gz", "lines.txt.xz"])
def test_plain_and_compressed_files_give_the_same_stripped_lines(tmp_path, name):
    assert load_lines(write(tmp_path / name, TEXT)) == LINES


def test_headings_are_dropped_on_request(tmp_path):
    text = TEXT + "= not a heading\n == Deeper ==\n"
    kept = load_lines(write(tmp_path / "lines.txt", text), drop_headings=True)
    assert kept == [LINES[0], *LINES[2:], "= not a heading"]


def test_carriage_returns_and_a_byte_order_mark_are_not_part_of_a_line(tmp_path):
    assert load_lines(write(tmp_path / "windows.txt", b"\xef\xbb\xbfOne.\r\nTwo.\r\n")) == ["One.", "Two."]


def test_splits_of_one_file_are_a_partition(tmp_path):
    lines = [f"Line number {i}." for i in range(3000)]
    source = write(tmp_path / "lines.txt", "\n".join(lines))
    parts = {split: load_lines(source, split) for split in ("train", "valid", "test")}
    assert (
        sorted([*parts["train"], *parts["valid"], *parts["test"]]) == sorted(lines) == sorted(load_lines(source, "all"))
    )
    # 5% each: 150 lines, with a standard deviation of 12
    assert 100 < len(parts["valid"]) < 200
    assert 100 < len(parts["test"]) < 200


def test_adding_lines_moves_none_to_another_split(tmp_path):
    lines = [f"Line number {i}." for i in range(300)]
    before = load_lines(write(tmp_path / "a.txt", "\n".join(lines)), "train")
    after = load_lines(write(tmp_path / "b.txt", "\n".join(["A new one.", *lines[::-1], "Another."])), "train")
    assert set(before) == set(after) & set(lines)


@pytest.mark.parametrize(
    ("line", "split"),
    [("Line number 0.", "train"), ("Line number 14.", "valid"), ("Line number 6.", "test")],
)
def test_the_split_of_a_line_never_changes(line, split):
    assert split_of(line) == split
    assert split_of(f"  {line}\n") == split


def test_a_folder_gives_the_file_of_the_split(tmp_path):
    write(tmp_path / "wiki.train.txt", "To train on.")
    write(tmp_path / "wiki.valid.txt.gz", "To choose by.")
    write(tmp_path / "wiki.Test.txt.xz", "To report.")
    assert load_lines(str(tmp_path), "train") == ["To train on."]
    assert load_lines(str(tmp_path), "valid") == ["To choose by."]
    assert load_lines(str(tmp_path), "test") == ["To report."]


@pytest.mark.parametrize("name", ["dev.txt", "val.txt"])
def test_a_folder_may_call_its_valid_split_otherwise(tmp_path, name):
    write(tmp_path / name, "To choose by.")
    assert load_lines(str(tmp_path), "valid") == ["To choose by."]


def test_a_folder_without_the_split_or_with_two_is_an_error_that_lists_the_files(tmp_path):
    write(tmp_path / "a.train.txt", "x")
    write(tmp_path / "b.train.txt", "y")
    with pytest.raises(UserError, match=r"2 files for split 'train'.*a\.train\.txt, b\.train\.txt.*name the file"):
        load_lines(str(tmp_path), "train")
    with pytest.raises(UserError, match=r"no file for split 'test'.*a\.train\.txt, b\.train\.txt"):
        load_lines(str(tmp_path), "test")
    with pytest.raises(UserError, match=r"is a folder: say which split"):
        load_lines(str(tmp_path), "all")


def test_an_unknown_split_names_the_nearest(tmp_path):
    with pytest.raises(
        UserError, match=r"unknown split 'vaild': did you mean 'valid'\? \(allowed: train, valid, test, all\)"
    ):
        load_lines(write(tmp_path / "lines.txt", TEXT), "vaild")


@pytest.mark.parametrize("source", ["missing.txt", "./missing", "missing.txt.gz"])
def test_a_missing_file_is_an_error_that_says_what_to_give(tmp_path, monkeypatch, source):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"no such data file: '.*missing.*one sequence a line"):
        load_lines(source)


@pytest.mark.parametrize("text", ["", "\n  \n\t\n"])
def test_a_file_without_a_line_is_an_error(tmp_path, text):
    with pytest.raises(UserError, match=r"no sequences in .*empty\.txt"):
        load_lines(write(tmp_path / "empty.txt", text))


def truncated(data):
    return gzip.compress(data * 100)[:-12]


def corrupt(data):
    whole = bytearray(gzip.compress(bytes(range(256)) * 20))
    whole[20:40] = b"\xff" * 20
    return bytes(whole)


BROKEN = {
    "not UTF-8": ("a.txt", "Café\n".encode("latin-1"), r"a\.txt is not UTF-8 text \(byte 3\).*iconv"),
    "NUL characters": ("a.txt", b"One.\0\nTwo.", r"a\.txt holds NUL characters: it is not a text file"),
    "truncated gzip": ("a.gz", truncated(TEXT.encode()), r"cannot read .*a\.gz: .*ended before"),
    "corrupt gzip": ("a.gz", corrupt(TEXT.encode()), r"cannot read .*a\.gz: "),
    "not gzip": ("a.gz", b"plain text", r"cannot read .*a\.gz: .*gzip"),
    "truncated xz": ("a.xz", lzma.compress(TEXT.encode())[:-12], r"cannot read .*a\.xz: .*ended before"),
    "not xz": ("a.xz", b"plain text", r"cannot read .*a\.xz: "),
}


@pytest.mark.parametrize(("name", "data", "message"), BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_file_is_an_error_that_names_the_file_and_the_reason(tmp_path, name, data, message):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(UserError, match=message):
        load_lines(str(tmp_path / name))


def test_the_embedded_corpus_is_split_like_a_file(monkeypatch):
    lines = [f"Line number {i}." for i in range(300)]
    monkeypatch.setattr(sources, "docstring_paragraphs", lambda: lines)
    assert load_lines("docstrings") == lines
    assert load_lines("docstrings", "test") == [line for line in lines if split_of(line) == "test"]


@pytest.fixture
def hub(monkeypatch):
    """A stand-in for the `datasets` library that remembers how it was called."""

    class Dataset(dict):
        column_names = property(list)

    def load_dataset(name, config, split):
        calls.append((name, config, split))
        if name == "nobody/nothing":
            raise FileNotFoundError("Dataset 'nobody/nothing' doesn't exist on the Hub\nmore lines")
        return Dataset({"sentence": ["x"]}) if name == "other/columns" else Dataset({"text": [" One. ", "", "Two."]})

    calls = []
    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    return calls


def test_a_hub_name_is_looked_up_with_its_configuration_and_split(hub):
    assert load_lines("some/corpus:raw", "valid") == ["One.", "Two."]
    assert load_lines("some/corpus") == ["One.", "Two."]
    assert hub == [("some/corpus", "raw", "validation"), ("some/corpus", None, "train+validation+test")]


def test_what_the_hub_does_not_have_is_an_error_with_the_hubs_reason(hub):
    with pytest.raises(
        UserError, match=r"unknown data 'nobody/nothing'.*hub says: Dataset .* doesn't exist on the Hub$"
    ):
        load_lines("nobody/nothing", "train")
    with pytest.raises(UserError, match=r"no column 'text', nor .* \(it has: sentence\)"):
        load_lines("other/columns", "train")


def test_without_the_datasets_library_an_unknown_name_is_explained(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UserError, match=r"unknown data 'docstring'.*pip install datasets"):
        load_lines("docstring")


# -- rows -----------------------------------------------------------------------------------------------------------

ROWS = [{"prompt": f"a b {'c ' * i}".strip(), "completion": "d e", "number": i} for i in range(200)]


@pytest.fixture
def write_rows(tmp_path):
    return lambda name, rows=ROWS: write(tmp_path / name, "\n".join(map(json.dumps, rows)))


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.ndjson", "rows.jsonl.gz", "rows.jsonl.xz"])
def test_files_of_json_give_rows_split_like_lines(name, write_rows):
    file = write_rows(name)
    assert load_rows(file) == ROWS
    parts = [load_rows(file, split) for split in ("train", "valid", "test")]
    assert sorted(row["number"] for part in parts for row in part) == list(range(200))


def chat(*contents):
    return [{"role": "user", "content": content} for content in contents]


@pytest.mark.parametrize(
    ("ask", "answer"),
    [
        (lambda i: {"prompt": f"question {i}"}, lambda n: {"completion": f"answer {n}"}),
        (lambda i: {"prompt": chat(f"question {i}")}, lambda n: {"completion": chat(f"answer {n}")}),
        (lambda i: {"question": i}, lambda n: {"messages": chat("a question", f"{n % 60}", f"answer {n}")}),
    ],
)
def test_no_prompt_is_both_trained_on_and_tested(ask, answer, write_rows):
    file = write_rows("rows.jsonl", [ask(n % 60) | answer(n) for n in range(300)])
    parts = [load_rows(file, split) for split in ("train", "valid", "test")]
    assert sum(map(len, parts)) == 300
    asked = [{json.dumps(row.get("prompt", row.get("messages", [])[:-1])) for row in part} for part in parts]
    assert [len(one) for one in asked] == [len(part) / 5 for part in parts]
    assert sum(map(len, asked)) == len(set.union(*asked)) == 60


def test_so_do_folders_of_them(write_rows, tmp_path):
    write_rows("train.jsonl")
    write_rows("valid.jsonl", ROWS[:3])
    write(tmp_path / "test.txt", TEXT)
    assert (load_rows(str(tmp_path), "train"), load_rows(str(tmp_path), "valid")) == (ROWS, ROWS[:3])
    assert load_rows(str(tmp_path), "test") is None


def test_lines_are_no_rows(tmp_path, hub):
    assert load_rows("docstrings") is None
    assert load_rows(write(tmp_path / "lines.txt", TEXT)) is None
    assert load_rows("some/corpus", "train") is None


@pytest.mark.parametrize("line", ["{broken", "[1, 2]", '"text"'])
def test_a_line_that_is_no_object_is_shown(line, tmp_path):
    with pytest.raises(UserError, match=re.escape(f"a JSON object a line, but one line is {line!r}")):
        load_rows(write(tmp_path / "rows.jsonl", line))


def test_rows_become_examples_with_their_columns(write_rows, word_tokenizer):
    file = write_rows("rows.jsonl", ROWS[:9])
    found = load_completions(file, word_tokenizer, max_length=9, min_length=6)
    assert [(e.prefix, e.target, e.columns) for e in found] == [
        ((1, 2, *[3] * i), (4, 5, 0), {"number": i}) for i in range(1, 5)
    ]
    assert (found.num_discarded, found.name) == (5, "rows.jsonl≥6")
    with pytest.raises(UserError, match=r"none of the 9 rows of 'rows.jsonl' has 0 to 4 tokens"):
        load_completions(file, word_tokenizer, max_length=4)
