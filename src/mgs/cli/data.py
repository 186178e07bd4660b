"""`mgs data`: what a file becomes. Pairs, what was discarded, lengths, and the human continuations' figures."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedTokenizerBase

from mgs.cli.arguments import Parser
from mgs.data import CONTEXT, Completions, Translations
from mgs.experiments.inputs import DataOptions
from mgs.metrics import human_figures, texts
from mgs.models import load_tokenizer
from mgs.models.subwords import train_joint_bpe
from mgs.report.escape import printable
from mgs.training.config import option


@dataclass
class ShowOptions:
    """How to show it."""

    tokenizer: str = option("small", "Tokenizer: small (shipped), a folder, a hub name, or new: a BPE of the data.")
    split: str = option("all", "Split of the data: train, valid, test or all.")
    context: int = option(CONTEXT, "Tokens of each sequence that are given.")
    json: bool = option(False, "Print JSON instead of a table.")


def data(argv: Sequence[str]) -> None:
    parser = Parser((DataOptions, ShowOptions), "mgs data", "Show what a file becomes.")
    source, options = parser.parse(argv)
    tokenizer = (
        train_joint_bpe(source.lines(options.split), lowercase=source.lowercase)
        if options.tokenizer == "new"
        else load_tokenizer(options.tokenizer)
    )
    examples = source.examples(tokenizer, options.split, options.context)
    summary = (
        summarise_pairs(examples)
        if isinstance(examples, Translations)
        else summarise(examples, tokenizer, options.context)
    )
    if options.json:
        print(json.dumps(summary, indent=2))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(title=printable(examples.signature), title_justify="left", show_header=False)
    for name, value in summary.items():
        if isinstance(value, dict):
            value = ", ".join(f"{key} {part:.4g}" for key, part in value.items())
        table.add_row(name, f"{value:,}" if isinstance(value, int) else str(value))
    first = examples[0]
    given, wanted = ("source", "target") if source.translates else ("prefix", "continuation")
    table.add_row(f"first {given}", printable(texts(tokenizer, [first.prefix])[0]))
    table.add_row(f"its {wanted}", printable(texts(tokenizer, [first.target])[0])[:300])
    Console(highlight=False, markup=False, emoji=False).print(table)


def summarise_pairs(pairs: Translations) -> dict[str, Any]:
    """The same for sentence pairs."""
    source, target = pairs.mean_lengths
    longest = {"source": max(len(e.prefix) for e in pairs), "target": max(len(e.target) for e in pairs)}
    return {
        "pairs": len(pairs),
        "discarded": pairs.discarded or 0,
        "mean_length": {"source": source, "target": target},
        "max_length": longest,
    }


def summarise(completions: Completions, tokenizer: PreTrainedTokenizerBase, context: int) -> dict[str, Any]:
    """Counts and figures, as plain values."""
    lengths = sorted(len(example.target) for example in completions)
    figures = human_figures(tokenizer, completions)
    return {
        "pairs": len(completions),
        "discarded": completions.num_discarded,
        "context": context,
        "target_length": {
            "mean": sum(lengths) / len(lengths),
            "min": lengths[0],
            "median": lengths[len(lengths) // 2],
            "max": lengths[-1],
        },
        "human": {name: figures[name] for name in ("nontermination", "repetition", "length")},
    }
