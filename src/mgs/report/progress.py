"""Curves out of the logs of a study's runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mgs.experiments.study import Run, Study
from mgs.report.plots import colour

LOG = "metrics.jsonl"


def entries(run: Run, out: Path) -> list[dict[str, Any]]:
    """The lines of a run's log; a last one that was cut off is left out."""
    file = out / run.name / LOG
    found = []
    for line in file.read_text().splitlines() if file.exists() else ():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def curve(log: list[dict[str, Any]], name: str) -> list[tuple[float, float]]:
    """A figure over updates."""
    return [(entry["step"], entry[name]) for entry in log if isinstance(entry.get(name), (int, float))]


def smooth(points: list[tuple[float, float]], num: int = 20) -> list[tuple[float, float]]:
    """Means over `num` stretches: single updates say little."""
    size = max(1, -(-len(points) // num))
    pieces = [points[start : start + size] for start in range(0, len(points), size)]
    return [(piece[-1][0], sum(value for _, value in piece) / len(piece)) for piece in pieces]


def plot_study(study: Study, out: Path, file: Path) -> None:
    """The first column on held-out data over updates; and of parameter search, how often an MLE candidate has the
    highest weight, its share of all weight, and how much the weights differ."""
    from matplotlib.figure import Figure

    panels = (
        (f"eval_{study.columns[0]}", f"validation {study.columns[0]}"),
        ("mle_won", "MLE candidate has the highest weight"),
        ("mle_weight", "weight of MLE candidates"),
        ("weights_std", "deviation of weights"),
    )
    figure = Figure(figsize=(11, 6.4), layout="constrained")
    for axes, (name, label) in zip(figure.subplots(2, 2).flat, panels, strict=True):
        for row in study.rows:
            run = next(run for run in study.runs if run.row == row)
            points = curve(entries(run, out), name)
            if name != panels[0][0]:
                points = smooth(points)
            if points:
                axes.plot(*zip(*points, strict=True), marker="o", markersize=2, label=row, color=colour(row))
        axes.set_xlabel("update")
        axes.set_ylabel(label)
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        if axes.lines:
            axes.legend(frameon=False, fontsize=7)
    figure.suptitle(f"{study.title}: the first run of each row", fontsize=10)
    figure.savefig(file, dpi=130)
