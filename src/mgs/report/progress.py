"""Curves out of the logs of a study's runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mgs.experiments.study import Run, Study
from mgs.training.callbacks import LOG
from mgs.training.outputs import read_lines

#: Told apart by people who see few colours (Okabe and Ito's); rows beyond them are dashed.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")


def entries(run: Run, out: Path) -> list[dict[str, Any]]:
    """The lines of a run's log."""
    return read_lines(out / run.name / LOG)


def curve(log: list[dict[str, Any]], name: str, over: str = "step") -> list[tuple[float, float]]:
    """A figure over updates."""
    return [(entry[over], entry[name]) for entry in log if isinstance(entry.get(name), (int, float))]


def smooth(points: list[tuple[float, float]], num: int = 20) -> list[tuple[float, float]]:
    """Means over `num` stretches: single updates say little."""
    size = max(1, -(-len(points) // num))
    pieces = [points[start : start + size] for start in range(0, len(points), size)]
    return [(piece[-1][0], sum(value for _, value in piece) / len(piece)) for piece in pieces]


def plot_study(study: Study, out: Path, file: Path) -> None:
    """The first column on held-out data over updates, from scratch and from there, or perplexity where a table has it
    (nothing there starts from scratch); and of parameter search, over the part of a run that is done, how often a
    candidate at a gradient has the highest weight, their share of all weight, and how much the weights differ."""
    from matplotlib.figure import Figure

    first = f"eval_{study.columns[0]}"
    runs = [next(run for run in study.runs if run.row == row) for row in study.rows]
    anew = [run for run in runs if not run.start.startswith("@")]
    later = [run for run in runs if run not in anew]
    panels = (
        ("eval_perplexity", "validation perplexity", later)
        if "perplexity" in study.columns
        else (first, f"validation {study.columns[0]}, from scratch", anew),
        (first, f"validation {study.columns[0]}, from there", later),
        ("guided_won", "a candidate at a gradient has the highest weight", runs),
        ("guided_weight", "weight of candidates at gradients", runs),
        ("weights_std", "deviation of weights", runs),
    )
    logs = {run.row: entries(run, out) for run in runs}
    figure = Figure(figsize=(12, 6.4), layout="constrained")
    *places, last = figure.subplots(2, 3).flat
    lines: dict[str, Any] = {}
    for axes, (name, title, shown) in zip(places, panels, strict=True):
        for run in shown:
            points = curve(logs[run.row], name)
            if not name.startswith("eval_"):
                points = [(step / points[-1][0], value) for step, value in smooth(points)]
            if points:
                (lines[run.row],) = axes.plot(*zip(*points, strict=True), **style(run.row, study.rows))
        axes.set_title(title, fontsize=9)
        axes.set_xlabel("update" if name.startswith("eval_") else "part of the run")
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    last.axis("off")
    last.legend(lines.values(), lines, frameon=False, fontsize=8, loc="center left")
    figure.suptitle(f"{study.title}: the first run of each row", fontsize=10)
    figure.savefig(file, dpi=110)


def style(row: str, rows: Sequence[str]) -> dict[str, Any]:
    """How a row's line looks: grey for MLE, and for the others a colour each."""
    others = [name for name in rows if not name.startswith("MLE")]
    same = others if row in others else [name for name in rows if name not in others]
    cycle, place = divmod(same.index(row), len(COLOURS) if row in others else 1)
    return {
        "color": COLOURS[place] if row in others else "#777777",
        "linestyle": ("-", "--", ":", "-.")[cycle % 4],
        "marker": "o",
        "markersize": 2,
        "linewidth": 1.2,
    }
