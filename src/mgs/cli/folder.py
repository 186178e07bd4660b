"""The folder of `mgs train`: an earlier run in it is neither mixed with a new one nor lost by accident."""

from __future__ import annotations

import inspect
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import yaml
from transformers import TrainingArguments

from mgs.cli.arguments import FLAGS_ONLY, read_yaml
from mgs.errors import UserError
from mgs.report.runs import YAML
from mgs.training import METHODS
from mgs.training.callbacks import LOG
from mgs.training.checkpoints import checkpoints, discard, replace_text, tidy
from mgs.training.outputs import OUTPUTS, RECORD

#: Options that may change when a run goes on: how long it lasts, what is watched, said and kept, and where it runs.
#: All others decide its course.
FREE = (
    *("max_steps", "num_train_epochs", "patience", "keep_best", "outputs", "output_dir", "nonfinite", "cost_timeout"),
    *("report_to", "run_name", "project", "disable_tqdm", "push_to_hub", "use_cpu", "local_rank"),
    *("per_device_eval_batch_size", "restore_callback_states_from_checkpoint"),
)
FREE_KINDS = ("eval_", "log", "save_", "hub_", "trackio_", "ddp_", "dataloader_")
LIBRARY = {f.name for f in fields(TrainingArguments)}


def check_folder(folder: Path, run: Any) -> None:
    """Whether there is an earlier run that nothing was said about."""
    if run.resume or run.overwrite or not folder.exists():
        return
    if checkpoints(folder) or (folder / LOG).exists():
        raise UserError(f"{folder} holds an earlier run: add --resume to go on with it, --overwrite, or another --out")


@contextmanager
def tidied(folder: Path, config: Any) -> Iterator[None]:
    """A run that fails before its first update leaves nothing behind: the same command can be given again."""
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    before = set(folder.iterdir()) if folder.is_dir() else set()
    try:
        yield
    except BaseException:
        log = folder / LOG
        if config.process_index == 0 and folder.is_dir() and not (log.exists() and log.stat().st_size):
            for path in set(folder.iterdir()) - before:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            for path in made:
                with suppress(OSError):  # someone else has put something there
                    path.rmdir()
        raise


def save_configuration(folder: Path, method: str, run: Any, *parts: Any) -> dict[str, Any]:
    """`mgs.yaml`: what this run was told and what it assumed, readable by --config. It says what the checkpoints beside
    it are of, so those of an earlier run go before it is replaced, and a run that goes on must agree with it."""
    resolved: dict[str, Any] = {}
    for part in (run, *parts):
        resolved |= part.resolved() if hasattr(part, "resolved") else asdict(part)
    folder.mkdir(parents=True, exist_ok=True)
    hidden = ("resume", "overwrite", *FLAGS_ONLY)
    text = yaml.safe_dump({name: value for name, value in resolved.items() if name not in hidden}, sort_keys=True)
    if run.resume:
        check_course(folder, method, yaml.safe_load(text))
    elif run.overwrite:
        clear(folder)
    replace_text(folder / YAML, text)
    return resolved


def check_course(folder: Path, method: str, now: Mapping[str, Any]) -> None:
    """A run goes on with the settings it began with, or it would be none that anybody could make again."""
    if not (folder / YAML).exists():
        return
    before = read_yaml(str(folder / YAML))
    earlier = next((name for name, (c, _) in METHODS.items() if {*inspect.get_annotations(c)} <= {*before}), method)
    told = [f"the method was {earlier} and is {method}"] if earlier != method else []
    # What one of them lacks is the library's default, or an option that another version of ours did not have.
    for name in sorted((before.keys() & now.keys()) | (LIBRARY & (before.keys() | now.keys()))):
        was, given = before.get(name), now.get(name)
        if was != given and not _is_free(name):
            told.append(f"{name} was {was!r} and is {given!r}")
    if told:
        raise UserError(
            f"{folder} holds a run of other settings ({', '.join(told)}): give those to go on with it, --overwrite "
            "without --resume to start anew, or another --out"
        )


def _is_free(name: str) -> bool:
    return name in FREE or (name.startswith(FREE_KINDS) and name != "eval_data")  # without it some lines are held out


def clear(folder: Path) -> None:
    """Removes what an earlier run would go on from and what it says of itself. Checkpoints go first: without the rest
    they would be those of nobody. Its weights stay until there are new ones."""
    tidy(folder)
    for checkpoint in reversed(checkpoints(folder)):
        discard(checkpoint)
    for name in (LOG, RECORD, OUTPUTS):
        (folder / name).unlink(missing_ok=True)
