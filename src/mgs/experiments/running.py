"""Carries out a study: what is done is not done again, what was stopped goes on, several runs share a machine.

Each run has a folder: `settings.json` from its start, checkpoints and logs while it lasts, `record.json` at its end.
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

from mgs.errors import UserError
from mgs.experiments.inputs import ModelOptions
from mgs.experiments.study import Run, Study
from mgs.metrics import Evaluation
from mgs.training import METHODS
from mgs.training.outputs import OUTPUTS, RECORD, output_lines, write_lines

SETTINGS, OUTPUT = "settings.json", "output.txt"
#: For every run: nothing but what the study says goes to other places.
PLUMBING: dict[str, Any] = {"report_to": "none", "save_total_limit": 1}
NUM_OUTPUTS = 200  # kept of each run, to look at
Say = Callable[[str], object]


def is_done(study: Study, run: Run, out: Path) -> bool:
    """Trained as the study says, and evaluated on its splits."""
    return is_trained(study, run, out) and set(study.splits) <= set(_read(out / run.name / RECORD).get("figures", ()))


def is_trained(study: Study, run: Run, out: Path) -> bool:
    return _read(out / run.name / RECORD).get("settings") == described(study, run)


def described(study: Study, run: Run) -> dict[str, Any]:
    """What a cached run must agree with, as JSON would have it."""
    before = study.before(run)
    data = {name: value for name, value in asdict(study.data).items() if value not in (None, False)}
    whole = run.settings() | {"data": data, "examples": study.examples}
    if before is not None:
        whole["start"] = described(study, before)
    return json.loads(json.dumps(whole))


def execute(study: Study, run: Run, out: Path, progress: bool = True) -> None:
    """Train and evaluate one run, unless it is done; one that another study has trained is only evaluated."""
    if is_done(study, run, out):
        return
    folder = out / run.name
    trained = is_trained(study, run, out)
    if folder.exists() and not trained and _read(folder / SETTINGS) != described(study, run):
        shutil.rmtree(folder)  # of other settings
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / SETTINGS, described(study, run))
    began = time.monotonic()
    trainer, examples = _trainer(study, run, out, progress, trained)
    record = _read(folder / RECORD)
    if not trained:
        trainer.train(resume_from_checkpoint=True)
        trainer.save_model(str(folder))
        seconds = round(time.monotonic() - began, 1)
        record = {"settings": described(study, run), "updates": trainer.state.global_step, "seconds": seconds}
    for split in study.splits:
        data = examples(split, study.examples)
        trainer.figures(data)
        evaluation: Evaluation = trainer.last_evaluation
        record.setdefault("figures", {})[split] = evaluation.figures
        record.setdefault("signatures", {})[split] = evaluation.signature
        record.setdefault("continuations", {})[split] = evaluation.hypotheses[:20]
    lines = output_lines(trainer.processing_class, data, evaluation.hypotheses, record["updates"], NUM_OUTPUTS)
    write_lines(folder / OUTPUTS, lines)  # of the last split
    _write(folder / RECORD, record)
    for checkpoint in folder.glob("checkpoint-*"):
        shutil.rmtree(checkpoint)


def _trainer(study: Study, run: Run, out: Path, progress: bool, trained: bool) -> tuple[Any, Callable[..., Any]]:
    """The run's trainer, with what it ended with if it has been trained, and a way to load examples."""
    set_seed(run.seed)
    before = study.before(run)
    folder = out / run.name
    start = str(folder) if trained else str(out / before.name) if before else run.start
    model, tokenizer = ModelOptions(start).load_or_make(study.data)
    study.data.check_task(model)
    config_type, trainer_type = METHODS[run.method]
    config = config_type(
        output_dir=str(folder), seed=run.seed, disable_tqdm=not progress, **{**PLUMBING, **run.options}
    )

    def examples(split: str, limit: int | None) -> Any:
        return study.data.examples(tokenizer, split, config.context, model, limit)

    cost = () if run.cost is None else (run.cost,)
    trainer = trainer_type(
        *(model, *cost, config, examples("train", None)),
        eval_dataset=examples("valid", study.examples),
        processing_class=tokenizer,
    )
    return trainer, examples


def run_all(
    study: Study,
    out: Path,
    child: Callable[[Run], Sequence[str]],
    jobs: int = 1,
    minutes: float | None = None,
    say: Say = print,
) -> list[Run]:
    """Every run that is not done, `jobs` at a time, each the command `child` in a process of its own. At the end of
    `minutes` those in hand are stopped, to go on another time. Returns what is left."""
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
                    record = _read(out / run.name / RECORD)
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
    return [*failed, *map(study.named, at_work), *waiting]


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
    """What each row's finished runs came to."""
    found: dict[str, list[dict[str, Any]]] = {row: [] for row in study.rows}
    for run in study.runs:
        if is_done(study, run, out):
            found[run.row].append(_read(out / run.name / RECORD))
    if not any(found.values()):
        raise UserError(f"no run of {study.name!r} in {out} is done yet: run `mgs reproduce {study.name}` first")
    return found


def _read(file: Path) -> dict[str, Any]:
    try:
        return json.loads(file.read_text())
    except (OSError, ValueError):
        return {}


def _write(file: Path, content: Any) -> None:
    aside = file.with_suffix(".part")
    aside.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    aside.replace(file)
