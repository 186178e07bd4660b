"""Examples and batches: what a model is trained on and evaluated with."""

from mgs.data.batches import BatchStream, token_batches
from mgs.data.completion import CONTEXT, Completions, as_completions, completions_from_lines, load_completions
from mgs.data.sources import load_lines

__all__ = [
    "CONTEXT",
    "BatchStream",
    "Completions",
    "as_completions",
    "completions_from_lines",
    "load_completions",
    "load_lines",
    "token_batches",
]
