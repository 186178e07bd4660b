"""A study's table as Markdown and LaTeX, each cell a mean, its deviation over seeds, and the paper's figure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from mgs.experiments.study import Study
from mgs.report.tables import HEADINGS, cell

Records = Mapping[str, Sequence[Mapping[str, Any]]]


def values(records: Sequence[Mapping[str, Any]], split: str, column: str) -> list[float]:
    return [r["figures"][split][column] for r in records if column in r["figures"].get(split, {})]


def shown(study: Study, records: Records, row: str, split: str, column: str) -> tuple[str, str, str]:
    """Mean, deviation and the paper's figure, each empty where there is none."""
    found = values(records[row], split, column)
    paper = study.paper.get(row, {}).get(split, {}).get(column)
    mean = cell(column, statistics.fmean(found)) if found else ""
    deviation = cell(column, statistics.stdev(found)) if len(found) > 1 else ""
    return mean, deviation, cell(column, paper) if paper is not None else ""


def columns_shown(study: Study, records: Records) -> list[str]:
    """Those that some run has: METEOR, for one, needs WordNet."""
    every = [r for rows in records.values() for r in rows]
    return [c for c in study.columns if any(values(every, split, c) for split in study.splits)]


def markdown(study: Study, records: Records) -> str:
    columns = columns_shown(study, records)
    heads = [f"{HEADINGS[column]} {split}" for split in study.splits for column in columns]
    lines = ["| | " + " | ".join(["runs", *heads]) + " |", "|---|" + "---:|" * (1 + len(heads))]
    for row in study.rows:
        cells = []
        for split in study.splits:
            for column in columns:
                mean, deviation, paper = shown(study, records, row, split, column)
                text = (mean + f" ± {deviation}" * bool(deviation)) if mean else "–"
                cells.append(text + f" [{paper}]" * bool(paper))
        lines.append(f"| {row} | {len(records[row])} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def latex(study: Study, records: Records) -> str:
    columns = columns_shown(study, records)
    heads = " & ".join(rf"\textsc{{{HEADINGS[c].title()}}}" for _ in study.splits for c in columns)
    groups = " & ".join(rf"\multicolumn{{{len(columns)}}}{{c}}{{{split.title()}}}" for split in study.splits)
    lines = [rf"\begin{{tabular}}{{l{'r' * len(columns) * len(study.splits)}}}", rf" & {groups} \\", rf" & {heads} \\"]
    for row in study.rows:
        cells = []
        for split in study.splits:
            for column in columns:
                mean, deviation, _ = shown(study, records, row, split, column)
                cells.append((mean + rf"\,$\pm$\,{deviation}" * bool(deviation)) or "--")
        lines.append(" & ".join([row.replace("α", r"$\alpha$"), *cells]) + r" \\")
    return "\n".join([*lines, r"\end{tabular}"])


def page(study: Study, records: Records) -> str:
    """The table with what it rests on."""
    signatures = dict.fromkeys(s for rows in records.values() for r in rows for s in r["signatures"].values())
    note = "Mean ± deviation over runs" + (", [the paper's figure, on its data]." if study.paper else ".")
    return "\n".join([f"# {study.title}", "", markdown(study, records), "", note, "", "```", *signatures, "```", ""])
