import json

import pytest

from mgs.training import newest_checkpoint

PARTS = ("model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth")


@pytest.fixture
def checkpoint(tmp_path):
    """Write what a whole checkpoint holds."""

    def write(step):
        folder = tmp_path / f"checkpoint-{step}"
        folder.mkdir()
        for name in PARTS:
            (folder / name).write_bytes(b"x")
        (folder / "method.json").write_text("{}")
        (folder / "trainer_state.json").write_text(json.dumps({"global_step": step}))
        return folder

    return write


def test_the_newest_is_the_highest_number_not_the_last_name(checkpoint, tmp_path):
    for step in (900, 1000, 90):
        checkpoint(step)
    assert newest_checkpoint(tmp_path) == tmp_path / "checkpoint-1000"
    assert newest_checkpoint(str(tmp_path)) == tmp_path / "checkpoint-1000"


def test_a_folder_without_checkpoints_or_no_folder_has_none(tmp_path):
    assert newest_checkpoint(tmp_path) is None
    assert newest_checkpoint(tmp_path / "nowhere") is None


@pytest.mark.parametrize("missing", [*PARTS, "method.json", "trainer_state.json"])
def test_one_without_all_its_parts_is_passed_over(checkpoint, tmp_path, missing):
    checkpoint(1)
    (checkpoint(2) / missing).unlink()
    assert newest_checkpoint(tmp_path) == tmp_path / "checkpoint-1"


@pytest.mark.parametrize("name", ["trainer_state.json", "method.json"])
@pytest.mark.parametrize("content", ["", '{"global_step": 2, "log_his', "\x00\x00\x00"])
def test_one_cut_off_while_it_was_written_is_passed_over(checkpoint, tmp_path, name, content):
    checkpoint(1)
    (checkpoint(2) / name).write_text(content)
    assert newest_checkpoint(tmp_path) == tmp_path / "checkpoint-1"


def test_a_state_of_arbitrary_bytes_is_passed_over(checkpoint, tmp_path):
    checkpoint(1)
    (checkpoint(2) / "trainer_state.json").write_bytes(b"\xff\xfe\x00")
    assert newest_checkpoint(tmp_path) == tmp_path / "checkpoint-1"


@pytest.mark.parametrize("name", ["adapter_model.safetensors", "model-00001-of-00002.safetensors"])
def test_weights_may_be_adapters_or_shards(checkpoint, tmp_path, name):
    folder = checkpoint(3)
    (folder / "model.safetensors").rename(folder / name)
    assert newest_checkpoint(tmp_path) == folder


def test_other_folders_are_not_checkpoints(checkpoint, tmp_path):
    checkpoint(5)
    (tmp_path / "checkpoint-5").rename(tmp_path / "checkpoint-best")
    assert newest_checkpoint(tmp_path) is None
