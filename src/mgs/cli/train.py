"""`mgs train {mle,mgs,mrt,pg}`"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import set_seed

from mgs.cli.arguments import Parser
from mgs.cli.folder import check_folder, save_configuration, tidied
from mgs.costs import COST_NAMES
from mgs.errors import UserError, at_least, first_line, unknown
from mgs.experiments.inputs import DataOptions, ModelOptions, load_cost
from mgs.ranks import Ranks
from mgs.report.card import CARD, model_card
from mgs.report.escape import printable
from mgs.report.tables import figures_table
from mgs.training import METHODS
from mgs.training.config import option
from mgs.training.outputs import RunRecord

SUMMARY = "Train a model with {name}. Everything has a default; the same command with --resume goes on after a stop."


@dataclass
class RunOptions:
    """The run."""

    cost: str | None = option(
        None, f"Task cost: {', '.join(COST_NAMES)} or FILE.py:FUNCTION (default: lm; sbleu for translation)."
    )
    eval_data: str | None = option(None, "Sequences to evaluate on (default: the validation split of --data).")
    eval_examples: int | None = option(
        None, "Prefixes an evaluation decodes, at most; 0 for all (default: 200; all for translation)."
    )
    outputs: int = option(
        200, "Held-out outputs of the first and the last weights to keep for `mgs report`, at most; 0 for none."
    )
    resume: bool = option(False, "Go on from the newest checkpoint in --out; start if there is none.")
    overwrite: bool = option(False, "Start anew in a folder that holds an earlier run.")

    def __post_init__(self) -> None:
        at_least(0, eval_examples=self.eval_examples)

    def settle(self, translates: bool) -> None:
        """What the task decides where nothing was said."""
        self.cost = self.cost or ("sbleu" if translates else "lm")
        if self.eval_examples is None:
            self.eval_examples = 0 if translates else 200


def train(argv: Sequence[str]) -> None:
    if argv and argv[0] in ("-h", "--help", "--help-all"):
        print(f"usage: mgs train METHOD [options]\n\nMETHOD is one of {', '.join(METHODS)}.")
        print("`mgs train METHOD --help` shows its options.")
        return
    if not argv or argv[0].startswith("-"):
        raise UserError(f"mgs train needs a method first: {', '.join(METHODS)}")
    method = argv[0]
    if method not in METHODS:
        raise unknown("method", method, METHODS)
    config_type, trainer_type = METHODS[method]
    parser = Parser(
        (ModelOptions, DataOptions, RunOptions, config_type), f"mgs train {method}", SUMMARY.format(name=method.upper())
    )
    models, data, run, config = parser.parse(argv[1:], ["--output_dir", f"runs/{method}"])
    given = load_cost(run.cost) if run.cost else None  # a wrong name is said before a model is loaded
    folder = Path(config.output_dir)
    ranks = Ranks()  # the configuration has connected them
    ranks.from_first(lambda: check_folder(folder, run))

    set_seed(config.seed)
    model, tokenizer = models.load_or_make(data)
    data.check_task(model)
    run.settle(data.translates)
    cost = () if method == "mle" else (given or run.cost,)
    train_data, eval_data = load_data(data, run, config, tokenizer, model)
    split = "valid" if run.eval_data is None else Path(run.eval_data).name
    with tidied(folder, config):
        trainer = make_trainer(trainer_type, model, *cost, config, train_data, eval_data, tokenizer)
        settings = ranks.from_first(lambda: save_configuration(folder, method, run, models, data, config))
        record = RunRecord(folder, {"method": method, **settings}, split, run.outputs)
        random = models.model.startswith("new:")  # what such weights decode is of no interest, and long
        ranks.from_first(lambda: record.start(trainer, None if random else eval_data))
        trainer.train(resume_from_checkpoint=run.resume)
    trainer.save_model(str(folder))
    if not ranks.first:
        return
    if eval_data is not None:
        state = trainer.state
        if trainer.last_evaluation is None or state.best_global_step not in (None, state.global_step):
            trainer.figures(eval_data)  # the last evaluation, if any, was not that of the weights that were kept
        evaluation = trainer.last_evaluation
        figures_table({method.upper(): evaluation.figures}, evaluation.signature, "the final model")
    (folder / CARD).write_text(model_card(record.end(trainer, eval_data), folder), encoding="utf-8")
    print(f"model, tokenizer and logs: {printable(folder)}")


def make_trainer(trainer_type: Any, *parts: Any) -> Any:
    """The trainer. The library says only now, or later, what it does not have: places to report to, optimizers,
    schedules and their settings. So they are tried here, where nothing has been done yet."""
    *model_cost_config, train_data, eval_data, tokenizer = parts
    try:
        trainer = trainer_type(*model_cost_config, train_data, eval_dataset=eval_data, processing_class=tokenizer)
        trainer.create_optimizer_and_scheduler(1)
    except UserError:
        raise
    except (RuntimeError, TypeError, ValueError) as error:
        raise UserError(f"these options cannot be used: {first_line(error)}") from None
    trainer.optimizer = trainer.lr_scheduler = None
    return trainer


def load_data(data: DataOptions, run: RunOptions, config: Any, tokenizer: Any, model: Any) -> tuple[Any, Any]:
    """What is trained on, and what is evaluated on, if anything is."""
    held_out = {"split": "valid"} if run.eval_data is None else {"split": "all", "source": run.eval_data}
    train_split = "train" if run.eval_data is None else "all"
    train_data = data.examples(tokenizer, train_split, config.context, model)
    if config.eval_strategy == "no":
        return train_data, None
    eval_data = data.examples(tokenizer, context=config.context, model=model, limit=run.eval_examples, **held_out)
    return train_data, eval_data
