"""The demo's other experiment: a translation model from nothing, then MGS, MRT and PG from there, beside two controls.

Text is CLDR's, German into English (see `mgs.data.cldr`). The controls are maximum likelihood itself, trained on for as
many updates and for about as much time as MGS: what a search gains is what it gains over them.
"""

from __future__ import annotations

import copy
import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

import mgs
from mgs.costs import edit, sbleu
from mgs.costs.meteor import meteor
from mgs.costs.translation import bleu, signature
from mgs.costs.wordnet import folder as wordnet
from mgs.data import Translations, load_pairs, load_sentences
from mgs.decoding import Decoder
from mgs.errors import UserError
from mgs.metrics import Evaluation, decode_texts, perplexity, texts
from mgs.models import new_model
from mgs.models.subwords import train_joint_bpe
from mgs.training import MGSConfig, MGSTrainer, MLEConfig, MLETrainer, MRTConfig, MRTTrainer, PGConfig, PGTrainer
from mgs.types import Text

COST = "sbleu"
PRESET, VOCABULARY = "one-layer", 1_000
TEST_PAIRS = 300
WATCHED_PAIRS = 100  # decoded during training, for the curves
CAP, BEAMS = 100, 5
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
RECIPES: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "MLE, as many updates": (MLETrainer, MLEConfig, {"max_steps": UPDATES, "eval_steps": 20, "learning_rate": 1e-3}),
    "MLE, as long": (MLETrainer, MLEConfig, {"max_steps": UPDATES_AS_LONG, "eval_steps": 200, "learning_rate": 1e-3}),
    "MGS-SBLEU": (
        MGSTrainer,
        MGSConfig,
        {"max_steps": UPDATES, "eval_steps": 20, "learning_rate": 1e-3, "temperature": "100", "gradient_norm": 0.1},
    ),
    "MRT-SBLEU (+MLE 0.1)": (MRTTrainer, MRTConfig, {"max_steps": UPDATES, "eval_steps": 20, "learning_rate": 2e-4}),
    "PG-SBLEU (+MLE 0.1)": (PGTrainer, PGConfig, {"max_steps": UPDATES, "eval_steps": 20, "learning_rate": 1e-4}),
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


@dataclass
class TranslationDemo:
    """Rows of the table by method, with what led to them."""

    signature: str
    rows: dict[str, dict[str, float]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)  # of training
    curves: dict[str, list[dict[str, float]]] = field(default_factory=dict)  # watched figures over updates
    translations: dict[str, list[Text]] = field(default_factory=dict)
    settings: dict[str, dict[str, Any]] = field(default_factory=dict)
    sources: list[Text] = field(default_factory=list)

    def save(self, file: Path) -> None:
        rows = [{"method": name, **row, "seconds": self.seconds.get(name)} for name, row in self.rows.items()]
        content = {"signature": self.signature, "rows": rows, "settings": self.settings, "curves": self.curves}
        file.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def run_translation_demo(out: Path, seed: int = 0, data: str = "cldr", say: Any = print) -> TranslationDemo:
    """Train the start, each method from it, and evaluate them all on test pairs."""
    sentences = load_sentences(data, "train")
    tokenizer = train_joint_bpe((side for pair in sentences for side in pair), VOCABULARY)
    train = load_pairs(data, tokenizer, "train")
    watched = load_pairs(data, tokenizer, "valid", max_examples=WATCHED_PAIRS)
    test = load_pairs(data, tokenizer, "test", max_examples=TEST_PAIRS)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        start = new_model(PRESET, tokenizer)
    result = TranslationDemo(figures_signature(test), sources=texts(tokenizer, [e.prefix for e in test]))

    first = {START: (MLETrainer, MLEConfig, FROM_SCRATCH)}
    for name, (trainer_type, config_type, options) in (first | RECIPES).items():
        model = start if name == START else copy.deepcopy(start)
        say(f"{name}: {options['max_steps']:,} updates of a model with {model.num_parameters():,} parameters")
        folder = out / name.split(" (")[0].replace(", ", "-").replace(" ", "-").lower()
        config = config_type(output_dir=str(folder), seed=seed, **SHARED, **options)
        cost = () if trainer_type is MLETrainer else (COST,)
        trainer = trainer_type(model, *cost, config, train, eval_dataset=watched, processing_class=tokenizer)
        began = time.monotonic()
        trainer.train()
        result.seconds[name] = time.monotonic() - began
        trainer.save_model(str(folder))
        evaluation = evaluate(model, tokenizer, test)
        result.rows[name], result.translations[name] = evaluation.figures, evaluation.hypotheses
        result.settings[name] = {**options, **SHARED}
        result.curves[name] = watched_figures(trainer.state.log_history)
    result.translations["Human"] = texts(tokenizer, [example.target for example in test])
    return result


def evaluate(model: PreTrainedModel | nn.Module, tokenizer: PreTrainedTokenizerBase, data: Translations) -> Evaluation:
    """The table's columns: BLEU with beam search, the others with greedy search; METEOR where WordNet is found."""
    sources = [example.prefix for example in data.examples]
    references = texts(tokenizer, [example.target for example in data.examples])
    beams = decode_texts(model, tokenizer, sources, Decoder(beams=BEAMS), CAP)
    greedy = decode_texts(model, tokenizer, sources, Decoder(), CAP)
    figures = {"bleu": 100 * (1 - bleu(beams, references)), "sbleu": 100 * (1 - _mean(sbleu(greedy, references)))}
    if has_wordnet():
        figures["meteor"] = 100 * (1 - _mean(meteor(greedy, references)))
    figures["edit"] = _mean(edit(greedy, references))
    figures["length"] = _mean([len(hypothesis.token_ids) for hypothesis in greedy])
    figures["perplexity"] = perplexity(model, data)
    return Evaluation(figures, figures_signature(data), greedy)


def figures_signature(data: Translations) -> str:
    meteor_part = signature("meteor") if has_wordnet() else "none, for want of WordNet"
    first = f"data:{data.signature}|decoder:greedy|bleu:beam-{BEAMS}|cap:{CAP}|mgs:{mgs.__version__}"
    return "\n".join([first, f"bleu {signature('bleu')}", f"sbleu {signature('sbleu')}", f"meteor {meteor_part}"])


def has_wordnet() -> bool:
    try:
        return wordnet().is_dir()
    except UserError:
        return False


def watched_figures(history: list[dict[str, float]]) -> list[dict[str, float]]:
    """The evaluations in a trainer's log, without the prefix."""
    evaluations = [entry for entry in history if "eval_perplexity" in entry]
    return [{name.removeprefix("eval_"): value for name, value in entry.items()} for entry in evaluations]


def verdict(result: TranslationDemo) -> str:
    """What the table says of MGS beside MLE, favourable or not."""
    start, same, long = (result.rows[name]["sbleu"] for name in (START, "MLE, as many updates", "MLE, as long"))
    found = result.rows["MGS-SBLEU"]["sbleu"]
    faults = [f"its start, {start:.1f}"] * (found <= start) + [f"MLE on as many updates, {same:.1f}"] * (found <= same)
    faults += [f"MLE on as much time, {long:.1f}"] * (found <= long)
    said = f"MGS-SBLEU: sentence BLEU {start:.1f} → {found:.1f}."
    return said + (f" It did NOT beat {', nor '.join(faults)}." if faults else " It beat both controls.")


def _mean(values: list[float] | list[int]) -> float:
    return sum(values) / len(values)
