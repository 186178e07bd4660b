"""Figures with signatures."""

from mgs.metrics.completion import (
    COLUMNS,
    Evaluation,
    decode_texts,
    evaluate_completion,
    human_figures,
    perplexity,
    sequence_figures,
    texts,
)
from mgs.metrics.translation import TRANSLATION_COLUMNS, evaluate_translation, translation_figures

__all__ = [
    "COLUMNS",
    "TRANSLATION_COLUMNS",
    "Evaluation",
    "decode_texts",
    "evaluate_completion",
    "evaluate_translation",
    "human_figures",
    "perplexity",
    "sequence_figures",
    "texts",
    "translation_figures",
]
