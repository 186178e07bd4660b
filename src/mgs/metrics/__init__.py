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

__all__ = [
    "COLUMNS",
    "Evaluation",
    "decode_texts",
    "evaluate_completion",
    "human_figures",
    "perplexity",
    "sequence_figures",
    "texts",
]
