"""`mgs generate`: continue prefixes or translate, from the command line, from a file, or held-out ones of the data."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from mgs.cli.arguments import Parser
from mgs.data import CONTEXT
from mgs.data.completion import end_of_sequence, marks_spaces
from mgs.decoding import Decoder
from mgs.errors import UserError, at_least
from mgs.experiments.inputs import DataOptions, ModelOptions
from mgs.metrics import decode_texts, texts
from mgs.models import check_tokens, window
from mgs.models.likelihood import is_encoder_decoder
from mgs.report.escape import printable
from mgs.training.config import option


@dataclass
class GenerateOptions:
    """What to continue, and how."""

    prompt: list[str] = option([], "Texts to continue or translate; - reads them from standard input, one a line.")
    num: int = option(3, "Without --prompt: how many held-out prefixes to continue.")
    decoder: str = option("greedy", "Decoding algorithm: greedy, beam-N, or sample[,top_k=..,top_p=..,temperature=..].")
    max_new_tokens: int = option(100, "Decoding cap.")
    context: int = option(CONTEXT, "Tokens of each held-out sequence that are given.")
    seed: int = option(0, "Names the noise of a sampling decoder.")

    def __post_init__(self) -> None:
        at_least(1, num=self.num, max_new_tokens=self.max_new_tokens)


def generate(argv: Sequence[str]) -> None:
    parser = Parser((ModelOptions, DataOptions, GenerateOptions), "mgs generate", "Continue prefixes, or translate.")
    models, data, options = parser.parse(argv)
    decoder = Decoder.parse(options.decoder)
    model, tokenizer = models.load()
    data.check_task(model)
    prompts = read_prompts() if options.prompt == ["-"] else options.prompt
    if options.prompt and not (prompts and all(prompt.strip() for prompt in prompts)):
        raise UserError("an empty prompt cannot be continued: give at least one word")
    if prompts:
        prefixes = encode(tokenizer, prompts, data.translates)
    else:
        prefixes = [list(e.prefix) for e in data.examples(tokenizer, "valid", options.context, model, options.num)]
    if not prefixes or not all(prefixes):
        raise UserError("an empty prompt cannot be continued: give at least one word")
    check_fit(model, prefixes)
    outputs = decode_texts(model, tokenizer, prefixes, decoder, options.max_new_tokens, (options.seed,))
    for prefix, output in zip(texts(tokenizer, prefixes), outputs, strict=True):
        arrow = " ▸ " if data.translates else " ▸"  # a continuation brings its own space
        print(f"{printable(prefix.strip())}{arrow}{printable(output)}{' ⟨eos⟩' if output.ended else ' …'}\n")


def read_prompts() -> list[str]:
    try:
        return [line.strip() for line in sys.stdin]
    except UnicodeDecodeError as error:
        raise UserError(f"standard input is not UTF-8 text (byte {error.start}): convert it, e.g. with iconv") from None


def encode(tokenizer: PreTrainedTokenizerBase, prompts: Sequence[str], translates: bool) -> list[list[int]]:
    """Prefixes as in training: a source ends in ⟨eos⟩; a text to be continued begins as a word."""
    space = " " if not translates and marks_spaces(tokenizer) else ""
    if not all(prompt.isascii() or prompt.encode(errors="ignore").decode() == prompt for prompt in prompts):
        raise UserError("a prompt is not UTF-8 text: convert it, e.g. with iconv")
    rows = [tokenizer(space + prompt, add_special_tokens=False)["input_ids"] for prompt in prompts]
    return [[*row, end_of_sequence(tokenizer)] if translates and row else row for row in rows]


def check_fit(model: PreTrainedModel, prefixes: Sequence[Sequence[int]]) -> None:
    """A causal model's decoder says so itself; an encoder would fail deep inside."""
    longest, limit = max(map(len, prefixes)), window(model)
    if is_encoder_decoder(model) and limit and longest > limit:
        raise UserError(f"a source of {longest} tokens does not fit the model's window of {limit}: cut it")
    check_tokens(model, prefixes)
