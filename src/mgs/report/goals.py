"""When the runs of a study reached its goal: a second table, out of their logs."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mgs.experiments.running import is_done
from mgs.experiments.study import Goal, Study
from mgs.report.progress import entries
from mgs.training.outputs import evaluations

SECONDS = "update_seconds"
Evaluations = Sequence[Mapping[str, Any]]


def first_met(goal: Goal, found: Evaluations) -> Mapping[str, Any] | None:
    """The first evaluation that meets the goal."""
    return next((entry for entry in found if goal.met(entry, found[0])), None)


def median(values: Sequence[float]) -> str:
    return f"{statistics.median(values):g}" if values else "–"


def goal_table(study: Study, out: Path) -> str:
    """For each row, how many runs reached the goal at any evaluation, when, and how many end there."""
    if study.goal is None:
        return ""
    lines = ["| | runs | reached | updates | seconds | at the end |", "|---|" + "---:|" * 5]
    for row in study.rows:
        runs = [run for run in study.runs if run.row == row and study.before(run) and is_done(study, run, out)]
        logs = [found for run in runs if (found := evaluations(entries(run, out)))]
        if not logs:
            continue
        met = [entry for found in logs if (entry := first_met(study.goal, found)) is not None]
        end = sum(study.goal.met(found[-1], found[0]) for found in logs)
        updates, seconds = median([entry["step"] for entry in met]), median([e[SECONDS] for e in met if SECONDS in e])
        lines.append(f"| {row} | {len(logs)} | {len(met)} | {updates} | {seconds} | {end} |")
    about = "Runs that reach all of it at an evaluation, medians of when the first such evaluation was, and runs that "
    return "\n".join([f"Goal: {study.goal}.", "", *lines, "", about + "are there at their last."])
