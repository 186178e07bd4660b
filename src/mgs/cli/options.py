"""Options that several commands share, and the objects they name."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from mgs.costs import COST_NAMES, CostFunction
from mgs.data import Completions, load_completions
from mgs.errors import UserError, unknown
from mgs.models import load_model, load_tokenizer, window
from mgs.training.config import option


@dataclass
class ModelOptions:
    """The model."""

    model: str = option("small", "Model: small (shipped), new:PRESET, a folder, a .gguf file or a hub name.")
    tokenizer: str | None = option(None, "Tokenizer, if it is not the model's own.")

    def load(self) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
        tokenizer = load_tokenizer(self.tokenizer or self.model)
        return on_device(load_model(self.model, tokenizer)), tokenizer


def on_device(model: PreTrainedModel) -> PreTrainedModel:
    """The model on the GPU, if there is one."""
    nn.Module.to(model, "cuda" if torch.cuda.is_available() else "cpu")
    return model


@dataclass
class DataOptions:
    """The data."""

    data: str = option("docstrings", "Sequences, one a line: docstrings, a file, a folder, or a `datasets` name.")
    drop_headings: bool = option(False, "Leave out lines that are headings, ` = Title = `.")
    min_length: int = option(0, "Leave out sequences of fewer tokens, the end counted.")

    def completions(
        self,
        tokenizer: PreTrainedTokenizerBase,
        split: str,
        context: int,
        model: Any = None,
        limit: int | None = None,
        source: str | None = None,
    ) -> Completions:
        return load_completions(
            source or self.data,
            tokenizer,
            split,
            context=context,
            drop_headings=self.drop_headings,
            max_examples=limit or None,
            max_length=window(model) if model is not None else None,
            min_length=self.min_length,
        )


def load_cost(name: str) -> str | CostFunction:
    """A cost by name, or `file.py:function` for the user's own."""
    file, colon, function = name.rpartition(":")
    if not colon:
        if name not in COST_NAMES:
            raise unknown("cost", name, (*COST_NAMES, "FILE.py:FUNCTION"))
        return name
    path = Path(file)
    if not path.is_file():
        raise UserError(f"no such file for the cost {name!r}: give FILE.py:FUNCTION")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise UserError(f"{file!r} is not a Python file: give FILE.py:FUNCTION")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise UserError(f"{file} cannot be imported: {type(error).__name__}: {error}") from None
    found = getattr(module, function, None)
    if not callable(found):
        functions = [n for n in vars(module) if callable(getattr(module, n)) and not n.startswith("_")]
        raise unknown(f"function in {file}", function, functions)
    return found
