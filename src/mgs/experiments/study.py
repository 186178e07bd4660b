"""An experiment as data: a grid of runs, and the paper's figures that theirs stand beside."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from mgs.errors import unknown
from mgs.experiments.inputs import DataOptions

Figures = Mapping[str, float]


@dataclass(frozen=True)
class Run:
    """One model: trained with `method` from `start`, a model's name or `@ROW`, what that row's run of the same seed
    gave, or else its first."""

    row: str
    method: str
    start: str
    seed: int = 0
    cost: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    seconds: float | None = None  # of updates, after which it ends: for runs that are to take the same time

    @property
    def name(self) -> str:
        """Its folder."""
        return f"{slug(self.row)}-{self.seed}"

    def settings(self) -> dict[str, Any]:
        """All that decides how it ends, apart from the study's data."""
        own = {"method": self.method, "start": self.start, "seed": self.seed, "cost": self.cost}
        return own | ({} if self.seconds is None else {"seconds": self.seconds}) | dict(self.options)


@dataclass(frozen=True)
class Goal:
    """What an evaluation must show: figures of at most so much, and of at most so many times the start's."""

    at_most: Figures
    times_start: Figures

    def met(self, figures: Figures, start: Figures) -> bool:
        limits = {**self.at_most, **{name: times * start[name] for name, times in self.times_start.items()}}
        return all(figures[name] <= limit for name, limit in limits.items())

    def __str__(self) -> str:
        relative = [f"{name} ≤ {times:g} × the start's" for name, times in self.times_start.items()]
        return ", ".join([*(f"{name} ≤ {limit:g}" for name, limit in self.at_most.items()), *relative])


@dataclass(frozen=True)
class Study:
    """Runs that make up a table. Figures are those of `splits`; `columns` are shown, with the paper's beside them.

    Studies that share a folder share runs: one of the same name and settings is trained once.
    """

    name: str
    title: str
    data: DataOptions
    runs: Sequence[Run]
    columns: Sequence[str]
    splits: Sequence[str] = ("valid", "test")
    examples: int | None = None  # of a split that figures come from; None is all
    paper: Mapping[str, Mapping[str, Figures]] = field(default_factory=dict)  # row → split → column → figure
    watched: int | None = None  # examples of `valid` that are decoded during training; None is as many as `examples`
    decoder: str | None = None  # that figures come from; None is the one each run was trained with
    figures: Sequence[str] = ("progress",)  # drawn from logs and records, see `mgs.report.study_figures`
    note: str = ""  # what a reader of the table must know
    goal: Goal | None = None  # that a second table tells when runs reached

    @property
    def rows(self) -> list[str]:
        return list(dict.fromkeys(run.row for run in self.runs))

    def named(self, name: str) -> Run:
        for run in self.runs:
            if run.name == name:
                return run
        raise unknown("run", name, [run.name for run in self.runs])

    def before(self, run: Run) -> Run | None:
        """The run that this one starts from, if it does."""
        if not run.start.startswith("@"):
            return None
        row = [other for other in self.runs if other.row == run.start[1:]]
        return next((other for other in row if other.seed == run.seed), row[0])

    def key(self, split: str) -> str:
        """What a split's figures are called in a record: other studies may have others of the same run."""
        return split if self.decoder is None else f"{split} by {self.decoder}"


def seeded(runs: Sequence[Run], seeds: int) -> list[Run]:
    """Each run with every seed."""
    return [replace(run, seed=seed) for run in runs for seed in range(seeds)]


def differences(was: Mapping[str, Any], now: Mapping[str, Any], place: str = "") -> Iterator[str]:
    """What two descriptions of a run disagree on, in words."""
    for name in sorted(was.keys() | now.keys()):
        one, other = was.get(name), now.get(name)
        if isinstance(one, dict) and isinstance(other, dict):
            yield from differences(one, other, f"{place}{name}.")
        elif one != other and not (name == "examples" and "watched" in now):  # which then decide nothing but figures
            yield f"{place}{name} was {one!r} and is {other!r}"


def slug(text: str) -> str:
    """
    >>> slug("MRT-SBLEU (+MLE 0.1)")
    'mrt-sbleu-mle-0.1'
    """
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-")
