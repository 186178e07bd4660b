"""Examples and batches: what a model is trained on and evaluated with."""

from mgs.data.batches import BatchStream, drawn_apart, packed, token_batches
from mgs.data.completion import CONTEXT, Completions, as_completions, completions_from_lines, load_completions
from mgs.data.sources import load_lines, load_rows
from mgs.data.translation import Translations, load_pairs, load_sentences, translations_from_pairs

__all__ = [
    "CONTEXT",
    "BatchStream",
    "Completions",
    "Translations",
    "as_completions",
    "completions_from_lines",
    "drawn_apart",
    "load_completions",
    "load_lines",
    "load_pairs",
    "load_rows",
    "load_sentences",
    "packed",
    "token_batches",
    "translations_from_pairs",
]
