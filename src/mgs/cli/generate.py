"""`mgs generate`: continue prefixes, from the command line, from a file, or held-out ones of the data."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from mgs.cli.arguments import Parser
from mgs.cli.options import DataOptions, ModelOptions
from mgs.data import CONTEXT
from mgs.data.completion import marks_spaces
from mgs.decoding import Decoder
from mgs.errors import UserError
from mgs.metrics import decode_texts, texts
from mgs.report.escape import printable
from mgs.training.config import option


@dataclass
class GenerateOptions:
    """What to continue, and how."""

    prompt: list[str] = option([], "Texts to continue; - reads them from standard input, one a line.")
    num: int = option(3, "Without --prompt: how many held-out prefixes to continue.")
    decoder: str = option("greedy", "Decoding algorithm: greedy, beam-N, or sample[,top_k=..,top_p=..,temperature=..].")
    max_new_tokens: int = option(100, "Decoding cap.")
    context: int = option(CONTEXT, "Tokens of each held-out sequence that are given.")
    seed: int = option(0, "Names the noise of a sampling decoder.")


def generate(argv: Sequence[str]) -> None:
    parser = Parser((ModelOptions, DataOptions, GenerateOptions), "mgs generate", "Continue prefixes.")
    models, data, options = parser.parse(argv)
    decoder = Decoder.parse(options.decoder)
    model, tokenizer = models.load()
    prompts = [line.strip() for line in sys.stdin] if options.prompt == ["-"] else options.prompt
    if options.prompt and not (prompts and all(prompt.strip() for prompt in prompts)):
        raise UserError("an empty prompt cannot be continued: give at least one word")
    if prompts:
        space = " " if marks_spaces(tokenizer) else ""
        prefixes = [tokenizer(space + prompt, add_special_tokens=False)["input_ids"] for prompt in prompts]
    else:
        prefixes = [list(e.prefix) for e in data.completions(tokenizer, "valid", options.context, model, options.num)]
    if not prefixes or not all(prefixes):
        raise UserError("an empty prompt cannot be continued: give at least one word")
    outputs = decode_texts(model, tokenizer, prefixes, decoder, options.max_new_tokens, (options.seed,))
    for prefix, output in zip(texts(tokenizer, prefixes), outputs, strict=True):
        print(f"{printable(prefix.strip())} ▸{printable(output)}{' ⟨eos⟩' if output.ended else ' …'}\n")
