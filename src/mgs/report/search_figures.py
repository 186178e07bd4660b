"""Figures of searches side by side: what they paid for what they gained, and how far what they saw holds elsewhere.

A panel for each cost, with the runs that minimise it and those of MLE; a colour and a marker for each row.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

from mgs.experiments.completion import COSTS
from mgs.experiments.study import Run, Study
from mgs.report.panels import panels
from mgs.report.progress import COLOURS, curve, entries

SHAPES = dict(zip(COLOURS, "oDs^vPX", strict=True))  # a marker with each
EDGE: dict[str, Any] = {"markeredgecolor": "black", "markeredgewidth": 0.5, "zorder": 3}
Points = Sequence[tuple[float, float]]


def frontier(study: Study, out: Path, file: Path) -> None:
    """Task cost over perplexity: every evaluation of every run, the last ones large, the start a star."""
    figure, places = panels(len(costs_of(study)), "validation perplexity", "")
    for axes, (name, cost) in zip(places, costs_of(study).items(), strict=True):
        axes.set_ylabel(f"validation {cost}")
        every: list[tuple[float, float]] = []
        for label, runs, shape in rows_of(study, name, cost):
            paths = [path(run, out, cost) for run in runs]
            scatter(axes, [point for each in paths for point in each[1:-1]], **shape, markersize=3, alpha=0.5)
            scatter(
                axes, [point for each in paths for point in each[1:][-1:]], **shape, **EDGE, markersize=7, label=label
            )
            every += [point for each in paths for point in each]
        scatter(axes, every[:1], color="black", marker="*", linestyle="none", markersize=11, label="MLE, the start")
        across = [perplexity for perplexity, _ in every]
        if across and max(across) > 3 * min(across):
            axes.set_xscale("log")
    finish(figure, places, f"{study.title}: every evaluation, the last ones large", file)


def transfer(study: Study, out: Path, file: Path) -> None:
    """Over updates, how changes of cost on an update's own prefixes go with those on fresh ones: a point for each
    seed, a line for their mean."""
    figure, places = panels(len(costs_of(study)), "update", "correlation with fresh prefixes")
    for axes, (name, cost) in zip(places, costs_of(study).items(), strict=True):
        axes.set_title(name, fontsize=9)
        axes.set_ylim(-1.05, 1.05)
        for label, runs, shape in rows_of(study, name, cost):
            points = [point for run in runs for point in curve(entries(run, out), "transfer")]
            at = {step: statistics.fmean(y for x, y in points if x == step) for step, _ in sorted(points)}
            scatter(axes, points, **shape, markersize=3, alpha=0.5)
            scatter(axes, list(at.items()), **{**shape, "linestyle": "-"}, markersize=4, linewidth=1.5, label=label)
    finish(figure, places, f"{study.title}: do candidates' changes of cost hold elsewhere?", file)


def costs_of(study: Study) -> dict[str, str]:
    """Those that a study's runs minimise, as rows and as the library have them."""
    return {name: cost for name, cost in COSTS.items() if any(run.cost == cost for run in study.runs)}


def rows_of(study: Study, name: str, cost: str) -> Iterator[tuple[str, list[Run], dict[str, Any]]]:
    """What a cost's panel shows: the label of each row, its runs, and what they look like."""
    shown = [run for run in study.runs if study.before(run) and run.cost in (cost, None)]
    for row, (hue, marker) in zip(dict.fromkeys(run.row for run in shown), cycle(SHAPES.items())):
        shape = {"color": hue, "marker": marker, "linestyle": "none"}
        yield row.removeprefix(f"{name}: "), [run for run in shown if run.row == row], shape


def path(run: Run, out: Path, cost: str) -> list[tuple[float, float]]:
    """(perplexity, cost) at each evaluation of a run."""
    log = [entry for entry in entries(run, out) if f"eval_{cost}" in entry]
    return [(entry["eval_perplexity"], entry[f"eval_{cost}"]) for entry in log]


def scatter(axes: Any, points: Points, **shape: Any) -> None:
    if points:
        axes.plot(*zip(*points, strict=True), **shape)


def finish(figure: Any, places: Sequence[Any], title: str, file: Path) -> None:
    """One legend for all panels, beside them."""
    named: dict[str, Any] = {}
    for axes in places:
        named |= dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
        if not axes.lines:
            axes.text(0.5, 0.5, "nothing logged", transform=axes.transAxes, ha="center", color="#666666")
    figure.legend(named.values(), named, loc="outside right center", frameon=False, fontsize=7)
    figure.suptitle(title, fontsize=9)
    figure.savefig(file, dpi=150)
