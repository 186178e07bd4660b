"""Settings side by side: what a run was not told is shown as what it assumed, and a start is one row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from mgs.report.runs import RunFolder
from mgs.training import METHODS
from mgs.training.config import default_of

EMPTY: tuple[Any, ...] = (None, "", [])
DEFAULT = "default"  # of an option that has no value of its own: what it comes to is decided by others


def side_by_side(runs: Sequence[RunFolder]) -> list[dict[str, Any]]:
    """Each run's settings, with the defaults of those that another run has; what a method has no option for is left
    out."""
    given = [told(run, runs) for run in runs]
    names = sorted({name for settings in given for name in settings})
    return [
        {name: settings[name] for name in names if name in settings}
        for settings in (defaults(run, names) | own for run, own in zip(runs, given, strict=True))
    ]


def told(run: RunFolder, runs: Sequence[RunFolder]) -> dict[str, Any]:
    """What a run was told; of the run that it goes on from only its name."""
    settings = {name: value for name, value in run.settings.items() if value not in EMPTY}
    shown = {name: value for name, value in settings.items() if not name.startswith("start.")}
    if len(shown) < len(settings):
        other = f"{settings.get('start.method')} from {settings.get('start.start')}"  # which the page is not about
        shown["start"] = next((each.name for each in runs if run.goes_on_from(each)), other)
    if run.cost is None:
        shown.pop("cost", None)
    return shown


def defaults(run: RunFolder, names: Sequence[str]) -> dict[str, Any]:
    if run.method not in METHODS:
        return {}
    known = {f.name: default_of(f) for f in fields(METHODS[run.method][0]) if f.init}
    return {name: DEFAULT if known[name] in EMPTY else known[name] for name in names if name in known}
