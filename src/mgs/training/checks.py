"""What a trainer is given, looked at before anything is made of it: each mistake is a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedTokenizerBase

from mgs.data import Completions
from mgs.errors import UserError
from mgs.models import check_tokens, searched_parameters, window
from mgs.models.likelihood import is_encoder_decoder

#: Argument of the library's trainer that nothing here reads → what does its work.
INSTEAD = {
    "compute_metrics": "a cost is what evaluations compute beside their own figures",
    "preprocess_logits_for_metrics": "a cost is what evaluations compute beside their own figures",
    "compute_loss_func": "a cost is what is trained for",
    "data_collator": "batch_tokens and by_length say how batches are made",
    "model_init": "give the model itself",
}


def check_given(trainer: Any, model: Any, args: Any, others: Mapping[str, Any]) -> None:
    """Each argument is of its kind."""
    name, config_type = type(trainer).__name__, trainer.config_type.__name__
    if not isinstance(model, nn.Module):
        raise UserError(f"{name} takes a model, got {kind(model)}: load one, e.g. with mgs.load_model(name)")
    if not getattr(model, "can_generate", bool)():
        raise UserError(
            f"{name} takes a model that can generate, got {kind(model)}: load it with AutoModelForCausalLM or "
            "AutoModelForSeq2SeqLM"
        )
    if not isinstance(args, trainer.config_type):
        raise UserError(f"{name} takes its options as `args`, of the type {config_type}; got {kind(args)}")
    for unused in INSTEAD:
        if others.get(unused) is not None:
            raise UserError(f"{unused} is not used by these trainers: {INSTEAD[unused]}")
    tokenizer = others.get("processing_class")
    if not isinstance(tokenizer, PreTrainedTokenizerBase):
        got = "" if tokenizer is None else f", got {kind(tokenizer)}"
        raise UserError(f"a trainer needs the model's tokenizer{got}: pass processing_class=tokenizer")


def check_parameters(model: nn.Module) -> None:
    """There must be some to train, in a precision that keeps what training adds to them."""
    searched = searched_parameters(model)
    if not searched:
        raise UserError("no parameter of the model has requires_grad: there is nothing to train")
    coarse = next((p.dtype for p in searched.values() if p.dtype in (torch.float16, torch.bfloat16)), None)
    if coarse is not None:
        raise UserError(
            f"the model's weights are {coarse}, in which most of an update is rounded away: load it with "
            "dtype=torch.float32 (gradients can still be in bf16, with bf16=True), or train a LoRA of it"
        )


def check_data(model: Any, data: Completions) -> None:
    """Sequences longer than the model's window, or of tokens that it does not know, would fail deep inside it."""
    apart = is_encoder_decoder(model)
    lengths = [max(len(e.prefix), len(e.target)) if apart else len(e) for e in data.examples]
    limit = window(model)
    if limit and max(lengths) > limit:
        raise UserError(
            f"{sum(length > limit for length in lengths)} of {len(lengths)} sequences do not fit the model's window of "
            f"{limit} tokens, the longest of {max(lengths)}: cut them or leave them out (lines of text are cut by "
            f"mgs.data.completions_from_lines(lines, tokenizer, context, max_length={limit}))"
        )
    check_tokens(model, (side for example in data.examples for side in (example.prefix, example.target)))


def kind(given: Any) -> str:
    """What a wrong argument is, in a word or two."""
    return repr(given) if given is None or isinstance(given, str) else f"a {type(given).__name__}"
