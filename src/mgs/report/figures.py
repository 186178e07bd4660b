"""The page's tables and curves, as plain data. Figures of different signatures go into different tables."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from mgs.experiments.paper import name_of_row, paper_row
from mgs.metrics import COLUMNS, TRANSLATION_COLUMNS
from mgs.report.progress import curve, smooth
from mgs.report.runs import RunFolder
from mgs.report.tables import HEADINGS, cell, columns_of
from mgs.training.config import SCORES

WORDS = {"perplexity": "perplexity", "nontermination": "non-termination", "repetition": "repetition", "lm": "LM cost"}
POINTS = 80  # of a curve of single updates
NEUTRAL = ("length",)  # neither more nor less is better
OF_COST = ("best_cost", "cost")  # a panel for each cost: nats and shares have no axis in common
#: Figure of single updates → title, and what it is.
UPDATES = {
    "best_cost": ("Cost of the best candidate", "on the update's own batch"),
    "cost": ("Cost in training", "on the update's own batch"),
    "effective": ("Effective sample size", "of the candidates' weights; 1 is a single winner"),
    "transfer": ("Transfer", "correlation of candidates' changes of cost on the batch and on fresh prefixes"),
    "guided_weight": ("Weight of guided candidates", "those at the gradient of MLE or another guide: their share"),
    "chose_mle": ("Share of MLE updates", "the coin that mixes MLE in"),
}


def tables(runs: Sequence[RunFolder]) -> list[dict[str, Any]]:
    """One for each split and signature, the runs that share it in its rows."""
    groups: dict[tuple[str, str], list[RunFolder]] = {}
    for run in runs:
        for split in run.figures():
            groups.setdefault((split, run.signature(split)), []).append(run)
    return [table(split, signature, group, runs) for (split, signature), group in groups.items()]


def table(split: str, signature: str, group: Sequence[RunFolder], runs: Sequence[RunFolder]) -> dict[str, Any]:
    rows: list[dict[str, Any]] = []
    shown = columns_of({run.name: run.figures()[split] for run in group})
    started: list[Mapping[str, float]] = []
    where = (group[0].translates, split.partition(" by ")[0], group[0].decoder(split))  # studies have `test by sample`
    mle = paper_row("MLE", *where)
    for run in group:
        start = {name: value for name, value in run.figures("start").get(split, {}).items() if name in shown}
        if start and start not in started:  # several runs may start from the same model
            started.append(start)
            rows.append(row("start", None, start, {}, mle, {}, shown))
        start = start or next((other.figures()[split] for other in group if run.goes_on_from(other)), {})
        name = name_of_row(run.method, run.cost, run.settings, run.from_scratch)
        name = None if start and run.method == "mle" else name  # which the paper lets nothing else come before
        paper = paper_row(name, *where)
        rows.append(row(run.name, runs.index(run), run.figures()[split], start, paper, mle[1], shown))
    human = next((run.record["human"][split] for run in group if split in run.record.get("human", {})), None)
    if human:
        rows.append(row("human", None, human, {}, paper_row("Human", *where), {}, shown))
    meanings = meanings_of(group)
    return {
        "split": split,
        "signature": signature,
        "columns": [{"name": name, "heading": HEADINGS[name], "meaning": meanings[name]} for name in shown],
        "rows": rows,
    }


def meanings_of(runs: Sequence[RunFolder]) -> dict[str, str]:
    """What columns are; the two tasks say it in their own words."""
    return COLUMNS | TRANSLATION_COLUMNS if runs[0].translates else TRANSLATION_COLUMNS | COLUMNS


def row(
    label: str,
    run: int | None,
    figures: Mapping[str, float],
    start: Mapping[str, float],
    paper: tuple[str, Mapping[str, float]],
    paper_start: Mapping[str, float],
    shown: Sequence[str],
) -> dict[str, Any]:
    """Cells as they are shown, each with the change since the start and the paper's figure where there are such."""
    name_of_paper, papers = paper
    cells = [
        {
            "value": cell(name, figures.get(name)),
            "before": cell(name, start[name]) if name in start else None,
            "change": change(name, start.get(name), figures.get(name)),
            "paper": cell(name, papers[name]) if name in papers else None,
            "paper_change": change(name, paper_start.get(name), papers.get(name)) if start else None,
        }
        for name in shown
    ]
    return {"label": label, "run": run, "paper": name_of_paper, "cells": cells}


