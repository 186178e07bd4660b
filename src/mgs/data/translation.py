"""Translation: each pair of sentences becomes a source and a target, both of which end in ⟨eos⟩."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from transformers import PreTrainedTokenizerBase

from mgs.data.completion import Completions, end_of_sequence
from mgs.data.pairs import Pair, read_pairs
from mgs.errors import UserError
from mgs.types import Example

BLANK, SHORT, LONG, UNEVEN = "blank", "too short", "too long", "uneven"


@dataclass(frozen=True)
class Translations(Completions):
    """Examples whose prefix is a source sentence. `discarded` says how many pairs were left out, by reason."""

    discarded: dict[str, int] = field(default_factory=dict)

    @property
    def mean_lengths(self) -> tuple[float, float]:
        """Tokens of a source and of a target, ⟨eos⟩ counted."""
        sources, targets = (sum(map(len, side)) for side in zip(*((e.prefix, e.target) for e in self), strict=True))
        return sources / len(self), targets / len(self)


def load_pairs(
    name: str,
    tokenizer: PreTrainedTokenizerBase,
    split: str = "all",
    *,
    languages: str | None = None,
    source: int = 0,
    lowercase: bool = False,
    unescape: bool = False,
    max_examples: int | None = None,
    max_length: int | None = None,
    min_length: int = 0,
    max_ratio: float | None = None,
) -> Translations:
    """Examples from sentence pairs (see `mgs.data.pairs` for what `name`, `languages` and `source` may be).

    `lowercase` is for tokenizers that do not do so themselves; `unescape` turns `&apos;` and the like, which Moses
    leaves behind, into the characters they stand for. The rest is as in `translations_from_pairs`.
    """
    pairs = load_sentences(name, split, languages=languages, source=source, lowercase=lowercase, unescape=unescape)
    label = ",".join(part.strip().rstrip("/").split("/")[-1] for part in name.split(","))
    label += f":{languages}" if languages else ""
    label += f":{source}-{1 - source}" if source else ""
    label += f"@{split}" if split != "all" else ""
    label += "+lowercase" * lowercase + "+unescape" * unescape
    label += f"≥{min_length}" if min_length else ""
    label += f"≤{max_length}" if max_length is not None else ""
    label += f"≤{max_ratio:g}×" if max_ratio is not None else ""
    limits = {"max_length": max_length, "min_length": min_length, "max_ratio": max_ratio}
    return translations_from_pairs(pairs, tokenizer, label, **limits)[:max_examples]  # type: ignore[arg-type]


def load_sentences(
    name: str,
    split: str = "all",
    *,
    languages: str | None = None,
    source: int = 0,
    lowercase: bool = False,
    unescape: bool = False,
) -> list[Pair]:
    """The pairs as text: what `load_pairs` encodes, and what a tokenizer is trained on."""
    pairs = read_pairs(name, split, languages, source)
    if unescape:
        pairs = [(html.unescape(left), html.unescape(right)) for left, right in pairs]
    if lowercase:
        pairs = [(left.lower(), right.lower()) for left, right in pairs]
    return pairs


def translations_from_pairs(
    pairs: Sequence[Pair],
    tokenizer: PreTrainedTokenizerBase,
    name: str = "pairs",
    *,
    max_length: int | None = None,
    min_length: int = 0,
    max_ratio: float | None = None,
) -> Translations:
    """Encode both sides. Nothing is cut: pairs with a blank side, or with a side of more than `max_length` or fewer
    than `min_length` tokens, ⟨eos⟩ counted, are discarded, as are those with one side over `max_ratio` times the other.
    """
    if max_ratio is not None and not max_ratio >= 1:
        raise UserError(f"max_ratio is the longer side over the shorter and at least 1, got {max_ratio:g}")
    eos = end_of_sequence(tokenizer)
    full = [(left, right) for left, right in pairs if left.strip() and right.strip()]
    # A sentence that spells out "</s>" means the letters, not the end.
    options = {"add_special_tokens": False, "split_special_tokens": True, "verbose": False}
    sources = tokenizer([left for left, _ in full], **options)["input_ids"] if full else []
    targets = tokenizer(text_target=[right for _, right in full], **options)["input_ids"] if full else []
    examples: list[Example] = []
    discarded = Counter({BLANK: len(pairs) - len(full)})
    for left, right in zip(sources, targets, strict=True):
        example = Example((*left, eos), (*right, eos))
        fault = _fault(example, max_length, max(min_length, 2), max_ratio)
        if fault:
            discarded[fault] += 1
        else:
            examples.append(example)
    reasons = {reason: count for reason, count in discarded.items() if count}
    if not examples:
        why = ", ".join(f"{count} {reason}" for reason, count in reasons.items())
        raise UserError(
            f"none of the {len(pairs)} pairs of {name!r} can be used ({why}): give others, or change max_length, "
            "min_length or max_ratio"
        )
    return Translations(examples, sum(reasons.values()), name, reasons)


def _fault(example: Example, max_length: int | None, min_length: int, max_ratio: float | None) -> str | None:
    short, long = sorted((len(example.prefix), len(example.target)))
    if short < min_length:
        return SHORT
    if max_length is not None and long > max_length:
        return LONG
    return UNEVEN if max_ratio is not None and long > max_ratio * short else None
