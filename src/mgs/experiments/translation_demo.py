"""The demo's other experiment: a translation model from nothing, then MGS, MRT and PG from there, beside two controls.

Text is CLDR's, German into English (see `mgs.data.cldr`). The controls are maximum likelihood itself, trained on for as
many updates and for about as much time as MGS: what a search gains is what it gains over them.
"""

from __future__ import annotations

import copy
import time
from pathlib import Path
from typing import Any

import torch

from mgs.data import load_pairs, load_sentences
from mgs.experiments.demo import DemoResult
from mgs.metrics import evaluate_translation, texts
from mgs.models import new_model
from mgs.models.subwords import train_joint_bpe
from mgs.training import METHODS
from mgs.training.outputs import evaluations

COST = "sbleu"
PRESET, VOCABULARY = "one-layer", 1_000
TEST_PAIRS = 300
WATCHED_PAIRS = 100  # decoded during training, for the curves
CAP = 100
START = "MLE"
UPDATES = 60  # of every method
UPDATES_AS_LONG = 600  # of maximum likelihood, in about the time that MGS takes for its own

#: How the start is trained: the recipe for IWSLT, scaled to this size.
FROM_SCRATCH: dict[str, Any] = {
    "max_steps": 2_500,
    "eval_steps": 500,
    "learning_rate": 5e-3,
    "lr_scheduler_type": "inverse_sqrt",
    "warmup_steps": 300,
    "label_smoothing_factor": 0.1,
}
#: What each method is given beyond the library's defaults; printed with the table.
RECIPES: dict[str, tuple[str, dict[str, Any]]] = {
    "MLE, as many updates": ("mle", {"max_steps": UPDATES, "eval_steps": 20, "learning_rate": 1e-3}),
    "MLE, as long": ("mle", {"max_steps": UPDATES_AS_LONG, "eval_steps": 200, "learning_rate": 1e-3}),
    "MGS-SBLEU": (
        "mgs",
        {"max_steps": UPDATES, "eval_steps": 20, "learning_rate": 1e-3, "temperature": "100", "gradient_norm": 0.1},
    ),
    "MRT-SBLEU (+MLE 0.1)": ("mrt", {"max_steps": UPDATES, "eval_steps": 20, "learning_rate": 2e-4}),
    "PG-SBLEU (+MLE 0.1)": ("pg", {"max_steps": UPDATES, "eval_steps": 20, "learning_rate": 1e-4}),
}
SHARED: dict[str, Any] = {
    "batch_tokens": 1_000,
    "by_length": True,
    "max_new_tokens": 60,
    "eval_max_new_tokens": CAP,
    "adam_beta2": 0.98,
    "weight_decay": 0.0,
    "save_strategy": "no",
    "keep_best": False,
    "report_to": "none",
}


def run_translation_demo(out: Path, seed: int = 0, data: str = "cldr", say: Any = print) -> DemoResult:
    """Train the start, each method from it, and evaluate them all on test pairs."""
    sentences = load_sentences(data, "train")
    tokenizer = train_joint_bpe((side for pair in sentences for side in pair), VOCABULARY)
    train = load_pairs(data, tokenizer, "train")
    watched = load_pairs(data, tokenizer, "valid", max_examples=WATCHED_PAIRS)
    test = load_pairs(data, tokenizer, "test", max_examples=TEST_PAIRS)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        start = new_model(PRESET, tokenizer)
    result = DemoResult("", {}, prefixes=texts(tokenizer, [e.prefix for e in test]))
    for name, (method, options) in ({START: ("mle", FROM_SCRATCH)} | RECIPES).items():
        model = start if name == START else copy.deepcopy(start)
        say(f"{name}: {options['max_steps']:,} updates of a model with {model.num_parameters():,} parameters")
        folder = out / name.split(" (")[0].replace(", ", "-").replace(" ", "-").lower()
        config_type, trainer_type = METHODS[method]
        config = config_type(output_dir=str(folder), seed=seed, **SHARED, **options)
        cost = () if method == "mle" else (COST,)
        trainer = trainer_type(model, *cost, config, train, eval_dataset=watched, processing_class=tokenizer)
        began = time.monotonic()
        trainer.train()
        result.seconds[name] = time.monotonic() - began
        trainer.save_model(str(folder))
        evaluation = evaluate_translation(model, tokenizer, test, max_new_tokens=CAP)
        result.rows[name], result.continuations[name] = evaluation.figures, evaluation.hypotheses
        result.signature = evaluation.signature
        result.settings[name] = {**options, **SHARED}
        result.curves[name] = evaluations(trainer.state.log_history)
    result.continuations["Human"] = texts(tokenizer, [example.target for example in test])
    return result


def verdict(result: DemoResult) -> str:
    """What the table says of MGS beside MLE, favourable or not."""
    start, same, long = (result.rows[name]["sbleu"] for name in (START, "MLE, as many updates", "MLE, as long"))
    found = result.rows["MGS-SBLEU"]["sbleu"]
    faults = [f"its start, {start:.1f}"] * (found <= start) + [f"MLE on as many updates, {same:.1f}"] * (found <= same)
    faults += [f"MLE on as much time, {long:.1f}"] * (found <= long)
    said = f"MGS-SBLEU: sentence BLEU {start:.1f} → {found:.1f}."
    return said + (f" It did NOT beat {', nor '.join(faults)}." if faults else " It beat both controls.")
