"""Carries out a study: what is done is not done again, what was stopped goes on, several runs share a machine.

Each run has a folder: `settings.json` from its start, checkpoints and logs while it lasts; `record.json` once it is
trained, which then grows by the figures of each split. Beside it are `NAME.output.txt`, what its processes said, and
`NAME.lock`.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from transformers import set_seed

from mgs.data import Completions
from mgs.errors import UserError
from mgs.experiments.inputs import ModelOptions
from mgs.experiments.lock import locked
from mgs.experiments.measuring import Examples, is_measured, measure
from mgs.experiments.stopwatch import Stopwatch
from mgs.experiments.study import Run, Study, differences
from mgs.models import load_model
from mgs.training import METHODS
from mgs.training.outputs import RECORD, read_json, write_json

SETTINGS, OUTPUT = "settings.json", "output.txt"
HUMAN = "Human"  # a row that is no run
#: For every run: nothing but what the study says goes to other places.
PLUMBING: dict[str, Any] = {"report_to": "none", "save_total_limit": 1}
Say = Callable[[str], object]


def is_done(study: Study, run: Run, out: Path) -> bool:
    """Trained as the study says, and evaluated on its splits."""
    record = _record(run, out)
    return is_trained(study, run, out) and all(is_measured(study, split, record) for split in study.splits)


def is_trained(study: Study, run: Run, out: Path) -> bool:
    settings = _record(run, out).get("settings")
    return settings is not None and not list(differences(settings, described(study, run)))


def _record(run: Run, out: Path) -> dict[str, Any]:
    return read_json(out / run.name / RECORD)


def described(study: Study, run: Run) -> dict[str, Any]:
    """What a cached run must agree with, as JSON would have it."""
    before = study.before(run)
    data = {name: value for name, value in asdict(study.data).items() if value not in (None, False)}
    seen = {"examples": study.examples} if study.watched is None else {"watched": study.watched}
    whole: dict[str, Any] = run.settings() | {"data": data} | seen
    if before is not None:
        whole["start"] = described(study, before)
    return json.loads(json.dumps(whole))


def execute(study: Study, run: Run, out: Path, progress: bool = True) -> None:
    """Train and evaluate one run, unless it is done; one that another study has trained is only evaluated."""
    with locked(out / run.name):
        if not is_done(study, run, out):
            _make_room(study, run, out)
            _execute(study, run, out, progress)


def _make_room(study: Study, run: Run, out: Path) -> None:
    """What was begun with other settings goes; what was finished is the user's to delete."""
    folder, now = out / run.name, described(study, run)
    settings = _record(run, out).get("settings")
    if settings is not None and (told := ", ".join(differences(settings, now))):
        raise UserError(f"{folder} holds a finished run of other settings ({told}): give another --out, or delete it")
    if folder.exists() and settings is None and list(differences(read_json(folder / SETTINGS), now)):
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / SETTINGS, now)


def _execute(study: Study, run: Run, out: Path, progress: bool) -> None:
    folder, trained = out / run.name, is_trained(study, run, out)
    began = time.monotonic()
    trainer, examples = _trainer(study, run, out, progress, trained)
    record = read_json(folder / RECORD)
    if not trained:
        trainer.train(resume_from_checkpoint=True)
        trainer.save_model(str(folder))
        watch = next(c for c in trainer.callback_handler.callbacks if isinstance(c, Stopwatch))
        record = {
            "settings": described(study, run),
            "updates": trainer.state.global_step,
            "update_seconds": round(watch.seconds, 1),
            "seconds": round(time.monotonic() - began, 1),  # of this sitting, evaluations counted
        }
        write_json(folder / RECORD, record)
    measure(study, run, out, trainer, examples, record)
    for checkpoint in folder.glob("checkpoint-*"):
        shutil.rmtree(checkpoint)


