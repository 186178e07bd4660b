"""The trainer that all methods share: `transformers.Trainer` with its step, data and evaluation replaced.

Optimizer, clipping, schedules, accumulation, logging, checkpoints, resume and PEFT are the library's.
"""

from __future__ import annotations

import copy
import math
from typing import Any, NoReturn

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader
from transformers import EarlyStoppingCallback, PreTrainedTokenizerBase
from transformers.trainer_callback import PrinterCallback, ProgressCallback

from mgs.costs.wordnet import has_wordnet
from mgs.data import BatchStream, Completions, as_completions
from mgs.decoding import EVALUATION_LENGTH, Decoder
from mgs.errors import NonFinite, UserError, unknown
from mgs.methods import Key, Outcome
from mgs.metrics import COLUMNS, TRANSLATION_COLUMNS, Evaluation, evaluate_completion, evaluate_translation
from mgs.models import freeze_tables, searched_parameters
from mgs.models.likelihood import is_encoder_decoder
from mgs.search.directions import norm
from mgs.training.averaging import Average
from mgs.training.callbacks import Bar, SaveWhenEvaluated, UpdateLog
from mgs.training.checks import check_data, check_parameters
from mgs.training.config import SequenceConfig
from mgs.training.randomness import reseed
from mgs.training.saving import SavingTrainer
from mgs.types import Batch


class SequenceTrainer(SavingTrainer):
    """Subclasses say which method turns a batch into a gradient, and what configuration it has."""

    config_type: type[SequenceConfig]
    train_dataset: Completions
    processing_class: PreTrainedTokenizerBase
    scorer: nn.Module | None = None  # for the LM columns of evaluations

    def __init__(
        self,
        model: nn.Module,
        args: SequenceConfig,
        train_dataset: Any,
        eval_dataset: Any = None,
        *,
        processing_class: PreTrainedTokenizerBase,
        **kwargs: Any,
    ):
        freeze_tables(model)
        check_parameters(model)
        train = as_completions(train_dataset, processing_class, args.context)
        held_out = None if eval_dataset is None else as_completions(eval_dataset, processing_class, args.context)
        for data in (train, held_out):
            if data is not None:
                check_data(model, data)
        args = copy.copy(args)  # the caller may use it again, with other data
        if held_out is None:
            args.eval_strategy, args.load_best_model_at_end = "no", False
        if args.load_best_model_at_end:
            translates = is_encoder_decoder(model)
            best_by, figures = args.best_by or ("bleu" if translates else args.own_best), self.known_figures(translates)
            if best_by not in figures:
                raise unknown("best_by", best_by, figures)
            args.choose_best_by(best_by)
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
        self.average = Average(self.model, args.ema)
        self.add_callback(self.average)
        self.updates = UpdateLog(str(args.output_dir))
        self.add_callback(self.updates)
        self.last_evaluation: Evaluation | None = None
        self._skipping = -1  # the update that is skipped, if it is the one in hand
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
            self._before, self._skipping = self.method.state(), -1
        if self._skipping == self.state.global_step:
            return torch.zeros((), device=self.args.device)
        try:
            outcome = self._outcome(inputs)
        except NonFinite as error:
            if self.args.nonfinite == "stop":
                raise
            return self._skip(str(error))
        share = 1 / self.current_gradient_accumulation_steps
        parameters = searched_parameters(self.model)
        for name, gradient in outcome.gradient.items():
            part = (gradient * share if share != 1 else gradient).to(parameters[name].dtype)
            earlier = parameters[name].grad
            parameters[name].grad = part if earlier is None else earlier + part
        self._record(outcome.loss, outcome.log)
        return torch.tensor(outcome.loss * share, device=self.args.device)

    def _outcome(self, batch: Batch) -> Outcome:
        """What the method makes of the batch in hand, if it is finite."""
        key = Key(self.args.seed, *self._at)
        reseed(*key)
        self.ranks.exchanged = 0
        outcome = self.method(self.model, batch, key)
        if not math.isfinite(norm(outcome.gradient)):
            raise NonFinite(f"the gradient of update {self._at[0] + 1} is not finite (its loss is {outcome.loss})")
        return outcome

    def _skip(self, why: str) -> Tensor:
        """Leaves the update in hand out: parameters without a gradient are not touched, nor is what belongs to them."""
        self.skipped, self._skipping = self.skipped + 1, self.state.global_step
        self.model.zero_grad()
        self.method.load_state(self._before)
        self._write({"skipped": self.skipped, "why": why})
        return torch.zeros((), device=self.args.device)

    def _record(self, loss: float, log: dict[str, Any]) -> None:
        for name, value in log.items():
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                self._since_log.setdefault(name, []).append(float(value))
        self._write({"loss": loss, **log})

    def _write(self, entry: dict[str, Any]) -> None:
        if self.ranks.size > 1:
            entry["exchanged_bytes"] = self.ranks.exchanged
        if self.ranks.first:
            self.updates.write({"step": self._at[0] + 1, "micro": self._at[1], **entry})

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
        reseed(self.args.seed, self.state.global_step, "evaluation")
        with self.average.in_place():
            figures = self.ranks.from_first(lambda: self.figures(data))
        metrics = {f"{metric_key_prefix}_{name}": value for name, value in figures.items()}
        self.log(dict(metrics))
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        if self.ranks.first and self.updates.file.exists():  # after all callbacks, some of which add figures
            self.updates.write({"step": self.state.global_step, **metrics})
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

    def known_figures(self, translates: bool) -> list[str]:
        """The names of `figures`."""
        if translates:
            return [name for name in TRANSLATION_COLUMNS if name != "meteor" or has_wordnet()]
        return [name for name in COLUMNS if self.scorer is not None or not name.startswith("lm")]

    def predict(self, *args: Any, **options: Any) -> NoReturn:
        raise UserError("these trainers do not predict: evaluate(dataset) decodes, and last_evaluation holds what")

    def _evaluation_data(self, eval_dataset: Any) -> Completions:
        chosen = self.eval_dataset if eval_dataset is None else eval_dataset
        if chosen is None:
            raise UserError("there is nothing to evaluate on: give an eval_dataset")
        data = as_completions(chosen, self.processing_class, self.args.context)
        check_data(self.model, data)
        return data


def _only(items: list[Batch]) -> Batch:
    return items[0]
