"""What a report shows for translation: the columns of the paper's table, each with the signature of its metric.

As in the paper, BLEU is of beam search and everything else of the decoder that was trained with, greedy search.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean

from torch import nn
from tqdm.auto import tqdm
from transformers import PreTrainedTokenizerBase

import mgs
from mgs.costs import COSTS
from mgs.costs import signature as metric_signature
from mgs.costs.wordnet import has_wordnet
from mgs.data import Completions
from mgs.decoding import Decoder
from mgs.metrics.completion import Evaluation, decode_texts, perplexity, shared_figures, texts
from mgs.types import Text

BEAMS = 5
#: Longest translation: this many times its source, and a few tokens.
CAP_RATIO, CAP_EXTRA = 2, 10

#: Column → what it is, in the order of the paper's table.
TRANSLATION_COLUMNS = {
    "bleu": f"corpus BLEU with beam search, width {BEAMS}",
    "sbleu": "mean sentence BLEU, greedy",
    "meteor": "100 × mean METEOR, greedy; for English",
    "chrf": "mean sentence chrF2, greedy",
    "edit": "token edit distance / |Y|, at most 1, greedy",
    "nontermination": "share of translations without ⟨eos⟩",
    "length": "mean tokens of a translation, ⟨eos⟩ counted",
    "perplexity": "of the human translations given their sources",
}


def evaluate_translation(
    model: nn.Module,
    tokenizer: PreTrainedTokenizerBase,
    data: Completions,
    decoder: Decoder | None = None,
    max_new_tokens: int | None = None,
    seed: int = 0,
    progress: bool = True,
) -> Evaluation:
    """Decode every source twice, with `decoder` (greedy) and with beam search, and fill the table's row.

    `max_new_tokens` None caps each translation at twice its source. Hypotheses are those of `decoder`. METEOR is
    left out where there is no WordNet.
    """
    decoder = decoder or Decoder()
    sources = [example.prefix for example in data.examples]
    cap = max_new_tokens or longest_translation
    with tqdm(
        total=2 * len(data), desc="translating", unit="sentence", leave=False, disable=None if progress else True
    ) as bar:

        def decode(with_decoder: Decoder) -> list[Text]:
            return decode_texts(model, tokenizer, sources, with_decoder, cap, (seed,), bar.update)

        hypotheses = decode(decoder)
        searched = hypotheses if decoder.beams == BEAMS else decode(Decoder(beams=BEAMS))
    references = texts(tokenizer, [example.target for example in data])
    figures = {"bleu": score("bleu", searched, references)} | translation_figures(hypotheses, references)
    figures["perplexity"] = perplexity(model, data)
    capped = str(max_new_tokens or f"{CAP_RATIO}x+{CAP_EXTRA}")
    return Evaluation(figures, signature(data, decoder, capped, seed), hypotheses)


def translation_figures(hypotheses: Sequence[Text], references: Sequence[Text]) -> dict[str, float]:
    """All columns but BLEU and perplexity, for translations from anywhere."""
    names = ["sbleu", *(["meteor"] if has_wordnet() else []), "chrf"]
    figures = {name: score(name, hypotheses, references) for name in names}
    return figures | shared_figures(hypotheses, references)


def score(name: str, hypotheses: Sequence[Text], references: Sequence[Text]) -> float:
    """A cost as the figure that people know: 100 for perfect translations."""
    cost: Callable = COSTS[name]
    values = cost(hypotheses, references)
    return 100 * (1 - (values if isinstance(values, float) else fmean(values)))


def longest_translation(source: Sequence[int]) -> int:
    return CAP_RATIO * len(source) + CAP_EXTRA


def signature(data: Completions, decoder: Decoder, cap: str, seed: int) -> str:
    """How the figures were obtained: the data and the decoders on one line, then a line for each metric."""
    parts = {"data": data.signature, "decoder": decoder, "bleu": f"beam-{BEAMS}", "cap": cap}
    if decoder.sample:
        parts["seed"] = seed
    first = "|".join([*(f"{key}:{value}" for key, value in parts.items()), f"mgs:{mgs.__version__}"])
    names = ["bleu", "sbleu", *(["meteor"] if has_wordnet() else []), "chrf"]
    return "\n".join([first, *(f"{name} {metric_signature(name)}" for name in names)])
