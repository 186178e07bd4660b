"""`mgs generate`: continue prefixes or translate, from the command line, from a file, or held-out ones of the data. Of
a run, the data and the decoder are what it was trained with."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from mgs.cli.arguments import Parser, read_yaml
from mgs.cli.evaluate import OF_A_RUN, configuration_of
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

    prompt: list[str] = option(
        [], "Texts to continue or translate, --prompt itself left out or not; - reads standard input, one a line."
    )
    num: int = option(3, "Without a prompt: how many held-out prefixes to continue.")
    decoder: str = option("greedy", "Decoding algorithm: greedy, beam-N, or sample[,top_k=..,top_p=..,temperature=..].")
    max_new_tokens: int = option(100, "Decoding cap.")
    context: int = option(CONTEXT, "Tokens of each held-out sequence that are given.")
    seed: int = option(0, "Names the noise of a sampling decoder.")

    def __post_init__(self) -> None:
        at_least(1, num=self.num, max_new_tokens=self.max_new_tokens)


class PromptParser(Parser):
    """What belongs to no option is a prompt."""

    def parse_known_args(self, *given: Any) -> tuple[Namespace, list[str]]:  # type: ignore[override]
        found, left = super().parse_known_args(*given)
        prompts = [argument for argument in left if argument == "-" or not argument.startswith("-")]
        found.prompt = [*found.prompt, *prompts]
        return found, [argument for argument in left if argument not in prompts]


def generate(argv: Sequence[str]) -> None:
    types = (ModelOptions, DataOptions, GenerateOptions)
    parser = PromptParser(types, "mgs generate", "Continue prefixes, or translate.")
    models, data, options = parser.parse(argv)
    run = configuration_of(models.model)
    if data.data is None and run.is_file():
        known = {name: value for name, value in read_yaml(str(run)).items() if name in OF_A_RUN}
        models, data, options = parser.parse(argv, parser.from_mapping(known))
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
