"""The demo's experiment: one starting model, three methods on top of it, one table.

Everything is small but nothing is different in kind: the same trainers, costs and figures as for a real model.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn
from transformers import PreTrainedTokenizerBase

from mgs.data import Completions, load_completions
from mgs.decoding import Decoder
from mgs.metrics import COLUMNS, TRANSLATION_COLUMNS, Evaluation, evaluate_completion, human_figures, texts
from mgs.models import load_model, load_tokenizer
from mgs.training import MGSConfig, MGSTrainer, MRTConfig, MRTTrainer, PGConfig, PGTrainer
from mgs.training.outputs import evaluations
from mgs.types import Text

COST = "lm"
TEST_PREFIXES = 300
WATCHED_PREFIXES = 48  # decoded during training, for the curves
CAP = 200
MIN_LENGTH = 42  # tokens of a sequence: what the small model was trained on

#: What each method is given beyond the defaults; printed with the table. MGS has the recipe, with as many rows
#: as two cores can do.
RECIPES: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "MGS-LM": (
        MGSTrainer,
        MGSConfig,
        {
            "recipe": "dependable",
            "max_steps": 6,
            "eval_steps": 1,
            "batch_tokens": 65_536,
            "guide_prefixes": 96,
            "score_prefixes": 48,
        },
    ),
    "MRT-LM (+MLE 0.1)": (
        MRTTrainer,
        MRTConfig,
        {"max_steps": 15, "eval_steps": 5, "learning_rate": 2e-4, "length_normalised": True},
    ),
    "PG-LM (+MLE 0.1)": (PGTrainer, PGConfig, {"max_steps": 20, "eval_steps": 5, "learning_rate": 2e-4}),
}
SHARED = {
    "max_new_tokens": 100,
    "eval_max_new_tokens": CAP,
    "save_strategy": "no",
    "keep_best": False,
    "report_to": "none",
}


@dataclass
class DemoResult:
    """Rows of the table by method, with what led to them."""

    signature: str
    rows: dict[str, dict[str, float]]
    curves: dict[str, list[dict[str, float]]] = field(default_factory=dict)  # watched figures over updates
    continuations: dict[str, list[Text]] = field(default_factory=dict)
    settings: dict[str, dict[str, Any]] = field(default_factory=dict)
    prefixes: list[Text] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)  # of training

    def save(self, file: Path) -> None:
        columns = [c for c in (*TRANSLATION_COLUMNS, *COLUMNS) if any(c in figures for figures in self.rows.values())]
        rows = [{"method": name} | {c: row.get(c) for c in dict.fromkeys(columns)} for name, row in self.rows.items()]
        content = {"signature": self.signature, "rows": rows, "settings": self.settings, "curves": self.curves}
        content |= {"seconds": self.seconds} if self.seconds else {}
        file.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def run_demo(out: Path, seed: int = 0, data: str = "docstrings", model: str = "small", say: Any = print) -> DemoResult:
    """Evaluate the starting model, train each method from it, evaluate each, and return it all."""
    tokenizer = load_tokenizer(model)
    start = load_model(model)
    train = load_completions(data, tokenizer, "train", max_length=512, min_length=MIN_LENGTH)
    watched = load_completions(
        data, tokenizer, "valid", max_examples=WATCHED_PREFIXES, max_length=512, min_length=MIN_LENGTH
    )
    test = load_completions(data, tokenizer, "test", max_examples=TEST_PREFIXES, max_length=512, min_length=MIN_LENGTH)

    say(f"MLE: the starting model, {sum(p.numel() for p in start.parameters()):,} parameters, on {len(test)} prefixes")
    base = evaluate(start, tokenizer, test, start)
    result = DemoResult(base.signature, {"MLE": base.figures}, prefixes=texts(tokenizer, [e.prefix for e in test]))
    result.continuations["MLE"] = base.hypotheses
    first = evaluate(start, tokenizer, watched, start).figures
    for name, (trainer_type, config_type, options) in RECIPES.items():
        say(f"{name}: {options['max_steps']} updates")
        folder = out / name.split(" ")[0].lower()
        config = config_type(output_dir=str(folder), seed=seed, **SHARED, **options)
        trainer = trainer_type(load_model(model), COST, config, train, eval_dataset=watched, processing_class=tokenizer)
        trainer.train()
        trainer.save_model(str(folder))
        evaluation = evaluate(trainer.model, tokenizer, test, trainer.scorer)
        result.rows[name] = evaluation.figures
        result.continuations[name] = evaluation.hypotheses
        result.settings[name] = {**options, **SHARED}
        result.curves[name] = [{"step": 0.0, **first}, *evaluations(trainer.state.log_history)]
    result.rows["Human"] = human_figures(tokenizer, test, start)
    result.continuations["Human"] = texts(tokenizer, [example.target for example in test])
    return result


def evaluate(model: nn.Module, tokenizer: PreTrainedTokenizerBase, data: Completions, scorer: nn.Module) -> Evaluation:
    return evaluate_completion(model, tokenizer, data, Decoder(), scorer, CAP)


def worst_first(texts: list[Text], num: int) -> list[int]:
    """The rule for examples: the prefixes whose continuations by the starting model are longest, ties by order."""
    return sorted(range(len(texts)), key=lambda i: (-len(texts[i].token_ids), i))[:num]
