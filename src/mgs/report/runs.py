"""Runs as they lie in folders: of `mgs train`, of a study, finished or not."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from mgs.errors import UserError
from mgs.training import METHODS
from mgs.training.callbacks import LOG
from mgs.training.outputs import OUTPUTS, PLACES, RECORD, evaluations, read_json, read_lines

YAML, SETTINGS = "mgs.yaml", "settings.json"
KEYS = {"prefix", "target", "output", "ended", "length", "target_length", "repetition", "repeated"}
PARTS = (RECORD, LOG, YAML, SETTINGS)


@dataclass(frozen=True)
class RunFolder:
    """One run. Whatever it did not write is empty."""

    folder: Path
    name: str
    settings: dict[str, Any]
    record: dict[str, Any]
    log: list[dict[str, Any]]
    outputs: list[dict[str, Any]]

    @property
    def method(self) -> str:
        return str(self.settings.get("method", ""))

    @property
    def cost(self) -> str | None:
        return None if self.method == "mle" else self.settings.get("cost")

    @property
    def translates(self) -> bool:
        return self.settings.get("task", self.settings.get("data.task")) == "translation"

    @property
    def from_scratch(self) -> bool:
        return str(self.settings.get("model", self.settings.get("start", ""))).startswith("new:")

    @property
    def decodes(self) -> bool:
        """Whether its updates do: a search without regard to cost makes do with one token."""
        return self.settings.get("max_new_tokens") != 1

    def goes_on_from(self, other: RunFolder) -> bool:
        """Whether a study let this one start where the other ended."""
        start = {name[6:]: value for name, value in self.settings.items() if name.startswith("start.")}
        return bool(start) and start == other.settings

    def evaluations(self) -> list[dict[str, Any]]:
        return evaluations(self.log)

    @property
    def updates(self) -> int:
        """So far, if it has not ended."""
        return int(self.record.get("updates") or max((entry.get("step", 0) for entry in self.log), default=0))

    def figures(self, when: str = "end") -> dict[str, dict[str, float]]:
        """Split → figures, of the end or of the start; of a run still going on, the latest."""
        found = (self.record.get("start", {}) if when == "start" else self.record).get("figures", {})
        if found or when == "start" or not self.evaluations():
            return found
        return {"valid": {name: value for name, value in self.evaluations()[-1].items() if name not in ("step",)}}

    def signature(self, split: str) -> str:
        return str(self.record.get("signatures", {}).get(split, "no signature: the run has not ended"))

    def decoder(self, split: str) -> str:
        """What a split's outputs were decoded with: a signature says it."""
        said = re.search(r"\|decoder:([^|\n]+)", self.signature(split))
        return said[1] if said else str(self.settings.get("decoder") or "greedy")


def read_runs(folders: Sequence[str | Path]) -> list[RunFolder]:
    """Each folder's run, or the runs one level below it, under names that tell them apart; what others go on from is
    first."""
    found: dict[Path, RunFolder] = {}
    for given in map(Path, folders):
        inside = [given] if is_run(given) else sorted(filter(is_run, given.glob("*")))
        if not inside:
            raise UserError(f"no run in {str(given)!r}: give a folder that `mgs train` or `mgs reproduce` wrote")
        found |= {folder.resolve(): read_run(folder) for folder in inside}
    names = distinct_names(found)
    runs = [replace(run, name=name) for run, name in zip(found.values(), names, strict=True)]
    return sorted(runs, key=lambda run: not any(other.goes_on_from(run) for other in runs))


def is_run(folder: Path) -> bool:
    return any((folder / part).is_file() for part in PARTS)


def read_run(folder: Path) -> RunFolder:
    record = read_json(folder / RECORD)
    settings = record.get("settings") or read_json(folder / SETTINGS) or with_method(read_yaml(folder / YAML))
    outputs = [line for line in read_lines(folder / OUTPUTS) if line.keys() >= KEYS]
    shown = {name: value for name, value in flat(settings) if name not in PLACES}
    return RunFolder(folder, folder.name, shown, record, read_lines(folder / LOG), outputs)


def read_yaml(file: Path) -> dict[str, Any]:
    try:
        found = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return {}
    return found if isinstance(found, dict) else {}


def with_method(settings: dict[str, Any]) -> dict[str, Any]:
    """`mgs.yaml` holds options, of which the method is none; but each method has some of its own."""
    found = [name for name, (config, _) in METHODS.items() if config.__annotations__.keys() <= settings.keys()]
    return {"method": found[0], **settings} if found else settings


def flat(settings: dict[str, Any], before: str = "") -> Iterable[tuple[str, Any]]:
    """A study's settings have settings in them: `data.languages`, `start.method`."""
    for name, value in settings.items():
        if isinstance(value, dict):
            yield from flat(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value


def distinct_names(folders: Iterable[Path]) -> list[str]:
    """The last parts of paths, as many as it takes."""
    paths = list(folders)
    for num in range(1, max(len(path.parts) for path in paths) + 1):
        names = ["/".join(path.parts[-num:]) for path in paths]
        if len(set(names)) == len(names):
            break
    return names
