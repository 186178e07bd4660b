"""What runs keep to be looked at."""

import json

import pytest

from mgs.costs import repeated_share
from mgs.data.completion import completions_from_lines
from mgs.metrics import texts
from mgs.training.outputs import output_lines, read_lines, repeated_places, repeated_tokens, write_json, write_lines
from mgs.types import Text


@pytest.mark.parametrize(
    ("tokens", "marked"),
    [
        ("abcd", "...."),
        ("abcdabcd", "....^^^^"),
        ("abcdxabcd", ".....^^^^"),
        ("aaaaaa", ".^^^^^"),
        ("abc", "..."),
        ("", ""),
    ],
)
def test_a_token_is_marked_if_a_4_gram_it_is_in_occurred_before(tokens, marked):
    assert repeated_tokens([ord(token) for token in tokens]) == [sign == "^" for sign in marked]


def test_something_is_marked_exactly_where_the_share_is_not_zero():
    for tokens in ([1, 2, 3, 4] * 2, [1] * 6, list(range(9)), [1, 2, 1, 2, 1, 2, 3]):
        assert any(repeated_tokens(tokens)) == (repeated_share(tokens) > 0)


@pytest.mark.parametrize("again", ["the old cat sat on", "naïve 🙂 señor, ça va"])
def test_places_in_the_string_are_those_of_the_tokens(tokenizer, again):
    ids = tokenizer(f" {again}. {again}!")["input_ids"]
    (text,) = texts(tokenizer, [ids])
    (place,) = repeated_places(tokenizer, text)
    assert again in text[place[0] : place[1]] or text[place[0] : place[1]] in again
    assert place[0] > len(again)
    assert repeated_places(tokenizer, Text("nothing", (5, 6, 7, 8, 9))) == []


def test_lines_say_what_was_given_wanted_and_made(tmp_path, tokenizer, sentences):
    data = completions_from_lines(sentences[:5], tokenizer, 3)
    made = texts(tokenizer, [[*example.target[:2]] for example in data])
    lines = output_lines(tokenizer, data, made, 7, 2)
    assert len(lines) == 2
    assert (lines[0]["prefix"] + lines[0]["target"]).strip() == sentences[0]
    assert lines[0]["output"] == str(made[0])
    assert (lines[0]["step"], lines[0]["ended"], lines[0]["length"], lines[0]["repetition"]) == (7, False, 2, None)
    assert lines[0]["target_length"] == len(data[0].target)
    write_lines(tmp_path / "outputs.jsonl", lines)
    with (tmp_path / "outputs.jsonl").open("a") as file:
        file.write('[1]\n{"cut')
    assert read_lines(tmp_path / "outputs.jsonl") == json.loads(json.dumps(lines))


def test_what_is_kept_is_on_the_disk_before_it_replaces_what_was_there(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr("mgs.training.checkpoints.sync", lambda file: synced.append(file.read_text()))
    write_lines(tmp_path / "new folder" / "outputs.jsonl", [{"é": 1}])
    write_json(tmp_path / "record.json", {"é": 1})
    assert [json.loads(text) for text in synced] == [{"é": 1}] * 2
    assert [path.name for path in sorted(tmp_path.rglob("*.json*"))] == ["outputs.jsonl", "record.json"]
