"""What a trainer keeps, and how it goes on from there: whatever stops a run, its last whole checkpoint is there.

One process writes, all read. No file is a pickle but those of torch, which are read as tensors and plain values alone.
"""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import nn
from transformers import EarlyStoppingCallback
from transformers.trainer_callback import ExportableState

from mgs.errors import UpdateError, UserError
from mgs.methods import Method
from mgs.training.averaging import Average
from mgs.training.callbacks import UpdateLog, without_bars
from mgs.training.checkpoints import (
    ASIDE,
    FILES,
    METHOD_STATE,
    STATE,
    checkpoint_to_resume,
    checkpoints,
    damage,
    discard,
    rotate,
    step_of,
    sync,
    tidy,
    written_aside,
)
from mgs.training.config import SequenceConfig
from mgs.training.together import TogetherTrainer


class SavingTrainer(TogetherTrainer):
    """Checkpoints, resuming, and the final model."""

    args: SequenceConfig
    method: Method
    updates: UpdateLog
    average: Average
    skipped = 0  # updates that were not finite
    _at = (-1, -1)  # step and number within it of the batch in hand
    _before: dict[str, Any]  # the method's state at the start of the update in hand

    @property
    def folder(self) -> Path:
        return Path(str(self.args.output_dir))

    def train(self, resume_from_checkpoint: str | bool | None = None, **kwargs: Any) -> Any:  # type: ignore[override]
        """As the library's. `True` goes on from the newest whole checkpoint, or starts if there is none. Without it
        checkpoints that are in the folder are deleted, so that those of two runs are never side by side.

        An update that cannot be made, because a cost fails, stops the run after a checkpoint of the update before it:
        with the cost mended, resume goes on as if it had never failed.
        """
        start = self.ranks.from_first(lambda: self._start(resume_from_checkpoint))
        self.check_same_weights()
        self.skipped, self._at = 0, (-1, -1)
        if start:
            self.args.eval_on_start = False  # it has been done
        try:
            result = super().train(start, **kwargs)
        except UpdateError:
            if self.state.global_step:
                if self._at[0] == self.state.global_step:  # weights are those of the update before; the method moved on
                    self.method.load_state(self._before)
                self._save_checkpoint(self.model, trial=None)
            raise
        if self.skipped and self.ranks.first:
            warnings.warn(f"{self.skipped} updates were skipped: see `why` in {self.updates.file}", stacklevel=2)
        return result

    def _start(self, resume: str | bool | None) -> str | None:
        """The checkpoint to go on from. Later ones, damaged or of an earlier run, are in the way of those to come."""
        tidy(self.folder)
        start = checkpoint_to_resume(self.folder) if resume is True else Path(resume) if resume else None
        found = checkpoints(self.folder)
        if start is not None and (why := damage(start)) is not None:  # before anything is deleted
            there = ", ".join(path.name for path in found) or "none"
            raise UserError(f"{start} is no whole checkpoint: {why} (in {self.folder}: {there})")
        if found and start is None:
            warnings.warn(
                f"starting anew deletes {len(found)} checkpoints in {self.folder}, up to {found[-1].name}: to go on "
                "from there, call train(resume_from_checkpoint=True)",
                stacklevel=2,
            )
        for path in found:
            if start is None or step_of(path) > step_of(start):
                discard(path)
        return str(start) if start else None

    def _run_epoch(self, *args: Any, **kwargs: Any) -> None:
        """As the library's, but a run that had stopped early when it was killed does not go on."""
        stoppers = [c for c in self.callback_handler.callbacks if isinstance(c, EarlyStoppingCallback)]
        over = any(stopper.early_stopping_patience_counter >= stopper.early_stopping_patience for stopper in stoppers)
        if over and self.state.global_step:
            self.control.should_training_stop = True
            return
        super()._run_epoch(*args, **kwargs)

    def _finalize_training(self, *args: Any, **kwargs: Any) -> Any:
        self.average.end()
        return super()._finalize_training(*args, **kwargs)

    # -- writing ---------------------------------------------------------------------------------------------------

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        """One of this update; older ones go only after it is whole."""
        step = self.state.global_step
        best = self.state.best_global_step
        if best and (best == step or (self.folder / f"checkpoint-{best}").exists()):
            self.state.best_model_checkpoint = str(self.folder / f"checkpoint-{best}")
        self.align_weights()
        with self.average.in_place():
            self.align_weights()
        self.ranks.from_first(lambda: self._write_checkpoint(self.folder / f"checkpoint-{step}"))

    def _write_checkpoint(self, target: Path) -> None:
        with _sentences(target), written_aside(target) as folder:
            if self.updates.file.exists():
                sync(self.updates.file)  # a resumed run goes on writing it
            self.save_model(str(folder), _internal_call=True)
            if not self.args.save_only_model:
                self._save_optimizer_and_scheduler(str(folder))
            self._save_state(folder / STATE)
        rotate(self.folder, self.args.save_total_limit, self.state.best_model_checkpoint)
        if self.args.push_to_hub:
            self._push_from_checkpoint(str(target))

    def _save_state(self, file: Path) -> None:
        states: dict[str, list[Any]] = {}
        for callback in [*self.callback_handler.callbacks, self.control]:
            if isinstance(callback, ExportableState):
                states.setdefault(type(callback).__name__, []).append(callback.state())
        one_or_more = {name: found if len(found) > 1 else found[0] for name, found in states.items()}
        self.state.stateful_callbacks = one_or_more  # type: ignore[assignment]
        self.state.save_to_json(str(file))

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        super()._save_optimizer_and_scheduler(output_dir)
        state = {"method": self.method.state(), "skipped": self.skipped}
        (Path(output_dir) / METHOD_STATE).write_text(json.dumps(state))
        self.average.save(Path(output_dir))

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """As the library's: the first process writes. A file is whole before it takes the place of an earlier one."""
        if _internal_call or not self.args.should_save:
            return super().save_model(output_dir, _internal_call)
        folder = Path(output_dir or self.folder)
        with _sentences(folder / "model.safetensors"), written_aside(folder / f"{ASIDE}model") as aside:
            super().save_model(str(aside), _internal_call=True)
        for file in (folder / f"{ASIDE}model").iterdir():
            if file.name != FILES:
                file.replace(folder / file.name)
        shutil.rmtree(folder / f"{ASIDE}model")
        if self.args.push_to_hub:
            self.push_to_hub(commit_message="Model save", revision=self.args.hub_revision)

    def _save(self, output_dir: str | None = None, state_dict: dict | None = None) -> None:
        with self.average.in_place(), without_bars(self.args.disable_tqdm):
            super()._save(output_dir, state_dict)
        (Path(output_dir or self.folder) / "training_args.bin").unlink(missing_ok=True)  # a pickle; mgs.yaml says more

    def _save_rng_state(self, output_dir: str) -> None:
        """Nothing to keep: generators are seeded anew for each batch."""

    # -- reading ---------------------------------------------------------------------------------------------------

    def _load_rng_state(self, checkpoint: str | None) -> None:
        """As little as was kept."""

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        try:
            super()._load_from_checkpoint(resume_from_checkpoint, model)
            self.average.load(Path(resume_from_checkpoint))
        except Exception as error:
            raise _unreadable(resume_from_checkpoint, error) from error

    def _load_best_model(self) -> None:
        try:
            super()._load_best_model()
        except Exception as error:
            best = str(self.state.best_model_checkpoint)
            raise UserError(
                f"{best} cannot be read ({_said(error)}): end without it, with --keep_best false"
            ) from error

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        if checkpoint is None:
            return
        try:
            super()._load_optimizer_and_scheduler(checkpoint)
            state = json.loads((Path(checkpoint) / METHOD_STATE).read_text())
            self.method.load_state(state["method"])
            self.skipped = state["skipped"]
        except Exception as error:
            raise _unreadable(checkpoint, error) from error


@contextmanager
def _sentences(target: Path) -> Iterator[None]:
    """What cannot be written, in words: each library that writes has its own kind of error for a full disk."""
    try:
        yield
    except Exception as error:
        raise UserError(
            f"{target} could not be written ({_said(error)}): earlier checkpoints are as they were; make room and "
            "start again with --resume"
        ) from error


def _unreadable(checkpoint: str, error: Exception) -> UserError:
    return UserError(
        f"{checkpoint} cannot be read ({_said(error)}): delete it to go on from an earlier one, or use --overwrite"
    )


def _said(error: Exception) -> str:
    """The first line of what an error says."""
    lines = str(getattr(error, "strerror", None) or error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
