"""The paper's figures, each a function from a study's runs to a picture: `draw(axes, study, out)`.

Curves are the runs' own logs, a line for each seed; points are means over seeds of what was measured at the end.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

from mgs.experiments.completion import COSTS
from mgs.experiments.running import records
from mgs.experiments.study import Run, Study
from mgs.report.progress import colour, curve, entries, plot_study, smooth
from mgs.report.study import values

Records = Mapping[str, Sequence[Mapping[str, Any]]]
MARKERS = "osD^vPX"  # beside a colour for each row, for who cannot tell those apart


def over_updates(name: str, label: str) -> Callable[[Study, Path, Path], None]:
    """A figure that draws one entry of the log, in a line for each run that has it."""

    def draw(study: Study, out: Path, file: Path) -> None:
        figure, (axes,) = panels(1, "update", label)
        lines(axes, study, ((run, smooth(curve(entries(run, out), name))) for run in study.runs if run.method == "mgs"))
        save(figure, axes, study, file)

    return draw


def frontier(study: Study, out: Path, file: Path) -> None:
    """Task cost over perplexity: every evaluation of every run, the last ones large, the start a star; a panel for
    each cost, with the runs that minimise it and those of MLE."""
    later = [run for run in study.runs if study.before(run)]
    costs = {name: cost for name, cost in COSTS.items() if any(run.cost == cost for run in later)}
    figure, places = panels(max(1, len(costs)), "validation perplexity", "")
    for axes, (name, cost) in zip(places, costs.items(), strict=False):
        rows = list(dict.fromkeys(run.row for run in later if run.cost in (cost, None)))
        paths = {row: [path(run, out, cost) for run in later if run.row == row] for row in rows}
        for row, marker in zip(rows, cycle(MARKERS)):
            shape = {"color": colour(row, rows), "marker": marker, "linestyle": "none"}
            scatter(axes, [each[1:-1] for each in paths[row]], **shape, markersize=3, alpha=0.5)
            edge = {"markeredgecolor": "black", "markeredgewidth": 0.5, "zorder": 3}
            label = row.removeprefix(f"{name}: ")
            scatter(axes, [each[-1:] for each in paths[row]], **shape, **edge, markersize=7, label=label)
        starts = [each[:1] for some in paths.values() for each in some]
        scatter(axes, starts[:1], color="black", marker="*", linestyle="none", markersize=11, label="start, MLE")
        across = [x for some in paths.values() for each in some for x, _ in each]
        if across and max(across) > 3 * min(across):
            axes.set_xscale("log")
        axes.set_ylabel(f"validation {cost}")
        legend(axes)
    figure.suptitle(f"{study.title}: every evaluation, the last ones large", fontsize=9)
    figure.savefig(file, dpi=150)


def path(run: Run, out: Path, cost: str) -> list[tuple[float, float]]:
    """(perplexity, cost) at each evaluation of a run."""
    log = [entry for entry in entries(run, out) if f"eval_{cost}" in entry]
    return [(entry["eval_perplexity"], entry[f"eval_{cost}"]) for entry in log]


def scatter(axes: Any, paths: Sequence[Sequence[tuple[float, float]]], **shape: Any) -> None:
    points = [point for each in paths for point in each]
    if points:
        axes.plot(*zip(*points, strict=True), **shape)


def cost_over_time(study: Study, out: Path, file: Path) -> None:
    """Validation cost over seconds of updates, all updates of a run taken to be equally long."""
    figure, (axes,) = panels(1, "seconds of updates", "validation cost")
    found = {
        (row, r["settings"]["seed"]): r for row, rows in records(study, out).items() for r in rows if "updates" in r
    }
    curves = []
    for run in study.runs:
        record = found.get((run.row, run.seed))
        if run.method == "mgs" and record is not None:
            each = record["update_seconds"] / max(1, record["updates"])
            curves.append((run, [(each * step, cost) for step, cost in curve(entries(run, out), "eval_cost")]))
    lines(axes, study, curves)
    save(figure, axes, study, file)


def cost_over_temperature(study: Study, out: Path, file: Path) -> None:
    """Validation cost over α, which is on a logarithmic scale and may be 0; the automatic one as a level."""
    figure, (axes,) = panels(1, "temperature α", f"validation {study.columns[0]}")
    points = by_option(study, records(study, out), "temperature", 1.0, "mgs", study.columns[0])
    numbers = sorted((float(value), mean) for value, mean in points.items() if value != "auto")
    if numbers:
        axes.plot(*zip(*numbers, strict=True), marker="o", markersize=3, color="#1f77b4", label="MGS-LM")
    if "auto" in points:
        axes.axhline(points["auto"], color="#d95f02", linestyle="--", label="auto")
    axes.set_xscale("symlog", linthresh=0.01)
    axes.set_xlim(left=-0.002)  # room for the point at 0, and none for numbers below
    save(figure, axes, study, file)


def over_mixing_share(study: Study, out: Path, file: Path) -> None:
    """Task cost (solid) and perplexity (dashed) over the share of batches that MLE takes; MGS, which mixes nothing in,
    as a level."""
    figure, places = panels(2, "share of MLE", "")
    found = records(study, out)
    for axes, (name, cost) in zip(places, COSTS.items(), strict=True):
        right = axes.twinx()
        for method, hue in (("mrt", "#d95f02"), ("pg", "#7b3294"), ("mgs", "#1f77b4")):
            for place, column, style in ((axes, cost, "-"), (right, "perplexity", "--")):
                points = sorted(by_option(study, found, "mle_share", 0.0, method, column, cost).items())
                if method == "mgs" and points:
                    place.axhline(points[0][1], color=hue, linestyle=style, label=f"{method.upper()}-{name}")
                elif points:
                    shape = {"marker": "o", "markersize": 3, "color": hue, "linestyle": style}
                    place.plot(*zip(*points, strict=True), label=f"{method.upper()}-{name}", **shape)
        axes.set_ylabel(f"validation {cost} (solid)")
        right.set_ylabel("perplexity (dashed)")
        low, high = right.get_ylim()
        if high > 3 * max(low, 1.0):  # without MLE it may be anything
            right.set_yscale("log")
        legend(axes)
    figure.suptitle(study.title, fontsize=9)
    figure.savefig(file, dpi=150)


def by_option(
    study: Study, found: Records, name: str, default: Any, method: str, column: str, cost: str = "lm"
) -> dict[Any, float]:
    """Value of an option → mean figure of the method's runs for this cost that differ in nothing else of interest:
    those with candidates of their own kind are left out."""
    means = {}
    for row, runs in {row: [r for r in study.runs if r.row == row] for row in study.rows}.items():
        plain = (
            runs[0].method == method and runs[0].cost == cost and not any("_candidate" in o for o in runs[0].options)
        )
        figures = values(found[row], study.key(study.splits[0]), column) if plain else []
        if figures:
            means[runs[0].options.get(name, default)] = statistics.fmean(figures)
    return means


def panels(num: int, across: str, up: str) -> tuple[Any, list[Any]]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5 * num, 3.4), layout="constrained")
    places = list(figure.subplots(1, num, squeeze=False).flat)
    for axes in places:
        axes.set_xlabel(across)
        axes.set_ylabel(up)
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    return figure, places


def lines(axes: Any, study: Study, curves: Iterable[tuple[Run, list[tuple[float, float]]]]) -> None:
    """A line for each run, a colour for each row, named once."""
    named = set()
    for run, points in curves:
        if points:
            label = "_" if run.row in named else run.row
            shape = {"marker": "o", "markersize": 2, "linewidth": 1, "color": colour(run.row, study.rows)}
            axes.plot(*zip(*points, strict=True), label=label, **shape)
            named.add(run.row)


def save(figure: Any, axes: Any, study: Study, file: Path) -> None:
    legend(axes)
    axes.set_title(study.title, fontsize=9)
    figure.savefig(file, dpi=150)


def legend(axes: Any) -> None:
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False, fontsize=7)
    elif not axes.lines:  # nothing may be done yet, or no run has it in its log
        axes.text(0.5, 0.5, "nothing logged", transform=axes.transAxes, ha="center", color="#666666")


#: Name → what draws it into a file.
FIGURES: dict[str, Callable[[Study, Path, Path], None]] = {
    "progress": plot_study,
    "training cost": over_updates("cost", "training cost"),
    "deviation of weights": over_updates("weights_std", "deviation of candidate weights"),
    "transfer": over_updates("transfer", "correlation with fresh prefixes"),
    "frontier": frontier,
    "MLE weight": over_updates("mle_weight", "total weight of MLE candidates"),
    "cost over temperature": cost_over_temperature,
    "cost over time": cost_over_time,
    "mixing share": over_mixing_share,
}
