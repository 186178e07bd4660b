import json
import subprocess
import sys
from pathlib import Path
from string import ascii_letters

import pytest
import yaml
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from mgs.cli.train import METHODS


def weights(folder):
    return {name: tensor.tolist() for name, tensor in load_file(Path(folder) / "model.safetensors").items()}


def log(folder):
    return [json.loads(line) for line in (Path(folder) / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("method", METHODS)
def test_each_method_trains_from_the_command_line(call, here, small_run, model_folder, method):
    answer = call("train", method, *small_run, "--out", "run")
    assert answer.code == 0, answer.err
    assert "the final model" in answer.out
    assert answer.out.rstrip().endswith("model, tokenizer and logs: run")
    assert weights("run") != weights(model_folder)
    assert [entry["step"] for entry in log("run")] == [1, 2, 2]  # two updates and an evaluation


def test_a_run_in_a_process_of_its_own_leaves_a_model_that_the_library_loads(tmp_path, small_run):
    argv = [sys.executable, "-m", "mgs", "train", "mgs", *small_run, "--out", "run"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    out = tmp_path / "run"
    model, tokenizer = AutoModelForCausalLM.from_pretrained(out), AutoTokenizer.from_pretrained(out)
    assert model.generate(**tokenizer(" The cat", return_tensors="pt"), max_new_tokens=3).shape[0] == 1
    saved = yaml.safe_load((out / "mgs.yaml").read_text())
    assert saved["num_candidates"] == 4
    assert saved["max_steps"] == 2
    assert "resume" not in saved
    assert (out / "metrics.jsonl").exists()
    assert not list(out.rglob("pytorch_model*"))  # weights are safetensors only


def test_an_earlier_run_is_neither_lost_nor_mixed_up(call, refused, here, small_run):
    assert call("train", "mgs", *small_run, "--out", "run").code == 0
    first, lines = weights("run"), log("run")
    assert "run holds an earlier run: add --resume" in refused("train", "mgs", *small_run, "--out", "run")
    assert call("train", "mgs", *small_run, "--out", "run", "--resume", "--max_steps", "4").code == 0
    assert log("run")[: len(lines)] == lines
    assert [entry["step"] for entry in log("run")] == [1, 2, 2, 3, 4, 4]
    assert call("train", "mgs", *small_run, "--out", "run", "--overwrite").code == 0
    assert log("run") == lines
    assert weights("run") == first


def test_the_saved_configuration_gives_the_same_weights_again(call, here, small_run):
    options = ["--lengths", "0.1", "0.5", "--temperature", "auto", "--learning_rate", "1e-3", "--adam_beta1", "0.5"]
    assert call("train", "mgs", *small_run, *options, "--out", "first").code == 0
    assert call("train", "mgs", "--config", "first/mgs.yaml", "--out", "again").code == 0
    assert weights("first") == weights("again")
    assert call("train", "mgs", "--config", "first/mgs.yaml", "--out", "other", "--adam_beta1", "0.9").code == 0
    assert weights("first") != weights("other")


SMALL_RECIPE = ["--batch_tokens", "100", "--score_prefixes", "2", "--guide_prefixes", "3"]


def test_a_recipe_is_saved_with_what_it_came_to_and_its_run_goes_on(call, here, small_run):
    argv = ["train", "mgs", *small_run, "--recipe", "dependable", *SMALL_RECIPE]
    assert call(*argv, "--max_steps", "4", "--out", "whole").code == 0
    saved = yaml.safe_load(Path("whole/mgs.yaml").read_text())
    expected = {
        "recipe": "dependable",
        "num_candidates": 3,
        "noise": 0.0,
        "optim": "sgd",
        "lengths": [0.9],
    }
    assert {name: saved[name] for name in expected} == expected
    assert call(*argv, "--out", "run").code == 0
    assert call(*argv, "--out", "run", "--resume", "--max_steps", "4").code == 0
    assert weights("run") == weights("whole")
    assert call("train", "mgs", "--config", "whole/mgs.yaml", "--out", "again").code == 0
    assert weights("again") == weights("whole")


def test_a_new_model_starts_from_the_seed_with_a_tokenizer_of_its_own(call, here, small_run):
    for folder in ("one", "two"):
        assert call("train", "mle", *small_run, "--model", "new:tiny", "--loss_on_prefix", "--out", folder).code == 0
    assert weights("one") == weights("two")
    assert len(AutoTokenizer.from_pretrained("one")) <= 1024


def test_evaluation_data_of_their_own(call, here, small_run, text_file, sentences):
    Path("held_out.txt").write_text("\n".join(sentences[1:40:3]))
    flags = ["--eval_data", "held_out.txt", "--eval_examples", "0"]
    answer = call("train", "mle", *small_run, *flags, "--out", "run")
    assert "held_out.txt#13" in answer.out


# -- costs ----------------------------------------------------------------------------------------------------------

COSTS = """
import math

CONSTANT = 3

def short(hypotheses, references):
    return [float(len(h.token_ids)) for h in hypotheses]

def raises(hypotheses, references):
    return [1 / 0 for h in hypotheses]

def nan(hypotheses, references):
    return [math.nan for h in hypotheses]

def few(hypotheses, references):
    return [1.0]

def words(hypotheses, references):
    return "several"
"""


@pytest.fixture
def costs(here):
    Path("costs.py").write_text(COSTS)
    return "costs.py"


def test_the_users_cost_trains(call, costs, small_run):
    assert call("train", "mgs", *small_run, "--cost", f"{costs}:short", "--out", "run").code == 0
    assert all(1 <= cost <= 8 for cost in log("run")[0]["costs"])
    assert log("run")[-1]["eval_cost"] == pytest.approx(log("run")[-1]["eval_length"])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("raises", "the cost 'raises' raised ZeroDivisionError: division by zero (on "),
        ("nan", "the cost 'nan' returned nan for sequence 0: "),
        ("few", "the cost 'few' returned 1 values for "),
        ("words", "the cost 'words' returned str"),
    ],
)
def test_a_cost_that_cannot_be_used_stops_the_run_with_a_sentence(call, costs, small_run, name, message):
    answer = call("train", "mgs", *small_run, "--cost", f"{costs}:{name}", "--out", "run")
    assert answer.code == 2
    assert message in answer.err
    assert "Traceback" not in answer.err
    assert not list(Path("run").glob("*.safetensors"))


@pytest.mark.parametrize(
    ("cost", "message"),
    [
        ("edti", "unknown cost 'edti': did you mean 'edit'?"),
        ("costs.py:shrot", "unknown function in costs.py 'shrot': did you mean 'short'?"),
        ("costs.py:CONSTANT", "unknown function in costs.py 'CONSTANT'"),
        ("nowhere.py:short", "no such file for the cost 'nowhere.py:short'"),
        ("broken.py:short", "broken.py cannot be imported: SyntaxError"),
        ("missing.py:short", "missing.py cannot be imported: ModuleNotFoundError: No module named 'no_such_module'"),
        ("notes.txt:short", "'notes.txt' is not a Python file"),
    ],
)
def test_a_cost_that_does_not_exist_is_refused(refused, costs, small_run, cost, message):
    Path("broken.py").write_text("def short(:\n")
    Path("missing.py").write_text("import no_such_module\n")
    Path("notes.txt").write_text("short\n")
    sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
    try:
        assert message in refused("train", "mgs", *small_run, "--cost", cost, "--out", "run")
    finally:
        sys.dont_write_bytecode = before


# -- mistakes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--decoder", "gredy"], "did you mean 'greedy'?"),
        (["--decoder", "beam-x"], "beam-x"),
        (["--density", "unti"], "unknown density 'unti': did you mean 'unit'?"),
        (["--components", "zeor"], "unknown components 'zeor': did you mean 'zero'?"),
        (["--split", "odrer"], "unknown split 'odrer': did you mean 'order'?"),
        (["--temperature", "hot"], "temperature must be a number or 'auto'"),
        (["--max_steps", "abc"], "invalid int value: 'abc'"),
        (["--learning_rate", "fast"], "invalid float value: 'fast'"),
        (["--fp16"], "fp16 is not supported"),
        (["--num_candidtes", "3"], "did you mean 'num_candidates'?"),
        (["--lr_scheduler_type", "constnat"], "constnat"),
        (["--eval_strategy", "sometimes"], "sometimes"),
        (["--batch_tokens", "0"], "must be at least 1"),
        (["--num_candidates", "0"], "num_candidates must be at least 1"),
        (["--model", "./nowhere"], "no such model folder: './nowhere'"),
        (["--model", "new:tiyn"], "unknown preset 'tiyn': did you mean 'tiny'?"),
        (["--data", "nowhere.txt"], "no such data file: 'nowhere.txt'"),
        (["--data", "empty.txt"], "no sequences in 'empty.txt'"),
        (["--data", "short.txt"], "too short"),
        (["--data", "binary.txt"], "is not UTF-8 text"),
        (["--eval_data", "nowhere.txt"], "no such data file: 'nowhere.txt'"),
        (["--config", "wrong.yaml"], "unknown option 'learning_rat': did you mean 'learning_rate'?"),
        (["--config", "nowhere.yaml"], "cannot read the configuration 'nowhere.yaml'"),
    ],
)
def test_a_mistake_is_refused_before_anything_is_written(refused, here, small_run, argv, message):
    Path("empty.txt").write_text("\n")
    Path("short.txt").write_text("\n".join(f"{letter}{end}" for letter in ascii_letters for end in "?!."))
    Path("binary.txt").write_bytes(b"\x80\x81\x82")
    Path("wrong.yaml").write_text("learning_rat: 1e-3\n")
    assert message in refused("train", "mgs", *small_run, "--out", "run", *argv)