def _trainer(study: Study, run: Run, out: Path, progress: bool, trained: bool) -> tuple[Any, Examples]:
    """The run's trainer, and a way to load examples. What has been trained starts as it did, so that the start is what
    scores it, and then takes on the weights it ended with."""
    set_seed(run.seed)
    before, folder = study.before(run), out / run.name
    start = ModelOptions(str(out / before.name) if before else run.start, str(folder) if trained else None)
    model, tokenizer = start.load_or_make(study.data)
    study.data.check_task(model)
    config_type, trainer_type = METHODS[run.method]
    config = config_type(
        output_dir=str(folder), seed=run.seed, disable_tqdm=not progress, **{**PLUMBING, **run.options}
    )

    def examples(split: str, limit: int | None) -> Completions:
        return study.data.examples(tokenizer, split, config.context, model, limit)

    cost = () if run.cost is None else (run.cost,)
    trainer = trainer_type(
        *(model, *cost, config, examples("train", None)),
        eval_dataset=examples("valid", study.watched or study.examples),
        processing_class=tokenizer,
        callbacks=[Stopwatch(run.seconds)],
    )
    if run.method == "mle" and before and not study.data.translates:  # as the others have it: what they start from
        trainer.scorer = start.load()[0].eval().to(trainer.args.device)
    if trained:
        model.load_state_dict(load_model(str(folder)).state_dict())
    return trainer, examples


def run_all(
    study: Study,
    out: Path,
    child: Callable[[Run], Sequence[str]],
    jobs: int = 1,
    minutes: float | None = None,
    say: Say = print,
) -> tuple[list[Run], list[Run]]:
    """Every run that is not done, `jobs` at a time, each the command `child` in a process of its own. At the end of
    `minutes` those in hand are stopped, to go on another time. Returns what has failed, and what is left."""
    deadline = time.monotonic() + 60 * minutes if minutes else float("inf")
    waiting = [run for run in study.runs if not is_done(study, run, out)]
    say(f"{len(study.runs) - len(waiting)} of {len(study.runs)} runs are done already")
    at_work: dict[str, subprocess.Popen] = {}
    failed: list[Run] = []
    try:
        while (waiting or at_work) and time.monotonic() < deadline:
            for run in [run for run in waiting if _ready(study, run, out)][: jobs - len(at_work)]:
                waiting.remove(run)
                at_work[run.name] = _start(child(run), out / run.name)
            for run in [study.named(name) for name, process in at_work.items() if process.poll() is not None]:
                at_work.pop(run.name)
                if is_done(study, run, out):
                    record = _record(run, out)
                    say(f"{run.name}: {record['updates']} updates, {record['seconds']:.0f} s")
                else:
                    failed.append(run)
                    say(f"{run.name}: failed: {_last_line(out / run.name / OUTPUT)}")
            if not at_work and not any(_ready(study, run, out) for run in waiting):
                break
            time.sleep(0.2)
    finally:
        for process in at_work.values():
            process.kill()
            process.wait()
    return failed, [*map(study.named, at_work), *waiting]


def _ready(study: Study, run: Run, out: Path) -> bool:
    before = study.before(run)
    return before is None or is_done(study, before, out)


def _start(command: Sequence[str], folder: Path) -> subprocess.Popen:
    folder.parent.mkdir(parents=True, exist_ok=True)
    log = folder.with_name(folder.name + "." + OUTPUT)
    with log.open("ab") as file:
        return subprocess.Popen([sys.executable, "-m", "mgs", *command], stdout=file, stderr=file)


def _last_line(file: Path) -> str:
    log = file.parent.with_name(file.parent.name + "." + file.name)
    lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
    return lines[-1] if lines else "it said nothing"


def records(study: Study, out: Path) -> dict[str, list[dict[str, Any]]]:
    """What each row's finished runs came to; and people, where a run that is done has scored their continuations."""
    found: dict[str, list[dict[str, Any]]] = {row: [] for row in study.rows}
    for run in study.runs:
        if is_done(study, run, out):
            found[run.row].append(_record(run, out))
    if not any(found.values()):
        raise UserError(f"no run of {study.name!r} in {out} is done yet: run `mgs reproduce {study.name}` first")
    scoring = [record for rows in found.values() for record in rows if "human" in record]
    human = [{"figures": record["human"], "signatures": record["signatures"]} for record in scoring]
    return found | ({HUMAN: human} if human else {})
