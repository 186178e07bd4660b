"""sacrebleu's metrics as costs: 1 − score / 100, in [0, 1]. `signature` names the variant for tables.

Text is tokenized by sacrebleu's `13a` and keeps its case. Text that comes tokenized is left nearly as it is, but its
scores compare only with those of text in the same form.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from mgs.costs.meteor import SIGNATURE
from mgs.errors import unknown
from mgs.types import Text


def sbleu(hypotheses: Sequence[Text], references: Sequence[Text]) -> list[float]:
    """1 − sentence BLEU / 100, as sacrebleu's `sentence_bleu` has it: smoothed ("exp"), of the orders there are."""
    return _per_sentence("sbleu", hypotheses, references)


def chrf(hypotheses: Sequence[Text], references: Sequence[Text]) -> list[float]:
    """1 − sentence chrF2 / 100: F-score of character n-grams up to 6, recall twice as heavy as precision."""
    return _per_sentence("chrf", hypotheses, references)


def bleu(hypotheses: Sequence[Text], references: Sequence[Text]) -> float:
    """1 − corpus BLEU / 100: one value for all sequences together, from their summed n-gram counts."""
    pairs = [(str(h), str(r)) for h, r in zip(hypotheses, references, strict=True)]
    return _cost(_metric("bleu").corpus_score([h for h, _ in pairs], [[r for _, r in pairs]]).score)


def signature(name: str) -> str:
    """What the cost `name` computes, in sacrebleu's form: version, tokenization, smoothing and the like.

    >>> signature("sbleu").split("|version:")[0]
    'nrefs:1|case:mixed|eff:yes|tok:13a|smooth:exp'
    """
    if name == "meteor":
        return SIGNATURE
    if name not in METRICS:
        raise unknown("translation cost", name, (*METRICS, "meteor"))
    metric = _metric(name)
    metric.corpus_score([""], [[""]])  # it wants to have seen how many references there are
    return str(metric.get_signature())


#: sacrebleu's class and options. `force`: no warning for text that looks tokenized.
METRICS: dict[str, tuple[str, dict[str, Any]]] = {
    "sbleu": ("BLEU", {"effective_order": True, "force": True}),
    "bleu": ("BLEU", {"force": True}),
    "chrf": ("CHRF", {}),
}


@cache
def _metric(name: str) -> Any:
    """One object for all calls: it remembers how texts are tokenized."""
    from sacrebleu import metrics

    kind, options = METRICS[name]
    return getattr(metrics, kind)(**options)


def _per_sentence(name: str, hypotheses: Sequence[Text], references: Sequence[Text]) -> list[float]:
    score = _metric(name).sentence_score
    return [_cost(score(str(h), [str(r)]).score) for h, r in zip(hypotheses, references, strict=True)]


def _cost(score: float) -> float:
    """Scores of perfect texts come out a little above 100."""
    return max(0.0, 1.0 - score / 100)
