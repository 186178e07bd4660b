"""Checkpoints that a kill, a full disk or a lost file cannot turn into wrong ones.

A checkpoint is written aside, with a list of its files and their sizes, brought to the disk, and only then given its
name. One that goes is renamed before it is deleted. So a folder named `checkpoint-N` is whole, unless somebody damaged
it: then the list says so.
"""

from __future__ import annotations

import json
import os
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mgs.errors import UserError

STATE = "trainer_state.json"
METHOD_STATE = "method.json"
FILES = "files.json"  # name → bytes, of all the others
PARTS = ("*.safetensors", "optimizer.pt", "scheduler.pt", METHOD_STATE, STATE)
ASIDE = ".writing-"  # starts the names of what is not whole yet
OLD = ".old-"  # and of what is about to be deleted


def newest_checkpoint(folder: str | Path) -> Path | None:
    """The newest whole checkpoint below a run's folder, if any."""
    return next((path for path in reversed(checkpoints(folder)) if damage(path) is None), None)


def checkpoint_to_resume(folder: str | Path) -> Path | None:
    """The newest that is whole; that others are passed over is said, and starting again is left to the user."""
    newest, found = newest_checkpoint(folder), checkpoints(folder)
    if found and newest is None:
        raise UserError(f"no checkpoint in {folder} is whole ({damage(found[-1])}): start anew with --overwrite")
    for path in found:
        if newest is not None and step_of(path) > step_of(newest):
            warnings.warn(f"{path} is passed over for {newest.name}: {damage(path)}", stacklevel=2)
    return newest


def checkpoints(folder: str | Path) -> list[Path]:
    """All there are by name, oldest first."""
    return sorted((path for path in Path(folder).glob("checkpoint-*") if step_of(path) >= 0), key=step_of)


def step_of(checkpoint: Path) -> int:
    """The update it was written after; -1 if its name does not say."""
    number = checkpoint.name.rpartition("-")[2]
    return int(number) if number.isdecimal() else -1


def damage(checkpoint: Path) -> str | None:
    """What is wrong with a checkpoint, if anything: its files are listed, there, and as long as they were."""
    try:
        files = json.loads((checkpoint / FILES).read_text())
        for name, size in files.items():
            found = (checkpoint / name).stat().st_size
            if found != size:
                return f"{name} has {found} bytes instead of {size}"
    except FileNotFoundError as error:
        return f"{Path(error.filename).name} is missing"
    except (OSError, ValueError, AttributeError):
        return f"{FILES} cannot be read"
    missing = [part for part in PARTS if not any(Path(name).match(part) for name in files)]
    return f"it has no {missing[0]}" if missing else None


@contextmanager
def written_aside(target: Path) -> Iterator[Path]:
    """A folder to write into, which takes the name `target` once everything in it is on the disk."""
    aside, old = target.with_name(ASIDE + target.name), target.with_name(OLD + target.name)
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    try:
        yield aside
        files = [path for path in sorted(aside.rglob("*")) if path.is_file()]
        (aside / FILES).write_text(json.dumps({str(p.relative_to(aside)): p.stat().st_size for p in files}))
        for path in (*files, aside / FILES, aside):
            sync(path)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    if target.exists():
        target.rename(old)
    aside.rename(target)
    sync(target.parent)
    shutil.rmtree(old, ignore_errors=True)


def replace_text(file: Path, text: str) -> None:
    """Writes a file so that it holds the old text or the new one, whatever happens meanwhile."""
    file.parent.mkdir(parents=True, exist_ok=True)
    aside = file.with_name(ASIDE + file.name)
    aside.write_text(text, encoding="utf-8")
    sync(aside)
    aside.replace(file)


def sync(path: Path) -> None:
    """Waits until a file or a folder is on the disk."""
    if os.name != "posix":  # where folders cannot be opened
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def tidy(folder: Path) -> None:
    """Clears away what a kill left behind; a checkpoint that was about to be replaced is put back."""
    for old in folder.glob(f"{OLD}checkpoint-*"):
        target = folder / old.name.removeprefix(OLD)
        old.rename(target) if not target.exists() and damage(old) is None else shutil.rmtree(old)
    for aside in folder.glob(f"{ASIDE}*"):
        shutil.rmtree(aside) if aside.is_dir() else aside.unlink()


def rotate(folder: Path, limit: int | None, best: str | None) -> None:
    """Deletes all but the newest `limit` and the best."""
    for path in checkpoints(folder)[:-limit] if limit else []:
        if best is None or path.name != Path(best).name:
            discard(path)


def discard(checkpoint: Path) -> None:
    """Deletes one under another name, so that it is never seen half."""
    old = checkpoint.with_name(OLD + checkpoint.name)
    checkpoint.rename(old)
    shutil.rmtree(old, ignore_errors=True)