def change(name: str, before: float | None, after: float | None) -> dict[str, Any] | None:
    """By how much of itself a figure changed, and whether that is good."""
    if not before or after is None or not math.isfinite(before) or not math.isfinite(after):
        return None
    share = round(after / before - 1, 3)
    better = 0 if name in NEUTRAL or not share else 1 if (share > 0) == (name in SCORES) else -1
    return {"text": f"{share:+.1%}".replace("-", "−") if share else "0.0%", "better": better}


def curves(runs: Sequence[RunFolder]) -> list[dict[str, Any]]:
    """What evaluations measured, with the start as update 0 or, in a study, as a level; then what single updates did,
    as means over stretches."""
    panels = []
    costs = dict.fromkeys(run.cost for run in runs if run.cost)
    watched = [("cost", f"Held-out cost: {cost}", [run for run in runs if run.cost == cost]) for cost in costs]
    others = ("perplexity", *(() if "lm" in costs else ("lm",)), "bleu", "sbleu", "nontermination", "repetition")
    watched += [(name, f"Held-out {WORDS.get(name, HEADINGS[name])}", list(runs)) for name in others]
    for name, title, some in watched:
        lines = [(runs.index(run), watched_curve(run, name)) for run in some]
        found = levels(name, some, runs)
        note = meanings_of(runs).get(name, "what training minimises") + "; dotted: the start" * bool(found)
        panels.append(panel(title, note, lines, found))
    for name, (title, note) in UPDATES.items():
        for cost in costs if name in OF_COST else [None]:
            some = list(runs) if cost is None else [run for run in runs if run.cost == cost and run.decodes]
            panels.append(updates_panel(f"{title}: {cost}" if cost else title, note, name, some, runs))
    return [panel for panel in panels if panel["lines"]]


def updates_panel(
    title: str, note: str, name: str, some: Sequence[RunFolder], runs: Sequence[RunFolder]
) -> dict[str, Any]:
    """A figure of single updates, as means over stretches of long runs."""
    found = [(runs.index(run), curve(run.log, name)) for run in some]
    stretch = -(-max((len(points) for _, points in found), default=0) // POINTS)
    note += f"; means of {stretch} updates" if stretch > 1 else ""
    return panel(title, note, [(i, smooth(points, POINTS)) for i, points in found])


def watched_curve(run: RunFolder, name: str) -> list[tuple[float, float]]:
    later = curve(run.evaluations(), name)
    start = [(0, figures[name]) for figures in run.figures("start").values() if name in figures][:1]
    return [*start, *later] if later else []


def levels(name: str, some: Sequence[RunFolder], runs: Sequence[RunFolder]) -> list[dict[str, Any]]:
    """Where runs of a study began: what was measured of the runs they go on from, if that was on the same examples."""
    found: dict[int, float] = {}
    for run in some:
        figure = run.cost if name == "cost" else name
        for start in runs if watched_curve(run, name) else ():
            if "watched" in run.settings or not run.goes_on_from(start):
                continue
            if run.decoder("valid") != start.decoder("valid"):
                continue
            value = start.figures().get("valid", {}).get(figure or "")
            if value is not None and math.isfinite(value) and not (name == "cost" and figure in SCORES):
                found[runs.index(start)] = value
    return [{"series": series, "value": value} for series, value in found.items()]


def panel(
    title: str,
    note: str,
    lines: Sequence[tuple[int, Sequence[tuple[float, float]]]],
    levels: Sequence[dict[str, Any]] = (),
) -> dict[str, Any]:
    """A chart; points that cannot be drawn are left out."""
    drawn: list[dict[str, Any]] = [
        {"series": series, "points": [[x, y] for x, y in points if math.isfinite(y)]} for series, points in lines
    ]
    drawn = [line for line in drawn if line["points"]]
    values = [y for line in drawn for _, y in line["points"]] + [level["value"] for level in levels]
    far = bool(values) and min(values) > 1 and max(values) > 20 * min(values)  # shares are never drawn as powers
    return {"title": title, "note": note, "x": "update", "log": far, "lines": drawn, "levels": levels}
