import json
import subprocess
import sys
from pathlib import Path

import pytest

from mgs.cli.evaluate import last_parts
from mgs.metrics import COLUMNS


@pytest.fixture
def flags(model_folder, text_file):
    return ["--model", model_folder, "--data", text_file, "--context", "4", "--max_new_tokens", "10", "--examples", "6"]


def test_figures_and_signature_go_to_the_table_and_to_the_file(here, flags, model_folder):
    argv = [sys.executable, "-m", "mgs", "evaluate", *flags, "--scorer", model_folder, "--json", "figures.json"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    written = json.loads(Path("figures.json").read_text())
    assert written["signature"].startswith("data:sentences.txt#6|context:4|decoder:greedy|cap:10|scorer:tiny|mgs:")
    assert written["signature"] in done.stdout
    (name, human) = written["rows"]
    assert human == "human"
    assert list(written["rows"][name]) == list(COLUMNS)
    assert written["rows"]["human"]["nontermination"] == 0
    assert f"{written['rows'][name]['perplexity']:.1f}" in done.stdout


def test_the_same_figures_from_the_same_command_and_others_from_another_decoder(call, flags):
    for file, decoder in (("a.json", "greedy"), ("b.json", "greedy"), ("c.json", "sample,top_k=5")):
        assert call("evaluate", *flags, "--decoder", decoder, "--json", file).code == 0
    first, again, sampled = (json.loads(Path(f"{name}.json").read_text()) for name in "abc")
    assert first == again
    assert first["signature"] != sampled["signature"]
    assert "seed:0" in sampled["signature"]


def test_of_a_long_path_the_table_shows_the_end():
    assert last_parts("/somewhere/far/down/many/folders/runs/edit/") == "…/runs/edit"
    assert [last_parts(name) for name in ("runs/edit", "human", "x" * 40)] == ["runs/edit", "human", "x" * 40]


def test_a_model_of_another_vocabulary_has_no_lm_columns_by_default(call, flags):
    assert call("evaluate", *flags, "--json", "figures.json").code == 0
    rows = json.loads(Path("figures.json").read_text())["rows"]
    assert all("lm" not in figures for figures in rows.values())


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--decoder", "beem-4"], "beem-4"),
        (["--split", "vaild"], "unknown split 'vaild': did you mean 'valid'?"),
        (["--model", "./nowhere"], "no such model folder"),
        (["--scorer", "./nowhere"], "no such model folder"),
        (["--data", "nowhere.txt"], "no such data file"),
        (["--exmaples", "3"], "unknown option 'exmaples': did you mean 'examples'?"),
        (["--json", "nowhere/figures.json"], "cannot write to 'nowhere/figures.json'"),
        (["--outputs", "nowhere/outputs.jsonl"], "cannot write to 'nowhere/outputs.jsonl'"),
        (["--max_new_tokens", "many"], "invalid int value: 'many'"),
    ],
)
def test_a_mistake_is_refused(refused, flags, argv, message):
    assert message in refused("evaluate", *flags, *argv)


def test_a_run_is_asked_about_what_it_was_trained_on(call, small_run, here):
    assert call("train", "mle", *small_run, "--decoder", "beam-2", "--out", "run").code == 0
    small = ("--examples", 3, "--max_new_tokens", 10)
    own = call("evaluate", "--model", "run", *small).out
    assert "sentences.txt@valid#3|context:4|decoder:beam-2|cap:10" in own
    assert "sentences.txt@valid#3|context:4" in call("evaluate", "--model", "run/checkpoint-2", *small).out
    assert (
        "@test#3|context:4|decoder:greedy"
        in call("evaluate", "--model", "run", "--split", "test", "--decoder", "greedy", *small).out
    )
    data = small_run[small_run.index("--data") + 1]
    assert "sentences.txt#3|context:10|decoder:greedy" in call("evaluate", "--model", "run", "--data", data, *small).out


def test_where_all_of_its_data_was_trained_on_a_run_is_asked_about_what_it_was_evaluated_on(
    call, small_run, here, sentences
):
    Path("held.txt").write_text("\n".join(sentences[1:40:3]))
    assert call("train", "mle", *small_run, "--eval_data", "held.txt", "--out", "run").code == 0
    asked = ("evaluate", "--model", "run", "--max_new_tokens", 10)
    assert "held.txt#13|context:4" in call(*asked).out
    assert "sentences.txt#3" in call(*asked, "--data", small_run[3], "--examples", 3).out
