"""Figures of the paper's tables: study → row → split → column → figure.

Its LM column counts the prefix's tokens as well, so it stands beside ours that does. Its Human rows are about ten
tokens shorter than the data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from mgs.training.config import MGSConfig, default_of

Table = dict[str, dict[str, dict[str, float]]]

TRANSLATION_COLUMNS = ("bleu", "sbleu", "meteor", "edit")
COMPLETION_COLUMNS = ("lm_with_prefix", "edit", "nontermination", "repetition", "length", "perplexity")
HUMAN_COLUMNS = ("nontermination", "repetition", "length")


def table(split: str, columns: Sequence[str], rows: Mapping[str, Sequence[float]]) -> Table:
    """Rows of figures as a table of one split; people have fewer."""
    return {
        row: {split: dict(zip(HUMAN_COLUMNS if row == "Human" else columns, figures, strict=True))}
        for row, figures in rows.items()
    }


def joined(*tables: Table) -> Table:
    """The splits of several tables, row by row, those of the first and their order."""
    return {row: {split: f for t in tables for split, f in t.get(row, {}).items()} for row in tables[0]}


#: Edit as a share; the paper has it in percent.
TRANSLATION = {
    row: {
        split: dict(zip(TRANSLATION_COLUMNS, (*scores[:3], scores[3] / 100), strict=True))
        for split, scores in zip(("valid", "test"), (figures[:4], figures[4:]), strict=True)
    }
    for row, figures in {
        "MLE": (36.00, 36.22, 63.82, 47.88, 34.71, 35.67, 62.19, 50.74),
        "MGS-SBLEU": (36.22, 36.58, 64.08, 47.25, 35.03, 35.89, 62.2, 50.23),
        "MGS-METEOR": (36.26, 36.51, 64.13, 47.35, 34.98, 35.97, 62.49, 50.29),
        "MGS-EDIT": (35.73, 36.42, 63.73, 46.83, 34.73, 35.95, 62.04, 49.45),
        "MGS-SBLEU (train)": (36.19, 36.13, 63.65, 48.40, 34.80, 35.32, 61.95, 51.38),
    }.items()
}

#: The main table: five seeds.
MAIN = table(
    "test",
    COMPLETION_COLUMNS,
    {
        "MLE": (157.6, 0.945, 0.344, 0.530, 228.1, 21.3),
        "MGS-LM": (64.9, 0.937, 0.012, 0.046, 22.8, 22.0),
        "MRT-LM (+MLE 0.1)": (57.4, 0.948, 0.013, 0.023, 16.9, 25.8),
        "PG-LM (+MLE 0.1)": (48.4, 0.967, 0.000, 0.002, 3.8, 30.7),
        "MGS-edit": (78.2, 0.925, 0.037, 0.098, 44.0, 21.6),
        "MRT-edit (+MLE 0.3)": (138.7, 0.929, 0.227, 0.472, 178.4, 23.2),
        "PG-edit (+MLE 0.1)": (103.0, 0.904, 0.051, 0.246, 68.5, 24.5),
        "Human": (0.000, 0.011, 107.9),
    },
)

#: Mixing with MLE, and what MRT's candidates are: one seed.
MIXING = table(
    "valid",
    COMPLETION_COLUMNS,
    {
        "MLE": (146.4, 0.938, 0.379, 0.545, 239.7, 20.9),
        "MGS-LM": (59.2, 0.937, 0.013, 0.043, 20.1, 22.1),
        "MGS-edit": (74.3, 0.925, 0.049, 0.089, 45.6, 21.5),
        "MRT-LM": (46.8, 0.968, 0.000, 0.000, 3.1, 61.9),
        "MRT-LM (greedy)": (47.1, 0.968, 0.001, 0.005, 3.5, 403.4),
        "MRT-LM (gold)": (46.7, 0.978, 0.000, 0.000, 1.5, 105719428593.4),
        "MRT-LM (greedy, gold)": (47.3, 0.980, 0.000, 0.000, 1.1, 1214304797770.7),
        "PG-LM": (47.1, 0.965, 0.000, 0.000, 3.8, 45.5),
        "MRT-LM (+MLE 0.1)": (55.3, 0.946, 0.016, 0.027, 17.9, 24.1),
        "MRT-LM (+MLE 0.3)": (106.6, 0.911, 0.065, 0.218, 78.3, 24.0),
        "MRT-LM (+MLE 0.5)": (135.5, 0.924, 0.236, 0.444, 173.9, 22.5),
        "PG-LM (+MLE 0.1)": (47.2, 0.967, 0.001, 0.004, 4.0, 28.6),
        "PG-LM (+MLE 0.3)": (48.2, 0.960, 0.004, 0.009, 7.3, 24.5),
        "PG-LM (+MLE 0.5)": (51.4, 0.955, 0.008, 0.016, 11.1, 24.4),
        "MRT-edit": (159.5, 0.890, 0.000, 0.553, 43.6, 34427069131.9),
        "MRT-edit (greedy)": (116.5, 0.877, 0.000, 0.678, 47.3, 208.5),
        "MRT-edit (gold)": (151.1, 0.925, 0.138, 0.367, 126.9, 52.4),
        "MRT-edit (greedy, gold)": (694.7, 0.959, 0.419, 0.443, 270.7, 60.9),
        "PG-edit": (106.5, 0.895, 0.016, 0.196, 57.8, 25.6),
        "MRT-edit (+MLE 0.1)": (151.7, 0.942, 0.376, 0.595, 244.6, 22.1),
        "MRT-edit (+MLE 0.3)": (125.0, 0.913, 0.143, 0.362, 131.2, 23.2),
        "MRT-edit (+MLE 0.5)": (145.5, 0.931, 0.297, 0.458, 199.4, 22.9),
        "PG-edit (+MLE 0.1)": (96.4, 0.901, 0.016, 0.183, 47.8, 25.4),
        "PG-edit (+MLE 0.3)": (101.9, 0.904, 0.041, 0.212, 66.5, 24.0),
        "PG-edit (+MLE 0.5)": (109.7, 0.904, 0.076, 0.303, 90.9, 24.0),
        "Human": (0.000, 0.009, 107.7),
    },
)

#: Ancestral sampling. Its caption says test; the text, and the figures of its Human row, say validation.
SAMPLING = table(
    "test",
    COMPLETION_COLUMNS,
    {
        "MLE": (336.0, 0.932, 0.001, 0.018, 110.5, 21.3),
        "MGS-LM (sampling)": (113.2, 0.934, 0.000, 0.006, 28.5, 22.2),
        "MRT-LM (+MLE 0.1)": (117.8, 0.945, 0.000, 0.005, 27.9, 25.8),
        "PG-LM (+MLE 0.1)": (53.2, 0.972, 0.000, 0.001, 4.4, 30.7),
        "MGS-edit (sampling)": (159.5, 0.927, 0.000, 0.009, 46.0, 21.8),
        "MRT-edit (+MLE 0.3)": (312.8, 0.930, 0.002, 0.021, 105.9, 23.2),
        "PG-edit (+MLE 0.1)": (225.4, 0.917, 0.000, 0.015, 69.2, 24.5),
        "Human": (0.000, 0.009, 107.7),
    },
)

#: The components of the proposal.
PROPOSAL = table(
    "valid",
    ("lm_with_prefix", "nontermination", "perplexity"),
    {
        "MGS-LM": (59.2, 0.013, 22.1),
        "MGS-LM (zero only)": (143.0, 0.348, 20.9),
        "MGS-LM (MLE only)": (141.6, 0.351, 20.9),
    },
)

PAPER: dict[str, Table] = {
    "translation": TRANSLATION,
    "completion": joined(MAIN, MIXING),
    "sampling": SAMPLING,
    "proposal": PROPOSAL,
    "mixing": MIXING,
    "temperature": {"MGS-LM": MIXING["MGS-LM"]},
}

#: Where rows are looked up: whether figures are of translations, and the decoder that they come from.
TABLES: dict[tuple[bool, str], tuple[Table, ...]] = {
    (False, "greedy"): (MAIN, MIXING, PROPOSAL),
    (False, "sample"): (SAMPLING,),
    (True, "greedy"): (TRANSLATION,),  # but for BLEU, which is by beam search there as here
}

COMPONENTS = {"zero": "zero only", "mle": "MLE only"}
TEMPERATURES = (1, 10, 100)  # the grid that the paper chose from
#: Options of a search that may be other than the paper's: its rows differ in some, the others change nothing.
FREE = {"recipe", "components", "temperature", "noise_scale", "score_prefixes", "log_base", "probe_transfer"}
PUBLISHED = {f.name: default_of(f) for f in fields(MGSConfig) if f.name in MGSConfig.__annotations__.keys() - FREE}


def name_of_row(method: str, cost: str | None, settings: Mapping[str, Any], scratch: bool = False) -> str | None:
    """What the paper's tables would call a run: MRT and PG by what is mixed in, a search by what it leaves out. No name
    has a search that is not the paper's: without regard to cost, or with guides of other kinds.

    >>> name_of_row("mrt", "lm", {"mle_share": 0.1, "gold_candidate": True})
    'MRT-LM (gold, +MLE 0.1)'
    """
    if method == "mle":
        return "MLE"
    inside = ["train"] if scratch else []  # all but MLE go on from MLE
    if method == "mgs":
        if not is_published(settings):
            return None
        inside += [COMPONENTS[part] for part in [settings.get("components")] if part in COMPONENTS]
        inside += ["sampling"] if settings.get("decoder") == "sample" else []
    else:
        share = settings.get("mle_share", 0)
        inside += [kind for kind in ("greedy", "gold") if settings.get(f"{kind}_candidate")]
        inside += [f"+MLE {share}"] if share else []
    named = cost if cost == "edit" else str(cost).upper()
    return f"{method.upper()}-{named}" + f" ({', '.join(inside)})" * bool(inside)


def is_published(settings: Mapping[str, Any]) -> bool:
    """Whether a search is one of the paper's."""
    same = all(settings.get(name, value) == value for name, value in PUBLISHED.items())
    return same and str(settings.get("temperature", "1")).removesuffix(".0") in map(str, TEMPERATURES)


def paper_row(
    name: str | None, translates: bool, split: str = "test", decoder: str = "greedy"
) -> tuple[str, Mapping[str, float]]:
    """The row of that name, as the paper's tables write it, and its figures; empty where they have none for this split
    and decoder.

    >>> paper_row("MGS-LM", False, "valid")[1]["perplexity"]
    22.1
    """
    tables = TABLES.get((translates, decoder), ())
    for row, splits in (found for table in tables for found in table.items()):
        if name is not None and row.lower() == name.lower() and split in splits:
            return row, splits[split]
    return "", {}
