"""Pictures of runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

COLOURS = {"MLE": "#666666", "MGS": "#1f77b4", "MRT": "#d95f02", "PG": "#7b3294"}
Curve = Sequence[tuple[float, float]]  # (update, value)


def colour(name: str) -> str | None:
    return COLOURS.get(name.split("-")[0].split(" ")[0])


def plot_progress(
    cost: Mapping[str, Curve], perplexity: Mapping[str, Curve], file: Path, cost_label: str, title: str = ""
) -> None:
    """Task cost and perplexity over updates, side by side, a line for each method."""
    from matplotlib.figure import Figure  # no pyplot: nothing global, no display needed

    figure = Figure(figsize=(9, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    for axes, curves, label in ((left, cost, cost_label), (right, perplexity, "perplexity")):
        for name, curve in curves.items():
            axes.plot(*zip(*curve, strict=True), marker="o", markersize=3, label=name, color=colour(name))
        axes.set_xlabel("update")
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.set_ylabel(label)
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    values = [value for curve in perplexity.values() for _, value in curve]
    if values and max(values) > 3 * min(values):
        right.set_yscale("log")
    (right if perplexity else left).legend(frameon=False)  # lines that rise leave room
    figure.suptitle(title, fontsize=10)
    figure.savefig(file, dpi=150)


def plot_per_candidate(results: Sequence[Mapping[str, Any]], file: Path) -> None:
    """Milliseconds a candidate costs over how many there are, a line for each model of `mgs bench`."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 3.4), layout="constrained")
    axes = figure.subplots()
    for result in results:
        points = [(row["candidates"], 1000 * row["per_candidate"]) for row in result["many"]]
        (line,) = axes.plot(*zip(*points, strict=True), marker="o", markersize=3, label=f"{result['model']}, rank 1")
        update = result["update"]
        num = result["settings"]["candidates"]
        for way, marker in (("ours", "s"), ("sequential", "x")):
            axes.plot(
                num, 1000 * update[way] / num, marker, color=line.get_color(), label=f"{result['model']}, dense {way}"
            )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlabel("candidates K")
    axes.set_ylabel("ms a candidate")
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=7)
    figure.savefig(file, dpi=150)
