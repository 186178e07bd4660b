import json
import os

import pytest

from mgs.errors import UserError
from mgs.training import newest_checkpoint
from mgs.training.checkpoints import (
    checkpoint_to_resume,
    checkpoints,
    damage,
    replace_text,
    rotate,
    tidy,
    written_aside,
)

PARTS = ("model.safetensors", "optimizer.pt", "scheduler.pt", "method.json", "trainer_state.json")


@pytest.fixture
def checkpoint(tmp_path):
    """Write what a whole checkpoint holds."""

    def write(step, content="{}", parts=PARTS):
        with written_aside(tmp_path / f"checkpoint-{step}") as folder:
            for name in parts:
                (folder / name).write_text(content)
        return tmp_path / f"checkpoint-{step}"

    return write


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_the_newest_is_the_highest_number_not_the_last_name(checkpoint, tmp_path):
    for step in (900, 1000, 90):
        checkpoint(step)
    assert newest_checkpoint(tmp_path) == tmp_path / "checkpoint-1000"
    assert newest_checkpoint(str(tmp_path)) == tmp_path / "checkpoint-1000"


def test_a_folder_without_checkpoints_or_no_folder_has_none(tmp_path):
    assert newest_checkpoint(tmp_path) is None
    assert newest_checkpoint(tmp_path / "nowhere") is None
    assert checkpoint_to_resume(tmp_path) is None


@pytest.mark.parametrize("missing", [*PARTS, "files.json"])
def test_one_that_lost_a_file_is_passed_over_and_it_is_said(checkpoint, tmp_path, missing):
    checkpoint(1)
    (checkpoint(2) / missing).unlink()
    assert newest_checkpoint(tmp_path) == tmp_path / "checkpoint-1"
    with pytest.warns(UserWarning, match=f"checkpoint-2 is passed over for checkpoint-1: {missing} is missing"):
        assert checkpoint_to_resume(tmp_path) == tmp_path / "checkpoint-1"


@pytest.mark.parametrize("name", PARTS)
def test_one_with_a_file_cut_off_is_passed_over(checkpoint, tmp_path, name):
    checkpoint(1)
    os.truncate(checkpoint(2) / name, 1)
    assert newest_checkpoint(tmp_path) == tmp_path / "checkpoint-1"
    assert damage(tmp_path / "checkpoint-2") == f"{name} has 1 bytes instead of 2"


@pytest.mark.parametrize("content", [b"", b'{"model.safetensors": 2', b"\xff\xfe\x00", b"[]", b"3"])
def test_one_whose_list_cannot_be_read_is_passed_over(checkpoint, tmp_path, content):
    checkpoint(1)
    (checkpoint(2) / "files.json").write_bytes(content)
    assert newest_checkpoint(tmp_path) == tmp_path / "checkpoint-1"


@pytest.mark.parametrize("missing", PARTS)
def test_one_that_never_had_what_resuming_needs_is_passed_over(checkpoint, tmp_path, missing):
    checkpoint(1)
    checkpoint(2, parts=[part for part in PARTS if part != missing])
    assert newest_checkpoint(tmp_path) == tmp_path / "checkpoint-1"


def test_where_all_are_damaged_the_user_decides(checkpoint, tmp_path):
    for step in (1, 2):
        os.truncate(checkpoint(step) / "optimizer.pt", 0)
    with pytest.raises(UserError, match=r"no checkpoint in .* is whole \(optimizer.pt has 0 bytes.*--overwrite"):
        checkpoint_to_resume(tmp_path)


@pytest.mark.parametrize("name", ["adapter_model.safetensors", "model-00001-of-00002.safetensors"])
def test_weights_may_be_adapters_or_shards(checkpoint, tmp_path, name):
    folder = checkpoint(3, parts=[name, *PARTS[1:]])
    assert newest_checkpoint(tmp_path) == folder


def test_other_folders_are_not_checkpoints(checkpoint, tmp_path):
    checkpoint(5).rename(tmp_path / "checkpoint-best")
    assert newest_checkpoint(tmp_path) is None


def test_what_is_being_written_has_no_name_of_a_checkpoint_until_it_is_whole(checkpoint, tmp_path):
    checkpoint(1)
    with written_aside(tmp_path / "checkpoint-2") as folder:
        (folder / "model.safetensors").write_text("{}")
        assert checkpoints(tmp_path) == [tmp_path / "checkpoint-1"]
    assert json.loads((tmp_path / "checkpoint-2" / "files.json").read_text()) == {"model.safetensors": 2}


def test_an_error_while_writing_leaves_what_was_there(checkpoint, tmp_path):
    checkpoint(1, "[1]")

    def fail():
        with written_aside(tmp_path / "checkpoint-1") as folder:
            (folder / "model.safetensors").write_text("half")
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        fail()
    assert names(tmp_path) == ["checkpoint-1"]
    assert (tmp_path / "checkpoint-1" / "model.safetensors").read_text() == "[1]"


def test_one_of_the_same_name_is_replaced(checkpoint, tmp_path):
    checkpoint(1, "[1]")
    checkpoint(1, "[2, 2]")
    assert names(tmp_path) == ["checkpoint-1"]
    assert (newest_checkpoint(tmp_path) / "optimizer.pt").read_text() == "[2, 2]"


def test_after_a_kill_a_checkpoint_about_to_be_replaced_is_back_and_halves_are_gone(checkpoint, tmp_path):
    checkpoint(1)
    checkpoint(2).rename(tmp_path / ".old-checkpoint-2")  # killed before the new one took its place
    half = checkpoint(3)
    half.rename(tmp_path / ".old-checkpoint-3")  # killed while it was deleted
    (tmp_path / ".old-checkpoint-3" / "optimizer.pt").unlink()
    (tmp_path / ".writing-checkpoint-4").mkdir()
    (tmp_path / ".writing-metrics.jsonl").write_text("{")
    tidy(tmp_path)
    assert names(tmp_path) == ["checkpoint-1", "checkpoint-2"]
    assert newest_checkpoint(tmp_path) == tmp_path / "checkpoint-2"


@pytest.mark.parametrize(
    ("limit", "best", "left"), [(None, None, 4), (1, None, 1), (2, None, 2), (2, 1, 3), (1, 4, 1), (9, 1, 4)]
)
def test_the_newest_and_the_best_stay(checkpoint, tmp_path, limit, best, left):
    for step in (1, 2, 3, 4):
        checkpoint(step)
    rotate(tmp_path, limit, best and str(tmp_path / f"checkpoint-{best}"))
    kept = names(tmp_path)
    assert len(kept) == left
    assert "checkpoint-4" in kept
    assert best is None or f"checkpoint-{best}" in kept


def test_text_is_replaced_whole(tmp_path):
    replace_text(tmp_path / "log", "one")
    replace_text(tmp_path / "log", "two")
    assert names(tmp_path) == ["log"]
    assert (tmp_path / "log").read_text() == "two"
