"""What happens beside training: the bar, the log of every update, a checkpoint for every evaluation."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import ProgressCallback
from transformers.utils import logging

from mgs.training.checkpoints import replace_text

LOG = "metrics.jsonl"
SHOWN = ("loss", "cost", "best_cost", "effective", "guided_weight", "risk", "eval_cost", "eval_perplexity")


class Bar(ProgressCallback):
    """The library's progress bar, with the latest figures beside it instead of a line for each log entry."""

    def __init__(self) -> None:
        super().__init__()
        self.latest: dict[str, str] = {}

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, logs: Any = None, **kw: Any
    ) -> None:
        self.latest |= {name: f"{logs[name]:.4g}" for name in SHOWN if isinstance(logs.get(name), (int, float))}
        if self.training_bar is not None:
            self.training_bar.set_postfix(self.latest)


@contextmanager
def without_bars(quiet: bool | None) -> Iterator[None]:
    """Where no bars are wanted, none of what the library writes meanwhile."""
    quiet = quiet and logging.is_progress_bar_enabled()
    if quiet:
        logging.disable_progress_bar()
    try:
        yield
    finally:
        if quiet:
            logging.enable_progress_bar()


class UpdateLog(TrainerCallback):
    """`metrics.jsonl` in the run's folder: a line for each batch of an update, a line for each evaluation.

    After a resume, lines from beyond the checkpoint are dropped: they are about to be written again.
    """

    def __init__(self, folder: str | Path):
        self.file = Path(folder) / LOG

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kw: Any) -> None:
        if not state.is_world_process_zero:
            return
        self.file.parent.mkdir(parents=True, exist_ok=True)
        kept = []
        if state.global_step and self.file.exists():
            kept = [
                line for line in self.file.read_text().splitlines(keepends=True) if _step(line) <= state.global_step
            ]
        replace_text(self.file, "".join(kept))

    def write(self, entry: dict[str, Any]) -> None:
        with self.file.open("a") as file:
            file.write(json.dumps(entry) + "\n")


class SaveWhenEvaluated(TrainerCallback):
    """Every evaluation writes a checkpoint, so that the best one is always there to go back to."""

    def on_evaluate(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kw: Any
    ) -> TrainerControl:
        if state.global_step and args.load_best_model_at_end:
            control.should_save = True
        return control


def _step(line: str) -> float:
    try:
        return int(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return float("inf")  # cut off by a kill
