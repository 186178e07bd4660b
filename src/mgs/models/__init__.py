"""Models, tokenizers and likelihoods."""

from mgs.models.likelihood import log_likelihoods, score, token_log_likelihoods
from mgs.models.loading import (
    PRESETS,
    check_tokens,
    freeze_tables,
    load_model,
    load_tokenizer,
    new_model,
    searched_parameters,
    train_tokenizer,
    vocabulary,
    window,
)

__all__ = [
    "PRESETS",
    "check_tokens",
    "freeze_tables",
    "load_model",
    "load_tokenizer",
    "log_likelihoods",
    "new_model",
    "score",
    "searched_parameters",
    "token_log_likelihoods",
    "train_tokenizer",
    "vocabulary",
    "window",
]
