"""Text completion: each sequence becomes a prefix of k tokens and the continuation that follows it."""

from __future__ import annotations

import math
import reprlib
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from os import PathLike
from typing import Any

from transformers import PreTrainedTokenizerBase

from mgs.data.sources import load_lines, load_rows
from mgs.errors import UserError
from mgs.types import Example

CONTEXT = 10  # k of the paper


@dataclass(frozen=True)
class Completions(Sequence[Example]):
    """Examples with a word on where they come from, for signatures."""

    examples: list[Example]
    num_discarded: int = 0
    name: str = "data"

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return replace(self, examples=self.examples[index])
        return self.examples[index]

    @property
    def signature(self) -> str:
        return f"{self.name}#{len(self)}"


def load_completions(
    source: str,
    tokenizer: PreTrainedTokenizerBase,
    split: str = "all",
    *,
    context: int = CONTEXT,
    drop_headings: bool = False,
    max_examples: int | None = None,
    max_length: int | None = None,
    min_length: int = 0,
) -> Completions:
    """Examples from a source (see `mgs.data.sources`); `min_length` leaves out sequences of fewer tokens."""
    name = source.rstrip("/").split("/")[-1]
    name += f"@{split}" if split != "all" else ""
    name += f"≥{min_length}" if min_length else ""
    rows = load_rows(source, split)
    if rows is not None:
        return _fitting(as_completions(rows, tokenizer, context), name, max_length, min_length)[:max_examples]
    name += "-headings" if drop_headings else ""
    lines = load_lines(source, split, drop_headings)
    completions = completions_from_lines(lines, tokenizer, context, name, max_length, min_length=min_length)
    return completions[:max_examples]


def _fitting(found: Completions, name: str, max_length: int | None, min_length: int) -> Completions:
    """Those whose prefix and target together have so many tokens: an answer that is cut would be another."""
    kept = [e for e in found if min_length <= len(e.prefix) + len(e.target) <= (max_length or math.inf)]
    if not kept:
        raise UserError(
            f"none of the {len(found)} rows of {name!r} has {min_length} to {max_length} tokens, the model's window"
        )
    return Completions(kept, found.num_discarded + len(found) - len(kept), name)


def completions_from_lines(
    lines: Sequence[str],
    tokenizer: PreTrainedTokenizerBase,
    context: int = CONTEXT,
    name: str = "lines",
    max_length: int | None = None,
    columns: Sequence[dict[str, Any]] | None = None,
    min_length: int = 0,
) -> Completions:
    """Split each line after `context` tokens; sequences of `context` tokens or fewer, ⟨eos⟩ counted, are discarded.

    Sequences longer than `max_length` (the model's window) are cut there; cut ones have no ⟨eos⟩ to learn.
    """
    if context < 1:
        raise UserError(f"context must be at least 1 token, got {context}")
    shortest = max(context + 1, min_length)
    eos = end_of_sequence(tokenizer)
    space = " " if marks_spaces(tokenizer) else ""
    # A line that spells out "<|endoftext|>" means the letters, not the end.
    options = {"add_special_tokens": False, "split_special_tokens": True, "verbose": False}
    rows = tokenizer([space + line for line in lines], **options)["input_ids"]
    examples = [
        Example(tuple(ids[:context]), tuple(ids[context:]), extra)
        for ids, extra in zip(([*row, eos][:max_length] for row in rows), columns or [{} for _ in rows], strict=True)
        if len(ids) >= shortest
    ]
    if not examples:
        raise UserError(
            f"all {len(lines)} sequences of {name!r} are too short: each needs more than {shortest - 1} tokens, ⟨eos⟩ "
            "counted (give longer sequences or a smaller context)"
        )
    return Completions(examples, len(lines) - len(examples), name)


def as_completions(dataset: Any, tokenizer: PreTrainedTokenizerBase, context: int = CONTEXT) -> Completions:
    """What the trainers take: `Completions`, strings, or rows with `text`, with `prompt` and `completion`, or with
    `messages`, of which the last is the completion. A prompt and its completion are strings, or lists of messages.

    Any other column of a row reaches the cost by its name.
    """
    if isinstance(dataset, Completions):
        return dataset
    rows: list[Any] = list(_rows(dataset))
    if not rows:
        raise UserError("the dataset is empty: give at least one example")
    kind: Any = next((kind for kind in (Example, str, Mapping) if isinstance(rows[0], kind)), Mapping)
    wrong = next((row for row in rows if not isinstance(row, kind)), None)
    if wrong is not None:
        also = "" if wrong is rows[0] else f" after a {type(rows[0]).__name__}"
        raise UserError(f"a dataset row is a string or a mapping of columns, got {type(wrong).__name__}{also}")
    if kind is Example:
        return Completions(rows)
    if kind is str:
        return completions_from_lines(rows, tokenizer, context)
    if "text" in rows[0]:
        if unused := {"prompt", "completion", "messages"} & set(rows[0]):
            warnings.warn(f"the dataset's column 'text' is used, and not {', '.join(sorted(unused))}", stacklevel=3)
        lines = [_string(row, "text") for row in rows]
        return completions_from_lines(lines, tokenizer, context, columns=[_extra_columns(row) for row in rows])
    if {"prompt", "completion"} <= set(rows[0]):
        chat = isinstance(rows[0]["prompt"], list)
        return Completions([(_from_chat if chat else _from_prompt)(row, tokenizer) for row in rows])
    if "messages" in rows[0]:
        return Completions([_from_chat(_as_prompt(row), tokenizer) for row in rows])
    raise UserError(
        f"a dataset needs a column 'text', or 'prompt' and 'completion', or 'messages'; got {', '.join(rows[0])}"
    )


