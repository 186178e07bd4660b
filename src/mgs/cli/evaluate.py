"""`mgs evaluate`: a table row for a model, and for text completion one for the human continuations."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from transformers import PreTrainedModel

from mgs.cli.arguments import Parser, read_yaml
from mgs.data import CONTEXT
from mgs.decoding import EVALUATION_LENGTH, Decoder
from mgs.errors import UserError, at_least
from mgs.experiments.inputs import DataOptions, ModelOptions, check_output, on_device
from mgs.metrics import evaluate_completion, evaluate_translation, human_figures
from mgs.models import load_model, vocabulary, window
from mgs.report.runs import YAML as CONFIGURATION
from mgs.report.tables import figures_table
from mgs.training.config import option
from mgs.training.outputs import output_lines, write_lines

#: What a run's own configuration says where no data are named: what it was trained on is what it is asked about.
OF_A_RUN = {"decoder", "context", *(f.name for f in fields(DataOptions))}


@dataclass
class EvaluateOptions:
    """The evaluation."""

    split: str | None = option(None, "Split: train, valid, test or all (default: all of a named file, else valid).")
    scorer: str | None = option(
        None, "Model for the LM columns (default: the small model if the model shares its vocabulary)."
    )
    decoder: str = option("greedy", "Decoding algorithm: greedy, beam-N, or sample[,top_k=..,top_p=..,temperature=..].")
    max_new_tokens: int | None = option(
        None, f"Decoding cap (default: {EVALUATION_LENGTH}; for translation twice the source)."
    )
    examples: int | None = option(None, "Prefixes to decode, at most; 0 for all (default: 200; all for translation).")
    context: int = option(CONTEXT, "Tokens of each sequence that are given.")
    seed: int = option(0, "Names the noise of a sampling decoder.")
    json: str | None = option(None, "Also write the figures to this file.")
    outputs: str | None = option(None, "Also write every output to this file, a JSON object a line.")

    def __post_init__(self) -> None:
        at_least(0, examples=self.examples)
        at_least(1, max_new_tokens=self.max_new_tokens)
        check_output(self.json)
        check_output(self.outputs)


def evaluate(argv: Sequence[str]) -> None:
    parser = Parser(
        (ModelOptions, DataOptions, EvaluateOptions), "mgs evaluate", "Decode held-out data and print the figures."
    )
    models, data, options = parser.parse(argv)
    run = configuration_of(models.model)
    told = read_yaml(str(run)) if data.data is None and run.is_file() else {}
    held_out = told.get("eval_data")  # with it, all of the data was trained on
    if told:
        known = {name: value for name, value in told.items() if name in OF_A_RUN} | {
            "data": held_out or told.get("data")
        }
        models, data, options = parser.parse(argv, parser.from_mapping(known))
    decoder = Decoder.parse(options.decoder)
    model, tokenizer = models.load()
    data.check_task(model)
    whole = held_out if told else (Path(data.source).is_file() or "," in data.source)
    split = options.split or ("all" if whole else "valid")
    limit = options.examples if options.examples is not None else (0 if data.translates else 200)
    examples = data.examples(tokenizer, split, options.context, model, limit)
    if data.translates:
        result = evaluate_translation(model, tokenizer, examples, decoder, options.max_new_tokens, options.seed)
        rows = {models.model: result.figures}
    else:
        scorer = (
            on_device(load_model(options.scorer, trust_remote_code=models.trust_remote_code))
            if options.scorer
            else default_scorer(models, model)
        )
        cap = options.max_new_tokens or EVALUATION_LENGTH
        check_scorer(scorer, model, max(map(len, examples)))
        result = evaluate_completion(model, tokenizer, examples, decoder, scorer, cap, options.seed)
        rows = {models.model: result.figures, "human": human_figures(tokenizer, examples, scorer)}
    figures_table({last_parts(name): figures for name, figures in rows.items()}, result.signature)
    if options.json:
        Path(options.json).write_text(json.dumps({"signature": result.signature, "rows": rows}, indent=2) + "\n")
    if options.outputs:
        lines = output_lines(tokenizer, examples, result.hypotheses, None, len(examples))
        write_lines(Path(options.outputs), lines)


def last_parts(name: str) -> str:
    """Of a long path only the end, which tells models apart: figures need the room."""
    return name if len(name) <= 30 else "…/" + "/".join(name.rstrip("/").split("/")[-2:]) if "/" in name else name


def configuration_of(model: str) -> Path:
    """Where the options of a run are kept, of whose folder or checkpoint this is the name."""
    folder = Path(model)
    return (folder.parent if folder.name.startswith("checkpoint-") else folder) / CONFIGURATION


def check_scorer(scorer: PreTrainedModel | None, model: PreTrainedModel, longest: int) -> None:
    """The scorer reads what the model writes, token by token."""
    if scorer is None or scorer is model:
        return
    if vocabulary(scorer) < vocabulary(model):
        raise UserError(
            f"the scorer knows {vocabulary(scorer)} types of token and the model {vocabulary(model)}: they need the "
            "same vocabulary (give a --scorer of the model's own kind)"
        )
    limit, needed = window(scorer), max(window(model) or longest, longest)
    if limit and limit < needed:
        raise UserError(f"the scorer's window of {limit} tokens is too small for sequences of up to {needed}")


def default_scorer(models: ModelOptions, model: PreTrainedModel) -> PreTrainedModel | None:
    """The small model scores itself and what was trained from it; other vocabularies have no default."""
    if models.model == "small":
        return model
    small = load_model("small")
    fits = vocabulary(small) == vocabulary(model) and (window(model) or math.inf) <= (window(small) or 0)
    return on_device(small) if fits else None
