"""`mgs`: train sequence models for your cost under your decoder.

MLE-guided parameter search (MGS) and what it is compared to, on any Hugging Face causal model.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from mgs.costs import Cost, LanguageModelCost
    from mgs.data import Completions, load_completions
    from mgs.decoding import Decoder
    from mgs.metrics import evaluate_completion
    from mgs.models import load_model, load_tokenizer
    from mgs.search import (
        Proposal,
        ProposalForm,
        Temperature,
        effective_sample_size,
        importance_weights,
        mgs_update,
    )
    from mgs.training import MGSConfig, MGSTrainer, MLEConfig, MLETrainer, MRTConfig, MRTTrainer, PGConfig, PGTrainer
    from mgs.types import Batch, Example, Text

#: Public name → module. Imported when first used, so that `import mgs` and `mgs --help` are quick.
_PUBLIC = {
    "Batch": "types",
    "Completions": "data",
    "Cost": "costs",
    "Decoder": "decoding",
    "Example": "types",
    "LanguageModelCost": "costs",
    "MGSConfig": "training",
    "MGSTrainer": "training",
    "MLEConfig": "training",
    "MLETrainer": "training",
    "MRTConfig": "training",
    "MRTTrainer": "training",
    "PGConfig": "training",
    "PGTrainer": "training",
    "Proposal": "search",
    "ProposalForm": "search",
    "Temperature": "search",
    "Text": "types",
    "effective_sample_size": "search",
    "evaluate_completion": "metrics",
    "importance_weights": "search",
    "load_completions": "data",
    "load_model": "models",
    "load_tokenizer": "models",
    "mgs_update": "search",
}

__all__ = [
    "Batch",
    "Completions",
    "Cost",
    "Decoder",
    "Example",
    "LanguageModelCost",
    "MGSConfig",
    "MGSTrainer",
    "MLEConfig",
    "MLETrainer",
    "MRTConfig",
    "MRTTrainer",
    "PGConfig",
    "PGTrainer",
    "Proposal",
    "ProposalForm",
    "Temperature",
    "Text",
    "effective_sample_size",
    "evaluate_completion",
    "importance_weights",
    "load_completions",
    "load_model",
    "load_tokenizer",
    "mgs_update",
]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(importlib.import_module(f"mgs.{_PUBLIC[name]}"), name)
    raise AttributeError(f"module 'mgs' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
