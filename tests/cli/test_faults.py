"""Folders and checkpoints that cannot be used: one sentence, exit code 2, and nothing that was good is lost."""

import os
from pathlib import Path

import pytest

RUN = ["--save_steps", "1", "--out", "run"]


def test_a_truncated_checkpoint_is_passed_over_with_a_sentence(call, here, small_run):
    assert call("train", "mgs", *small_run, "--out", "straight").code == 0
    assert call("train", "mgs", *small_run, *RUN).code == 0
    os.truncate("run/checkpoint-2/model.safetensors", 1000)
    with pytest.warns(
        UserWarning, match="checkpoint-2 is passed over for checkpoint-1: model.safetensors has 1000 bytes"
    ):
        assert call("train", "mgs", *small_run, *RUN, "--resume").code == 0
    for name in ("model.safetensors", "metrics.jsonl"):
        assert Path("run", name).read_bytes() == Path("straight", name).read_bytes()


def test_where_no_checkpoint_is_whole_the_user_decides(call, here, small_run):
    assert call("train", "mgs", *small_run, *RUN).code == 0
    for folder in Path("run").glob("checkpoint-*"):
        os.truncate(folder / "optimizer.pt", 1)
    answer = call("train", "mgs", *small_run, *RUN, "--resume")
    assert answer.code == 2
    assert answer.err.startswith("mgs: no checkpoint in run is whole (optimizer.pt has 1 bytes instead of")
    assert answer.err.count("\n") == 1
    assert len(list(Path("run").glob("checkpoint-*"))) == 2
    assert call("train", "mgs", *small_run, *RUN, "--overwrite").code == 0


def test_a_folder_that_cannot_be_written_to(call, here, small_run):
    Path("file").write_text("in the way")
    answer = call("train", "mgs", *small_run, "--out", "file/run")
    assert answer.code == 2
    assert answer.err.startswith("mgs: Not a directory: file")
    assert answer.err.count("\n") == 1


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--nonfinite", "skp"], "unknown nonfinite 'skp': did you mean 'skip'?"),
        (["--cost_timeout", "0"], "cost_timeout must be a time in seconds"),
        (["--cost_timeout", "nan"], "cost_timeout must be a time in seconds"),
    ],
)
def test_options_that_cannot_be(refused, small_run, flags, sentence):
    assert sentence in refused("train", "mgs", *small_run, *flags)
