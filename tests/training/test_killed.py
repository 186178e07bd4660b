"""Runs that are killed (`kill -9`) and started again end with the weights and the log of one that never was."""

import itertools
import os
import random
import shutil
import signal
import time
from functools import partial
from pathlib import Path

import pytest

from mgs.training.checkpoints import checkpoints, damage

SETTINGS = {
    "max_steps": 4,
    "save_steps": 1,
    "eval_steps": 2,
    "save_total_limit": 1,
    "gradient_accumulation_steps": 2,
    "lr_scheduler_type": "linear",
}
EVERY = 11  # step of writing; another number, 1 among them, tries others


@pytest.fixture
def train(make_trainer, letters):
    """The whole of a run that resumes, to be called in a process of its own."""

    def run(method, folder, **options):
        options = {"cost": "lm", "held_out": letters[50:54]} | SETTINGS | options
        trainer = make_trainer(method, folder, **options)
        trainer.train(resume_from_checkpoint=True)
        trainer.save_model()

    return run


def ending(folder):
    """What must be the same, and that nothing else was left."""
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == []
    assert [path for path in checkpoints(folder) if damage(path)] == []
    return (folder / "model.safetensors").read_bytes(), (folder / "metrics.jsonl").read_text()


def kill_in_call(number):
    """Make this process kill itself when it reaches for the disk for the n-th time."""
    calls = 0

    def watched(function):
        def call(*args, **kwargs):
            nonlocal calls
            calls += 1
            if calls == number:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*args, **kwargs)

        return call

    for module, name in [(os, "fsync"), (Path, "rename"), (Path, "replace"), (shutil, "rmtree"), (Path, "write_text")]:
        setattr(module, name, watched(getattr(module, name)))


def test_killed_at_any_step_of_writing(train, launch, finish, tmp_path):
    def killed(number, folder):
        kill_in_call(number)
        train("pg", folder, max_steps=2)

    finish(partial(train, "pg", tmp_path / "whole", max_steps=2))
    for number in itertools.count(1, EVERY):
        folder = tmp_path / f"killed{number}"
        (process,) = launch(partial(killed, number, folder))
        process.join(60)
        if process.exitcode == 0:  # there is no such step
            break
        assert process.exitcode == -signal.SIGKILL
        (process,) = launch(partial(killed, number % 6 + 1, folder))  # and again, while it resumes
        process.join(60)
        finish(partial(train, "pg", folder, max_steps=2))
        assert ending(folder) == ending(tmp_path / "whole"), f"killed in step {number}"
    assert number > 50


@pytest.mark.parametrize(("method", "num"), [("mle", 1), ("mgs", 1), ("mrt", 1), ("pg", 1), ("mgs", 2), ("pg", 2)])
def test_killed_at_random_moments(train, launch, finish, tmp_path, method, num):
    started = time.monotonic()
    finish(partial(train, method, tmp_path / "whole"), num)
    took = time.monotonic() - started
    chance = random.Random(f"{method}{num}")
    for _ in range(4):
        processes = launch(partial(train, method, tmp_path / "killed"), num)
        time.sleep(chance.uniform(0.2, 0.9) * took)
        processes[chance.randrange(num)].kill()  # one of them: the others notice
        for process in processes:
            process.join(0.3)
            process.kill()
            process.join()
    finish(partial(train, method, tmp_path / "killed"), num)
    assert ending(tmp_path / "whole") == ending(tmp_path / "killed")
