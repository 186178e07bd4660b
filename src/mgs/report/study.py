"""A study's table as Markdown and LaTeX, each cell a mean, its deviation over seeds, and the paper's figure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from mgs.experiments.study import Study
from mgs.report.tables import HEADINGS, cell

Records = Mapping[str, Sequence[Mapping[str, Any]]]


WIDEST = 8  # columns of figures: more are a table for each split


def values(records: Sequence[Mapping[str, Any]], key: str, column: str) -> list[float]:
    return [r["figures"][key][column] for r in records if column in r["figures"].get(key, {})]


def shown(study: Study, records: Records, row: str, split: str, column: str) -> tuple[str, str, str]:
    """Mean, deviation and the paper's figure, each empty where there is none."""
    found = values(records[row], study.key(split), column)
    paper = study.paper.get(row, {}).get(split, {}).get(column)
    mean = cell(column, statistics.fmean(found)) if found else ""
    deviation = cell(column, statistics.stdev(found)) if len(found) > 1 else ""
    return mean, deviation, cell(column, paper) if paper is not None else ""


def columns_shown(study: Study, records: Records) -> list[str]:
    """Those that some run has: METEOR, for one, needs WordNet."""
    every = [r for rows in records.values() for r in rows]
    return [c for c in study.columns if any(values(every, study.key(split), c) for split in study.splits)]


def parts(study: Study, columns: Sequence[str]) -> list[list[tuple[str, str]]]:
    """The splits and columns of each table."""
    each = [[(split, column) for column in columns] for split in study.splits]
    return each if len(columns) * len(each) > WIDEST else [[pair for part in each for pair in part]]


def markdown(study: Study, records: Records) -> str:
    return "\n\n".join(_markdown(study, records, part) for part in parts(study, columns_shown(study, records)))


def _markdown(study: Study, records: Records, part: Sequence[tuple[str, str]]) -> str:
    heads = [f"{HEADINGS[column]} {split}" for split, column in part]
    lines = ["| | " + " | ".join(["runs", *heads]) + " |", "|---|" + "---:|" * (1 + len(heads))]
    for row in records:
        cells = []
        for split, column in part:
            mean, deviation, paper = shown(study, records, row, split, column)
            text = (mean + f" ± {deviation}" * bool(deviation)) if mean else "–"
            cells.append(text + f" [{paper}]" * bool(paper))
        lines.append(f"| {row} | {len(records[row])} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def latex(study: Study, records: Records) -> str:
    return "\n\n".join(_latex(study, records, part) for part in parts(study, columns_shown(study, records)))


def _latex(study: Study, records: Records, part: Sequence[tuple[str, str]]) -> str:
    """Without the paper's figures, which a reader of the paper has."""
    splits = list(dict.fromkeys(split for split, _ in part))
    heads = " & ".join(rf"\textsc{{{HEADINGS[column].replace('+', ' + ')}}}" for _, column in part)
    width = len(part) // len(splits)
    groups = " & ".join(rf"\multicolumn{{{width}}}{{c}}{{{split.title()}}}" for split in splits)
    lines = [rf"\begin{{tabular}}{{l{'r' * len(part)}}}", rf" & {groups} \\", rf" & {heads} \\"]
    for row in records:
        cells = []
        for split, column in part:
            mean, deviation, _ = shown(study, records, row, split, column)
            cells.append((mean + rf"\,$\pm$\,{deviation}" * bool(deviation)) or "--")
        lines.append(" & ".join([row.replace("α", r"$\alpha$"), *cells]) + r" \\")
    return "\n".join([*lines, r"\end{tabular}"])


def page(study: Study, records: Records, more: str = "") -> str:
    """The table with what it rests on, what is still to be run, and `more`."""
    keys = [study.key(split) for split in study.splits]
    every = [record["signatures"] for rows in records.values() for record in rows]
    signatures = dict.fromkeys(signature[key] for signature in every for key in keys if key in signature)
    note = "Mean ± deviation over runs" + (", [the paper's figure, on its data]." if study.paper else ".")
    left = [row for row, found in records.items() if not found]
    missing = [f"Not run: {', '.join(left)}.", ""] if left else []
    about = [study.note, ""] if study.note else []
    below = [more, ""] if more else []
    lines = [f"# {study.title}", "", markdown(study, records), "", note, "", *below, *missing, *about]
    return "\n".join([*lines, "```", *signatures, "```", ""])
