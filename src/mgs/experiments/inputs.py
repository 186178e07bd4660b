"""Models, data and costs by name, as commands and experiments are given them."""

from __future__ import annotations

import importlib.util
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from mgs.costs import COST_NAMES, CostFunction
from mgs.data import Completions, load_completions, load_lines, load_pairs, load_rows, load_sentences
from mgs.errors import UserError, at_least, unknown
from mgs.models import PRESETS, check_tokens, load_model, load_tokenizer, train_tokenizer, window
from mgs.models.likelihood import is_encoder_decoder
from mgs.models.subwords import train_joint_bpe
from mgs.models.translation import TRANSLATION_PRESETS
from mgs.training.config import option

TASKS = ("completion", "translation")


@dataclass
class ModelOptions:
    """The model."""

    model: str = option("small", "Model: small (shipped), new:PRESET, a folder, a .gguf file or a hub name.")
    tokenizer: str | None = option(None, "Tokenizer, if it is not the model's own.")
    trust_remote_code: bool = option(False, "Run the Python code that comes with a model.")

    def load(self) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
        tokenizer = load_tokenizer(self.tokenizer or self.model, self.trust_remote_code)
        return on_device(load_model(self.model, tokenizer, self.trust_remote_code)), tokenizer

    def load_or_make(self, data: DataOptions) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
        """As `load`, but a new model without a tokenizer gets one trained on the data."""
        if not self.model.startswith("new:") or self.tokenizer is not None:
            return self.load()
        preset, sizes = self.model.removeprefix("new:"), PRESETS | TRANSLATION_PRESETS
        if preset not in sizes:
            raise unknown("preset", preset, sizes)
        translates = preset in TRANSLATION_PRESETS
        data.task = data.task or ("translation" if translates else "completion")
        vocabulary, lines = sizes[preset]["vocabulary"], data.lines("train")
        tokenizer = (
            train_joint_bpe(lines, vocabulary, data.lowercase) if translates else train_tokenizer(lines, vocabulary)
        )
        return on_device(load_model(self.model, tokenizer)), tokenizer


def on_device(model: PreTrainedModel) -> PreTrainedModel:
    """The model on the GPU, if there is one."""
    nn.Module.to(model, "cuda" if torch.cuda.is_available() else "cpu")
    return model


@dataclass
class PairOptions:
    """Sentence pairs, with --task translation: 'FILE.de,FILE.en', a tab-separated file, a folder, a `datasets` name."""

    languages: str | None = option(None, "What is translated into what, as in de-en: folders and datasets need it.")
    source_column: int = option(0, "Column of a tab-separated file to translate from, 0 or 1.")
    lowercase: bool = option(False, "Lowercase both sides.")
    unescape: bool = option(False, "Turn &apos; and the like into the characters they stand for.")
    max_length: int | None = option(
        None, "Leave out pairs with a side of more tokens (default: the model's window, where completion cuts lines)."
    )
    max_ratio: float | None = option(None, "Leave out pairs with one side over this many times the other.")


@dataclass
class DataOptions(PairOptions):
    """The data."""

    task: str | None = option(None, "Task: completion or translation (default: what the model is for).")
    data: str | None = option(
        None,
        "Sequences, one a line, or .jsonl rows: a file, a folder, a `datasets` name (default: docstrings, or cldr).",
    )
    drop_headings: bool = option(False, "Leave out lines that are headings, ` = Title = `.")
    min_length: int = option(0, "Leave out sequences of fewer tokens, the end counted.")

    def __post_init__(self) -> None:
        if self.task not in (None, *TASKS):
            raise unknown("task", self.task, TASKS)
        at_least(0, min_length=self.min_length)
        at_least(1, max_length=self.max_length)

    @property
    def translates(self) -> bool:
        return self.task == "translation"

    @property
    def source(self) -> str:
        return self.data or ("cldr" if self.translates else "docstrings")

    def check_task(self, model: nn.Module) -> None:
        """From the model, unless given; then it must fit."""
        encoder = is_encoder_decoder(model)
        self.task = self.task or ("translation" if encoder else "completion")
        if self.translates != encoder:
            kind = "an encoder-decoder" if encoder else "a causal"
            needed = "a causal model" if encoder else "an encoder-decoder, such as new:iwslt or a Marian model"
            raise UserError(f"the task {self.task!r} needs {needed}, and this is {kind} model")

    def examples(
        self,
        tokenizer: PreTrainedTokenizerBase,
        split: str,
        context: int,
        model: Any = None,
        limit: int | None = None,
        source: str | None = None,
    ) -> Completions:
        examples = self._examples(
            tokenizer, split, context, window(model) if model is not None else None, limit, source
        )
        if model is not None:
            check_tokens(model, (side for example in examples for side in (example.prefix, example.target)))
        return examples

    def _examples(
        self,
        tokenizer: PreTrainedTokenizerBase,
        split: str,
        context: int,
        longest: int | None,
        limit: int | None,
        source: str | None,
    ) -> Completions:
        common: dict[str, Any] = {"max_examples": limit or None, "min_length": self.min_length}
        if self.translates:
            common |= {"max_length": min((n for n in (self.max_length, longest) if n), default=None)}
            options = self.how_to_read() | {"max_ratio": self.max_ratio} | common
            return load_pairs(source or self.source, tokenizer, split, **options)
        options = {"context": context, "drop_headings": self.drop_headings, "max_length": longest} | common
        return load_completions(source or self.source, tokenizer, split, **options)

    def lines(self, split: str) -> list[str]:
        """The text alone, to train a tokenizer on."""
        if not self.translates:
            if load_rows(self.source, split) is not None:
                raise UserError(f"a tokenizer is trained on lines of text, not on rows as in {self.source!r}: name one")
            return list(load_lines(self.source, split))
        return [side for pair in load_sentences(self.source, split, **self.how_to_read()) for side in pair]

    def how_to_read(self) -> dict[str, Any]:
        return {
            "languages": self.languages,
            "source": self.source_column,
            "lowercase": self.lowercase,
            "unescape": self.unescape,
        }


def check_output(file: str | None) -> None:
    """A file that cannot be written is said before the work, not after it."""
    if file is not None and (Path(file).is_dir() or not os.access(Path(file).parent, os.W_OK)):
        raise UserError(f"cannot write to {file!r}: give the name of a file in a folder that exists")


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
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # also SystemExit, of a script that was not meant to be imported
        raise UserError(f"{file} cannot be imported: {type(error).__name__}: {error}") from None
    found = vars(module).get(function)
    if not callable(found):
        functions = [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]
        raise unknown(f"function in {file}", function, functions)
    return found
