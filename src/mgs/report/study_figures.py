"""The paper's figures, each a function from a study's runs to a picture: `draw(axes, study, out)`.

Curves are the runs' own logs, a line for each seed; points are means over seeds of what was measured at the end.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mgs.experiments.completion import COSTS
from mgs.experiments.running import records
from mgs.experiments.study import Run, Study
from mgs.report.panels import legend, panels, save
from mgs.report.progress import curve, entries, plot_study, smooth, style
from mgs.report.search_figures import frontier, transfer
from mgs.report.study import values

Records = Mapping[str, Sequence[Mapping[str, Any]]]


def over_updates(name: str, label: str) -> Callable[[Study, Path, Path], None]:
    """A figure that draws one entry of the log, in a line for each run that has it."""

    def draw(study: Study, out: Path, file: Path) -> None:
        figure, (axes,) = panels(1, "update", label)
        lines(axes, study, ((run, smooth(curve(entries(run, out), name))) for run in study.runs if run.method == "mgs"))
        save(figure, axes, study, file)

    return draw


def cost_over_time(study: Study, out: Path, file: Path) -> None:
    """Validation cost over seconds of updates; in a log that does not have them all are taken to be equally long."""
    figure, (axes,) = panels(1, "seconds of updates", "validation cost")
    found = {
        (row, r["settings"]["seed"]): r for row, rows in records(study, out).items() for r in rows if "updates" in r
    }
    curves = []
    for run in study.runs:
        record = found.get((run.row, run.seed))
        if run.method == "mgs" and record is not None:
            each = record["update_seconds"] / max(1, record["updates"])
            log = [{"eval_update_seconds": each * entry["step"], **entry} for entry in entries(run, out)]
            curves.append((run, curve(log, "eval_cost", over="eval_update_seconds")))
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
    found = records(study, out)
    done = {run.cost for run in study.runs if found[run.row]}
    costs = {name: cost for name, cost in COSTS.items() if cost in done} or COSTS
    figure, places = panels(len(costs), "share of MLE", "")
    for axes, (name, cost) in zip(places, costs.items(), strict=True):
        right = axes.twinx()
        for method, hue in (("mrt", "#d95f02"), ("pg", "#7b3294"), ("mgs", "#1f77b4")):
            for place, column, dash in ((axes, cost, "-"), (right, "perplexity", "--")):
                points = sorted(by_option(study, found, "mle_share", 0.0, method, column, cost).items())
                if method == "mgs" and points:
                    place.axhline(points[0][1], color=hue, linestyle=dash, label=f"{method.upper()}-{name}")
                elif points:
                    shape = {"marker": "o", "markersize": 3, "color": hue, "linestyle": dash}
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


def lines(axes: Any, study: Study, curves: Iterable[tuple[Run, list[tuple[float, float]]]]) -> None:
    """A line for each run, a colour for each row, named once."""
    named = set()
    for run, points in curves:
        if points:
            label = "_" if run.row in named else run.row
            axes.plot(*zip(*points, strict=True), label=label, **style(run.row, study.rows))
            named.add(run.row)


#: Name → what draws it into a file.
FIGURES: dict[str, Callable[[Study, Path, Path], None]] = {
    "progress": plot_study,
    "training cost": over_updates("cost", "training cost"),
    "deviation of weights": over_updates("weights_std", "deviation of candidate weights"),
    "transfer": transfer,
    "frontier": frontier,
    "MLE weight": over_updates("guided_weight", "total weight of MLE candidates"),
    "cost over temperature": cost_over_temperature,
    "cost over time": cost_over_time,
    "mixing share": over_mixing_share,
}