def _rows(dataset: Any) -> Iterable[Any]:
    if isinstance(dataset, (str, PathLike)):
        how = "mgs.load_completions(file, tokenizer) reads a file"
        raise UserError(f"a dataset is a list of rows, got {str(dataset)[:80]!r}: {how}")
    if isinstance(dataset, Mapping) and dataset:
        names = [str(name) for name in dataset]
        columns = not {"text", "prompt", "messages"}.isdisjoint(names)
        how = "datasets.Dataset.from_dict(dataset) makes them" if columns else f"give one, dataset[{names[0]!r}]"
        raise UserError(f"a dataset is a list of rows, got a {type(dataset).__name__} of {', '.join(names)}: {how}")
    try:
        return iter(dataset)
    except TypeError:
        raise UserError(f"cannot read examples from a {type(dataset).__name__}") from None


def _string(row: Mapping[str, Any], name: str) -> str:
    if not isinstance(row.get(name), str):
        raise UserError(f"the column {name!r} must hold a string in every row, but one row is {dict(row)!r}")
    return row[name]


def _extra_columns(row: Mapping[str, Any]) -> dict[str, Any]:
    if "prefixes" in row:
        raise UserError("the dataset has a column 'prefixes', by which name a cost is given the prompts: rename it")
    return {name: value for name, value in row.items() if name not in ("text", "prompt", "completion", "messages")}


def _from_prompt(row: Mapping[str, Any], tokenizer: PreTrainedTokenizerBase) -> Example:
    prefix = tokenizer(_string(row, "prompt"))["input_ids"]
    target = tokenizer(_string(row, "completion"), add_special_tokens=False)["input_ids"]
    if not prefix:
        raise UserError(f"a prompt without tokens: {row['prompt']!r} (each example needs at least one)")
    return Example(tuple(prefix), (*target, end_of_sequence(tokenizer)), _extra_columns(row))


def _as_prompt(row: Mapping[str, Any]) -> dict[str, Any]:
    """A conversation, cut before its last message."""
    messages = row.get("messages")
    if not isinstance(messages, list) or len(messages) < 2:
        raise UserError(f"the column 'messages' must hold two or more in every row, but one row is {dict(row)!r}")
    return {**row, "prompt": messages[:-1], "completion": messages[-1:]}


def _from_chat(row: Mapping[str, Any], tokenizer: PreTrainedTokenizerBase) -> Example:
    """Messages as the tokenizer's chat template writes them: X up to where the answer begins, Y to its ⟨eos⟩."""
    if not tokenizer.chat_template:
        raise UserError("messages need a tokenizer with a chat template: give strings, or set tokenizer.chat_template")
    write: Any = tokenizer.apply_chat_template
    try:
        prefix = write(row["prompt"], add_generation_prompt=True, return_dict=True)["input_ids"]
        whole = write([*row["prompt"], *row["completion"]], return_dict=True)["input_ids"]
    except Exception as error:  # templates are programs, and say what they like
        raise UserError(f"the chat template cannot write {dict(row)!r}: {error}") from None
    answer = whole[len(prefix) :] if whole[: len(prefix)] == prefix else _answer(row, tokenizer)
    eos = end_of_sequence(tokenizer)
    target = [*answer, eos]
    return Example(tuple(prefix), tuple(target[: target.index(eos) + 1]), _extra_columns(row))


def _answer(row: Mapping[str, Any], tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Its tokens, where they are not what the prompt's leave of the whole's: a prompt that ends in a space may share a
    token with the answer's first word there. Decoding begins after the prompt's own."""
    write: Any = partial(tokenizer.apply_chat_template, tokenize=False)
    prompt = write(row["prompt"], add_generation_prompt=True)
    whole = write([*row["prompt"], *row["completion"]])
    if not whole.startswith(prompt):
        shown = f"{reprlib.repr(prompt)} does not begin {reprlib.repr(whole)}"
        raise UserError(f"the chat template writes a prompt otherwise where an answer follows: {shown}")
    return tokenizer(whole[len(prompt) :], add_special_tokens=False)["input_ids"]


def end_of_sequence(tokenizer: PreTrainedTokenizerBase) -> int:
    """The id of ⟨eos⟩, without which no sequence can end."""
    if tokenizer.eos_token_id is None:
        raise UserError("the tokenizer has no ⟨eos⟩ token: set tokenizer.eos_token, or nothing can terminate")
    return int(tokenizer.eos_token_id)


def marks_spaces(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Byte-level BPE in the manner of GPT-2 gives a word at the start of a line another token than elsewhere;
    such tokenizers get a leading space, as in the paper."""
    return tokenizer.tokenize(" a")[:1] in (["Ġa"], ["Ġ"]) and not tokenizer.tokenize("a")[0].startswith("Ġ")
