import json
from pathlib import Path

import pytest

SHARED = Path(__file__).parents[3] / "shared" / "data"


def test_json_says_what_a_file_becomes(call, model_folder, text_file, sentences, tokenizer):
    answer = call("data", "--data", text_file, "--tokenizer", model_folder, "--context", "4", "--json")
    summary = json.loads(answer.out)
    lengths = [len(tokenizer(" " + line)["input_ids"]) + 1 - 4 for line in sentences[::3]]
    assert summary["pairs"] == len(lengths) == 180
    assert summary["discarded"] == 0
    assert summary["context"] == 4
    assert summary["target_length"]["mean"] == pytest.approx(sum(lengths) / len(lengths))
    assert (summary["target_length"]["min"], summary["target_length"]["max"]) == (min(lengths), max(lengths))
    assert summary["human"]["nontermination"] == 0
    assert summary["human"]["length"] == summary["target_length"]["mean"]


def test_the_table_shows_the_first_pair_with_escapes_written_out(call, model_folder, here, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    Path("odd.txt").write_text("Red \x1b[31m and [/bold] text :smile: that goes on for more than a few tokens\n")
    answer = call("data", "--data", "odd.txt", "--tokenizer", model_folder, "--context", "4")
    assert answer.code == 0
    assert "\x1b" not in answer.out
    assert "[/bold]" in answer.out
    assert ":smile:" in answer.out


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no sequences in"),
        (b"\n  \n\n", "no sequences in"),
        (b"A cat.\nA dog.\n", "all 2 sequences of 'file.txt' are too short"),
        (b"\x89PNG\r\n\x1a\n\xff\xfe", "is not UTF-8 text"),
        (b"text\x00\x00more", "NUL characters"),
    ],
)
def test_a_file_without_sequences_is_refused(refused, model_folder, here, content, message):
    Path("file.txt").write_bytes(content)
    assert message in refused("data", "--data", "file.txt", "--tokenizer", model_folder)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--data", "nowhere.txt"], "no such data file: 'nowhere.txt'"),
        (["--data", "./nowhere"], "no such data file"),
        (["--data", "doctrings"], "unknown data 'doctrings': did you mean 'docstrings'?"),
        (["--split", "vaild"], "unknown split 'vaild': did you mean 'valid'?"),
        (["--context", "0"], "context must be at least 1"),
        (["--tokenizer", "./nowhere"], "no such model folder: './nowhere'"),
        (["--dta", "x"], "unknown option 'dta': did you mean 'data'?"),
    ],
)
def test_a_wrong_option_is_refused(refused, model_folder, text_file, argv, message):
    assert message in refused("data", "--tokenizer", model_folder, "--data", text_file, *argv)


@pytest.mark.skipif(not (SHARED / "wikitext").is_dir(), reason="the WikiText files are not part of the repository")
@pytest.mark.parametrize(("split", "pairs", "repetition"), [("valid", 1896, 0.0089), ("test", 2162, 0.0114)])
def test_wikitext_becomes_the_papers_pairs(call, split, pairs, repetition):
    file = SHARED / "wikitext" / f"wiki.{split}.raw.xz"
    answer = call("data", "--data", file, "--tokenizer", SHARED / "gpt2-bpe", "--json")
    summary = json.loads(answer.out)
    assert summary["pairs"] == pairs
    assert summary["human"]["repetition"] == pytest.approx(repetition, abs=5e-5)
