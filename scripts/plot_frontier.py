"""What searches paid for what they gained, from the evaluations that are kept of a real model:
`python scripts/plot_frontier.py results/search/real.json results/search/real-frontier.png`"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from mgs.report.panels import panels

#: What is shown of each search, under which name; and the goal of `mgs reproduce search`.
ROWS = {
    "dependable, LM": ("dependable", "#1f77b4", "o"),
    "paper, LM": ("as published", "#d62728", "s"),
    "paper, LM, stopped": (None, "#d62728", "s"),
    "paper, uniform weights": ("uniform weights", "#7f7f7f", "^"),
}
COLUMNS = {"lm": "LM cost", "repetition": "repetition", "nontermination": "non-termination"}
GOAL = {"repetition": 0.06, "nontermination": 0.02}
GOAL_DEARER = 4.0  # percent of perplexity


def draw(evaluations: dict[str, Any], file: Path) -> None:
    start = evaluations["start"]
    figure, places = panels(len(COLUMNS), "perplexity over the start's, %", "")
    for axes, (column, name) in zip(places, COLUMNS.items(), strict=True):
        axes.set_ylabel(name)
        for row, (label, colour, marker) in ROWS.items():
            for run in evaluations[row]:
                points = [(100 * (at["perplexity"] / start["perplexity"] - 1), at[column]) for at in run]
                if column in start:
                    points.insert(0, (0.0, start[column]))
                axes.plot(
                    *zip(*points, strict=True), color=colour, marker=marker, markersize=3, linewidth=0.8, alpha=0.7
                )
            axes.plot([], [], color=colour, marker=marker, label=label)
        if column in start:
            axes.plot(0, start[column], "k*", markersize=11, label="MLE, the start")
        if column in GOAL:
            axes.fill_between([0, GOAL_DEARER], 0, GOAL[column], color="#2ca02c", alpha=0.25, label="the goal")
        axes.set_xlim(-0.2, 5.5)
        axes.set_ylim(bottom=0)
    places[-1].legend(frameon=False, fontsize=8)
    figure.savefig(file, dpi=120)


def main(arguments: list[str]) -> None:
    if len(arguments) != 2:
        sys.exit(__doc__)
    source, file = map(Path, arguments)
    draw(json.loads(source.read_text(encoding="utf-8"))["evaluations"], file)


if __name__ == "__main__":
    main(sys.argv[1:])
