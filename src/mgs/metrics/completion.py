"""What a report shows for text completion: the columns of the paper's tables, each table with its signature.

A signature says how figures were obtained: two tables are comparable when their signatures agree.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from torch import nn
from tqdm.auto import tqdm
from transformers import PreTrainedTokenizerBase

import mgs
from mgs.costs import LanguageModelCost, edit, nontermination, repeated_share
from mgs.data import Completions
from mgs.data.completion import end_of_sequence
from mgs.decoding import EVALUATION_LENGTH, Cap, Decoder
from mgs.models.likelihood import is_encoder_decoder, score
from mgs.types import Text

#: Column → what it is, in the order of the paper's main table.
COLUMNS = {
    "lm": "−log p_score(Ŷ | X), nats",
    "lm_with_prefix": "−log p_score(X, Ŷ), nats: `lm` and the constant of the prefixes",
    "edit": "token edit distance / |Y|, at most 1",
    "nontermination": "share of continuations without ⟨eos⟩",
    "repetition": "share of repeated 4-grams; sequences without a 4-gram left out",
    "length": "mean tokens of a continuation, ⟨eos⟩ counted",
    "perplexity": "of the human continuations given their prefixes",
}


@dataclass(frozen=True)
class Evaluation:
    """Figures of one model, with the continuations they come from."""

    figures: dict[str, float]
    signature: str
    hypotheses: list[Text] = field(repr=False, default_factory=list)


def decode_texts(
    model: nn.Module,
    tokenizer: PreTrainedTokenizerBase,
    prefixes: Sequence[Sequence[int]],
    decoder: Decoder,
    max_new_tokens: Cap,
    noise: Sequence[int] = (0,),
    done: Callable[[int], object] = lambda rows: None,
    strings: bool = True,
    numbers: Sequence[int] | None = None,
) -> list[Text]:
    """Continuations as a cost sees them; `strings` as in `texts`, `numbers` of rows as for a decoder."""
    eos = end_of_sequence(tokenizer)
    return texts(tokenizer, decoder(model, prefixes, max_new_tokens, eos, noise, done, numbers), strings)


def texts(tokenizer: PreTrainedTokenizerBase, rows: Sequence[Sequence[int]], strings: bool = True) -> list[Text]:
    """Token ids as texts that remember them. Without `strings` the texts are empty, for costs that read tokens alone:
    turning many rows into words takes longer than scoring them."""
    eos = tokenizer.eos_token_id
    words = (
        tokenizer.batch_decode([list(row) for row in rows], skip_special_tokens=True) if strings else [""] * len(rows)
    )
    return [Text(word, row, ended=bool(row) and row[-1] == eos) for word, row in zip(words, rows, strict=True)]


def evaluate_completion(
    model: nn.Module,
    tokenizer: PreTrainedTokenizerBase,
    data: Completions,
    decoder: Decoder,
    scorer: nn.Module | None = None,
    max_new_tokens: int = EVALUATION_LENGTH,
    seed: int = 0,
    progress: bool = True,
) -> Evaluation:
    """Decode every prefix and fill the table's row. Without a `scorer`, the LM columns are left out."""
    prefixes = [example.prefix for example in data.examples]
    with tqdm(total=len(data), desc="decoding", unit="prefix", leave=False, disable=None if progress else True) as bar:
        hypotheses = decode_texts(model, tokenizer, prefixes, decoder, max_new_tokens, (seed,), bar.update)
    figures = sequence_figures(tokenizer, data, hypotheses, scorer)
    figures["perplexity"] = perplexity(model, data)
    return Evaluation(figures, signature(data, decoder, max_new_tokens, scorer, seed), hypotheses)


def sequence_figures(
    tokenizer: PreTrainedTokenizerBase,
    data: Completions,
    hypotheses: Sequence[Text],
    scorer: nn.Module | None = None,
) -> dict[str, float]:
    """All columns but perplexity, for continuations from anywhere: a model's, or the human ones."""
    references = texts(tokenizer, [example.target for example in data], strings=False)
    figures = shared_figures(hypotheses, references)
    if scorer is not None:
        cost, prefixes = LanguageModelCost(scorer), texts(tokenizer, [e.prefix for e in data], strings=False)
        figures["lm"] = fmean(cost(hypotheses, references, prefixes))
        if not is_encoder_decoder(scorer):  # which gives a source no likelihood
            figures["lm_with_prefix"] = figures["lm"] + fmean(cost.of_prefixes(prefixes))
    shares = [share for text in hypotheses if (share := repeated_share(text.token_ids)) is not None]
    figures["repetition"] = fmean(shares) if shares else 0.0
    return {column: figures[column] for column in COLUMNS if column in figures}


def shared_figures(hypotheses: Sequence[Text], references: Sequence[Text]) -> dict[str, float]:
    """The columns of every task, which need no model and no words."""
    return {
        "edit": fmean(edit(hypotheses, references)),
        "nontermination": fmean(nontermination(hypotheses, references)),
        "length": fmean(len(hypothesis.token_ids) for hypothesis in hypotheses),
    }


def human_figures(
    tokenizer: PreTrainedTokenizerBase, data: Completions, scorer: nn.Module | None = None
) -> dict[str, float]:
    """The same columns for the continuations that people wrote."""
    humans = texts(tokenizer, [example.target for example in data], strings=False)
    return sequence_figures(tokenizer, data, humans, scorer)


def perplexity(model: nn.Module, data: Completions) -> float:
    """exp of the mean negative log-likelihood of a target token given its prefix."""
    total = math.fsum(score(model, [e.prefix for e in data], [e.target for e in data]))
    return math.exp(min(700.0, -total / sum(len(e.target) for e in data)))


def signature(data: Completions, decoder: Decoder, max_new_tokens: int, scorer: nn.Module | None, seed: int) -> str:
    """How the figures were obtained, on one line."""
    lengths = {len(example.prefix) for example in data}
    context = lengths.pop() if len(lengths) == 1 else "prompts"
    parts = {"data": data.signature, "context": context, "decoder": decoder, "cap": max_new_tokens}
    if decoder.sample:
        parts["seed"] = seed
    if scorer is not None:
        parts["scorer"] = model_name(scorer)
    return "|".join([*(f"{key}:{value}" for key, value in parts.items()), f"mgs:{mgs.__version__}"])


def model_name(model: nn.Module) -> str:
    """The last part of the name or folder a model was loaded from."""
    name = str(getattr(getattr(model, "config", None), "_name_or_path", "") or type(model).__name__)
    return name.rstrip("/").split("/")[-1]
