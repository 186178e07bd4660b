"""Train, and look at it: what `mgs train` keeps is what `mgs report` shows."""

import json
from pathlib import Path

import pytest


def lines(file):
    return [json.loads(line) for line in Path(file).read_text().splitlines()]


@pytest.fixture
def trained(call, small_run):
    answer = call("train", "mgs", *small_run, "--out", "run")
    assert answer.code == 0, answer.err


def test_a_run_keeps_outputs_of_its_first_and_its_last_weights(trained):
    kept = lines("run/outputs.jsonl")
    assert [line["step"] for line in kept] == [0, 0, 0, 2, 2, 2]
    assert [line["prefix"] for line in kept[:3]] == [line["prefix"] for line in kept[3:]]
    record = json.loads(Path("run/record.json").read_text())
    assert record["settings"]["method"] == "mgs"
    assert record["signatures"] == record["start"]["signatures"]
    assert record["start"]["figures"]["valid"]["cost"] == record["start"]["figures"]["valid"]["lm"]
    assert record["human"]["valid"]["nontermination"] == 0
    mean = sum(line["length"] for line in kept[3:]) / 3
    assert record["figures"]["valid"]["length"] == pytest.approx(mean)
    assert "## Figures: valid" in Path("run/README.md").read_text()


def test_evaluating_the_start_does_not_change_what_follows(call, trained, small_run):
    assert call("train", "mgs", *small_run, "--outputs", "0", "--out", "plain").code == 0
    assert not Path("plain/outputs.jsonl").exists()
    assert "start" not in json.loads(Path("plain/record.json").read_text())
    assert lines("plain/metrics.jsonl") == lines("run/metrics.jsonl")


def test_a_run_that_goes_on_keeps_the_start_it_had(call, trained, small_run):
    before = lines("run/outputs.jsonl")
    start = json.loads(Path("run/record.json").read_text())["start"]
    assert (
        call("train", "mgs", *small_run, "--out", "run", "--resume", "--max_steps", "3", "--eval_steps", "1").code == 0
    )
    after = lines("run/outputs.jsonl")
    assert after[:3] == before[:3]
    assert len(after) == 6
    record = json.loads(Path("run/record.json").read_text())
    assert (record["start"], record["updates"]) == (start, 3)


def test_without_an_evaluation_there_is_a_card_and_a_page_all_the_same(call, small_run):
    assert call("train", "mle", *small_run, "--eval_strategy", "no", "--out", "run").code == 0
    assert "maximum likelihood" in Path("run/README.md").read_text()
    assert not Path("run/outputs.jsonl").exists()
    assert call("report", "run").code == 0


def test_the_page_goes_into_the_run_or_where_it_is_told(call, trained):
    assert call("report", "run").out == "1 run: run/report.html\n"
    answer = call("report", "run", "--out", "pages/one.html", "--title", "A <title>")
    assert answer.code == 0, answer.err
    assert "<h1>A &lt;title&gt;</h1>" in Path("pages/one.html").read_text()


def test_evaluate_writes_the_same_form(call, trained, text_file):
    flags = ["--data", text_file, "--context", "4", "--max_new_tokens", "10", "--examples", "5"]
    assert call("evaluate", "--model", "run", *flags, "--outputs", "made.jsonl").code == 0
    made = lines("made.jsonl")
    assert len(made) == 5
    assert made[0].keys() == lines("run/outputs.jsonl")[0].keys()
    assert {line["step"] for line in made} == {None}


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "needs the folder of a run"),
        (["nowhere"], "no run in 'nowhere'"),
        (["--titel", "x"], "did you mean 'title'?"),
    ],
)
def test_mistakes_get_a_sentence(refused, argv, message):
    assert message in refused("report", *argv)
