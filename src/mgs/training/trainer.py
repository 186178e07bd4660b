"""The trainer that all methods share: `transformers.Trainer` with its step, data and evaluation replaced.

Optimizer, clipping, schedules, accumulation, logging, checkpoints, resume and PEFT are the library's.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader
from transformers import EarlyStoppingCallback, PreTrainedTokenizerBase, Trainer
from transformers.trainer_callback import PrinterCallback, ProgressCallback

from mgs.data import BatchStream, Completions, as_completions
from mgs.decoding import EVALUATION_LENGTH, Decoder
from mgs.errors import CostError, UserError
from mgs.methods import Key, Method
from mgs.metrics import Evaluation, evaluate_completion, evaluate_translation
from mgs.models import searched_parameters, window
from mgs.models.likelihood import is_encoder_decoder
from mgs.training.callbacks import Bar, SaveWhenEvaluated, UpdateLog
from mgs.training.checkpoints import METHOD_STATE, newest_checkpoint
from mgs.training.config import SequenceConfig
from mgs.training.randomness import Randomness
from mgs.types import Batch


class SequenceTrainer(Trainer):
    """Subclasses say which method turns a batch into a gradient."""

    model: nn.Module
    args: SequenceConfig
    train_dataset: Completions
    processing_class: PreTrainedTokenizerBase
    method: Method
    scorer: nn.Module | None = None  # for the LM columns of evaluations

    def __init__(
        self,
        model: nn.Module,
        args: SequenceConfig,
        train_dataset: Any,
        eval_dataset: Any = None,
        processing_class: PreTrainedTokenizerBase | None = None,
        **kwargs: Any,
    ):
        if processing_class is None:
            raise UserError("a trainer needs the model's tokenizer: pass processing_class=tokenizer")
        if not searched_parameters(model):
            raise UserError("no parameter of the model has requires_grad: there is nothing to train")
        train = as_completions(train_dataset, processing_class, args.context)
        held_out = None if eval_dataset is None else as_completions(eval_dataset, processing_class, args.context)
        check_window(model, train)
        if held_out is None:
            args.eval_strategy, args.load_best_model_at_end = "no", False
        if args.load_best_model_at_end and is_encoder_decoder(model):
            args.choose_best_by(args.best_by or "bleu")
        callbacks = [SaveWhenEvaluated(), *kwargs.pop("callbacks", [])]
        if args.patience and args.load_best_model_at_end:
            callbacks.append(EarlyStoppingCallback(args.patience))
        super().__init__(
            model,
            args,
            train_dataset=train,
            eval_dataset=held_out,
            processing_class=processing_class,
            callbacks=callbacks,
            **kwargs,
        )
        self.remove_callback(PrinterCallback)
        if self.pop_callback(ProgressCallback):
            self.add_callback(Bar())
        self.updates = UpdateLog(str(args.output_dir))
        self.add_callback(self.updates)
        self.last_evaluation: Evaluation | None = None
        self._at = (-1, -1)  # step and number within it of the batch in hand
        self._before: tuple[Randomness, dict[str, Any]] | None = None  # the update in hand
        self._since_log: dict[str, list[float]] = {}

    # -- data ------------------------------------------------------------------------------------------------------

    def get_train_dataloader(self) -> DataLoader:
        """One flat stream of batches for the whole run, so that resuming is skipping."""
        args = self.args
        num = args.max_steps * args.gradient_accumulation_steps if args.max_steps > 0 else None
        stream = BatchStream(
            self.train_dataset,
            args.batch_tokens,
            args.seed,
            args.by_length,
            num,
            args.num_train_epochs,
            by_side=is_encoder_decoder(self.model),
        )
        if num is None:  # the library would pass through the stream once per epoch
            args.max_steps = math.ceil(len(stream) / args.gradient_accumulation_steps)
        return DataLoader(stream, batch_size=1, shuffle=False, collate_fn=_only)  # type: ignore[arg-type]

    def _get_num_items_in_batch(self, batch_samples: list, device: torch.device) -> None:
        return None

    def floating_point_ops(self, inputs: Any) -> int:
        return 0

    # -- one update ------------------------------------------------------------------------------------------------

    def training_step(self, model: nn.Module, inputs: Batch, num_items_in_batch: Any = None) -> Tensor:  # type: ignore[override]
        """The method's gradient, added to `.grad` as the library's backward pass would."""
        step, micro = self._at
        self._at = (self.state.global_step, micro + 1 if step == self.state.global_step else 0)
        if self._at[1] == 0:
            self._before = Randomness.now(), self.method.state()
        outcome = self.method(self.model, inputs, Key(self.args.seed, *self._at))
        share = 1 / self.current_gradient_accumulation_steps
        parameters = searched_parameters(self.model)
        for name, gradient in outcome.gradient.items():
            part = (gradient * share if share != 1 else gradient).to(parameters[name].dtype)
            earlier = parameters[name].grad
            parameters[name].grad = part if earlier is None else earlier + part
        self._record(outcome.loss, outcome.log)
        return torch.tensor(outcome.loss * share, device=self.args.device)

    def _record(self, loss: float, log: dict[str, Any]) -> None:
        for name, value in log.items():
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                self._since_log.setdefault(name, []).append(float(value))
        if self.is_world_process_zero():
            self.updates.write({"step": self._at[0] + 1, "micro": self._at[1], "loss": loss, **log})

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        if "loss" in logs:
            logs |= {name: sum(values) / len(values) for name, values in self._since_log.items()}
            self._since_log = {}
        super().log(logs, start_time)

    # -- evaluation ------------------------------------------------------------------------------------------------

    def evaluate(
        self, eval_dataset: Any = None, ignore_keys: Any = None, metric_key_prefix: str = "eval"
    ) -> dict[str, float]:
        """Decode, score, log. `eval_cost` is what training minimises."""
        data = self._evaluation_data(eval_dataset)
        figures = self.figures(data)
        metrics = {f"{metric_key_prefix}_{name}": value for name, value in figures.items()}
        self.log(dict(metrics))
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    def figures(self, data: Completions) -> dict[str, float]:
        """The table's columns and `cost`, from decoding with the training decoder."""
        args, decoder = self.args, Decoder.parse(self.args.decoder)
        common: dict[str, Any] = {"seed": args.seed, "progress": not args.disable_tqdm}
        if is_encoder_decoder(self.model):
            self.last_evaluation = evaluate_translation(
                self.model, self.processing_class, data, decoder, args.eval_max_new_tokens, **common
            )
        else:
            cap = args.eval_max_new_tokens or EVALUATION_LENGTH
            self.last_evaluation = evaluate_completion(
                self.model, self.processing_class, data, decoder, self.scorer, cap, **common
            )
        return dict(self.last_evaluation.figures)

    def _evaluation_data(self, eval_dataset: Any) -> Completions:
        chosen = self.eval_dataset if eval_dataset is None else eval_dataset
        if chosen is None:
            raise UserError("there is nothing to evaluate on: give an eval_dataset")
        return as_completions(chosen, self.processing_class, self.args.context)

    # -- checkpoints -----------------------------------------------------------------------------------------------

    def train(self, resume_from_checkpoint: str | bool | None = None, **kwargs: Any) -> Any:  # type: ignore[override]
        """As the library's. `True` goes on from the newest whole checkpoint, or starts if there is none.

        A cost that fails stops the run after a checkpoint of the last update: with the cost mended, resume goes on
        as if it had never failed.
        """
        if resume_from_checkpoint is True:
            newest = newest_checkpoint(str(self.args.output_dir))
            resume_from_checkpoint = str(newest) if newest else None
        self._at = (-1, -1)
        try:
            return super().train(resume_from_checkpoint or None, **kwargs)
        except CostError:
            if self.state.global_step:
                self._undo_update_in_hand()
                self._save_checkpoint(self.model, trial=None)
            raise

    def _undo_update_in_hand(self) -> None:
        """Back to the end of the last update: its weights are still there, randomness and the method have moved on."""
        if self._before is not None and self._at[0] == self.state.global_step:
            randomness, method_state = self._before
            randomness.restore()
            self.method.load_state(method_state)

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        super()._save_optimizer_and_scheduler(output_dir)
        if self.args.should_save:
            (Path(output_dir) / METHOD_STATE).write_text(json.dumps(self.method.state()))

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is not None:
            self.method.load_state(json.loads((Path(checkpoint) / METHOD_STATE).read_text()))


def check_window(model: nn.Module, data: Completions) -> None:
    """Sequences longer than the model's window would fail deep inside it."""
    limit = window(model)  # type: ignore[arg-type]
    if is_encoder_decoder(model):
        longest = max(max(len(example.prefix), len(example.target)) for example in data.examples)
    else:
        longest = max(map(len, data.examples))
    if limit and longest > limit:
        raise UserError(
            f"a sequence of {longest} tokens does not fit the model's window of {limit}: cut or drop it (max_length)"
        )


def _only(items: list[Batch]) -> Batch:
    return items[0]
