"""How long a run's updates take, evaluations not counted, over all the sittings it took."""

from __future__ import annotations

import time
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import ExportableState


class Stopwatch(TrainerCallback, ExportableState):
    """Counts, and ends the run after `limit` seconds with an evaluation. Checkpoints hold what it has counted, and so
    do evaluations in the log."""

    def __init__(self, limit: float | None = None):
        self.limit = limit
        self.seconds = 0.0
        self._since = 0.0

    def on_step_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kw: Any) -> None:
        self._since = time.monotonic()

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kw: Any
    ) -> TrainerControl:
        self.seconds += time.monotonic() - self._since
        if self.limit is not None and self.seconds >= self.limit:
            control.should_evaluate = control.should_training_stop = True
        return control

    def on_evaluate(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, metrics: Any = None, **kw: Any
    ) -> None:
        metrics["eval_update_seconds"] = round(self.seconds, 3)

    def state(self) -> dict[str, Any]:
        return {"args": {"limit": self.limit}, "attributes": {"seconds": self.seconds}}
