"""Figures of the paper that ours stand beside. Those of the translation table are in `translation.py`."""

from __future__ import annotations

from collections.abc import Mapping

from mgs.experiments.translation import PAPER as TRANSLATION

COLUMNS = ("lm", "edit", "nontermination", "repetition", "length", "perplexity")

#: Row → column → mean over 5 seeds: GPT-2, WikiText-103 test, greedy decoding.
COMPLETION: dict[str, dict[str, float]] = {
    row: dict(zip(COLUMNS, figures, strict=True))
    for row, figures in {
        "MLE": (157.6, 0.945, 0.344, 0.530, 228.1, 21.3),
        "MGS-LM": (64.9, 0.937, 0.012, 0.046, 22.8, 22.0),
        "MRT-LM (+MLE 0.1)": (57.4, 0.948, 0.013, 0.023, 16.9, 25.8),
        "PG-LM (+MLE 0.1)": (48.4, 0.967, 0.000, 0.002, 3.8, 30.7),
        "MGS-edit": (78.2, 0.925, 0.037, 0.098, 44.0, 21.6),
        "MRT-edit (+MLE 0.3)": (138.7, 0.929, 0.227, 0.472, 178.4, 23.2),
        "PG-edit (+MLE 0.1)": (103.0, 0.904, 0.051, 0.246, 68.5, 24.5),
    }.items()
} | {"Human": {"nontermination": 0.000, "repetition": 0.011, "length": 107.9}}


def paper_row(
    method: str, cost: str | None, translates: bool, split: str = "test", scratch: bool = False
) -> tuple[str, Mapping[str, float]]:
    """The row of the paper's table that a method and a cost have, and its figures; empty where there is none. All but
    MLE go on from MLE, unless they start from `scratch`.

    >>> paper_row("mgs", "edit", translates=False)[0]
    'MGS-edit'
    """
    wanted = method if method in ("mle", "human") else f"{method}-{cost}"
    for row in TRANSLATION if translates else COMPLETION:
        anew = method == "mle" or row.endswith("(train)") == scratch
        if row.split(" ")[0].lower() == wanted.lower() and anew:
            figures = TRANSLATION[row].get(split, TRANSLATION[row]["test"]) if translates else COMPLETION[row]
            return row, figures
    return "", {}
