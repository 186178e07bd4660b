"""What becomes of an earlier run in the folder of a new one."""

import json
from pathlib import Path

import pytest
import yaml

from mgs.cli.train import RunRecord
from mgs.training.checkpoints import checkpoints


def steps(folder):
    return [json.loads(line)["step"] for line in Path(folder, "metrics.jsonl").read_text().splitlines()]


@pytest.fixture
def earlier(call, small_run):
    """A run in `run`, and the command that made it."""
    command = ("train", "mgs", *small_run, "--seed", "1", "--out", "run")
    assert call(*command).code == 0
    return command


def test_overwritten_and_stopped_before_an_update_a_run_does_not_go_on_from_the_earlier_one(
    call, earlier, small_run, monkeypatch
):
    other = ("train", "mgs", *small_run, "--seed", "2", "--cost", "edit")
    assert call(*other, "--out", "straight").code == 0
    with monkeypatch.context() as patched:

        def stopped(*given):
            raise KeyboardInterrupt

        patched.setattr(RunRecord, "start", stopped)
        assert call(*other, "--out", "run", "--overwrite").code == 130
    assert checkpoints("run") == []
    assert not [name for name in ("metrics.jsonl", "record.json", "outputs.jsonl") if Path("run", name).exists()]
    assert call(*other, "--out", "run", "--overwrite", "--resume").code == 0  # which is to go on
    for name in ("metrics.jsonl", "model.safetensors", "outputs.jsonl"):
        assert Path("run", name).read_bytes() == Path("straight", name).read_bytes()


def test_a_mistake_costs_no_earlier_run(earlier, refused):
    assert "no such data file" in refused(*earlier, "--data", "nowhere.txt", "--overwrite")
    assert checkpoints("run")


def test_without_outputs_an_overwritten_run_has_no_figures_of_the_earlier_start(call, earlier):
    assert "| start |" in Path("run/README.md").read_text()
    assert call(*earlier, "--overwrite", "--outputs", "0").code == 0
    assert "| start |" not in Path("run/README.md").read_text()
    assert not Path("run/outputs.jsonl").exists()


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--seed", "2"], "(seed was 1 and is 2)"),
        (["--cost", "edit", "--noise", "0.5"], "(cost was 'lm' and is 'edit', noise was 1.0 and is 0.5)"),
        (["--eval_data", "held.txt"], "(eval_data was None and is 'held.txt')"),
        (["--adam_beta1", "0.5"], "(adam_beta1 was None and is 0.5)"),
    ],
)
def test_a_run_does_not_go_on_with_other_settings(earlier, refused, text_file, flags, told):
    Path("held.txt").write_text(Path(text_file).read_text())
    before = Path("run/mgs.yaml").read_text()
    answer = refused(*earlier, "--resume", *flags)
    assert f"run holds a run of other settings {told}: give those to go on with it, --overwrite without" in answer
    assert Path("run/mgs.yaml").read_text() == before


def test_nor_by_another_method(call, earlier, refused):
    command, _, *rest = earlier
    assert "(the method was mgs and is pg)" in refused(command, "pg", *rest, "--resume")


def test_how_long_it_lasts_and_what_is_watched_may_change(call, earlier):
    flags = ("--max_steps", "3", "--eval_steps", "1", "--eval_examples", "2", "--logging_steps", "3", "--outputs", "1")
    assert call(*earlier, "--resume", *flags, "--save_steps", "3", "--nonfinite", "skip", "--patience", "3").code == 0
    assert steps("run") == [1, 2, 2, 3, 3]
    assert yaml.safe_load(Path("run/mgs.yaml").read_text())["max_steps"] == 3


def test_options_that_the_earlier_version_did_not_have_do_not_count(call, earlier):
    file = Path("run/mgs.yaml")
    file.write_text("".join(line for line in file.open() if not line.startswith("halvings")))
    assert call(*earlier, "--resume", "--max_steps", "3").code == 0
