"""Searches on the shipped model, each for the same CPU seconds of updates on one thread, from the same weights.

python benchmarks/search.py DIR [--cost COST] [--rows ROW ...] [--seeds N] [--seconds S]

Prints a line for each run (test prefixes) and keeps everything in DIR; what is there is not run again.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from mgs.experiments import stopwatch
from mgs.experiments.completion import AS_IT_IS, UNIFORM, ZERO_ONLY
from mgs.experiments.inputs import DataOptions
from mgs.experiments.running import execute, records
from mgs.experiments.search import ENDS, GOAL, PLAIN, WATCHED
from mgs.experiments.study import Run, Study
from mgs.metrics import COLUMNS
from mgs.training.outputs import write_json
from mgs.training.recipes import DEPENDABLE, RECIPES

#: The recipe cut down to what a core can do: fewer prefixes.
SIZED: dict[str, Any] = {
    **RECIPES[DEPENDABLE],
    "batch_tokens": 32_768,
    "guide_prefixes": 64,
    "score_prefixes": 32,
}
ONE = {"num_gradients": 1, "components": "mle", "likelihood_budget": None, "length_unit": "norm"}
GATE = {**ONE, "guides": ["mle"], "lengths": [0.5], "num_candidates": 2, "temperature": "1e9"}
DECODED = {**ONE, "guides": ["decoded"], "num_candidates": 1, "lengths": [0.1], "stay": False, "score_apart": False}
STEP = {**PLAIN, "batch_tokens": 16_384, "learning_rate": 0.25}
#: To where the guide leads in twenty steps, which hold themselves to the start, or staying.
WALK = {
    **ONE,
    "guides": ["stops"],
    "guide_prefixes": 200,
    "batch_tokens": 80_000,
    "walk_steps": 20,
    "walk_rate": 6e-4,
    "walk_weight": 0.05,
    "max_grad_norm": 0.0,
    "num_candidates": 2,
    "lengths": [1.0],
}
ROWS: dict[str, dict[str, Any]] = {
    "paper": {},
    "paper, zero only": ZERO_ONLY,
    "dependable": SIZED,
    "ends alone": {**SIZED, **ENDS},
    "decoded alone": {**SIZED, **ENDS, "guides": ["decoded"]},
    "loops alone": {**SIZED, **ENDS, "guides": ["loops"]},
    "loops and decoded": {**SIZED, "guides": ["loops", "decoded"]},
    "loops and ends": {**SIZED, "guides": ["loops", "ends"]},
    "ends, loops and decoded": {**SIZED, "guides": ["ends", "loops", "decoded"], "num_candidates": 4, "mix": 0.25},
    "stops alone": {**SIZED, **ENDS, "guides": ["stops"]},
    "stops and decoded": {**SIZED, "guides": ["stops", "decoded"]},
    "walks to stops": {**SIZED, **WALK},
    "uniform weights": {**SIZED, **UNIFORM},
    "gate alone": {**SIZED, **GATE, "batch_tokens": 16_384},
    "decoded steps": {**SIZED, **DECODED, "score_prefixes": 1, "batch_tokens": 16_384},
    "plain steps": STEP,
    "short targets": {**STEP, "shortest": 1 / 6},
}
MLE_ROWS = ("plain steps", "short targets")
COMMON = {"max_steps": 100_000, "eval_steps": 100_000, "max_new_tokens": 80, "eval_max_new_tokens": 200, **WATCHED}


def study_of(cost: str, rows: list[str], seeds: int, seconds: float) -> Study:
    start = Run("MLE", "mle", "small", options={**AS_IT_IS, "eval_max_new_tokens": COMMON["eval_max_new_tokens"]})
    runs = [
        Run(row, "mle" if row in MLE_ROWS else "mgs", "@MLE", seed, None if row in MLE_ROWS else cost, options, seconds)
        for row in rows
        for seed in range(seeds)
        for options in ({**COMMON, **ROWS[row]},)
    ]
    runs = [start, *(replace(run, options={**run.options, "save_strategy": "no"}) for run in runs)]
    data = DataOptions(task="completion", data="docstrings", min_length=42)
    return Study("search", "Searches on the shipped model", data, runs, tuple(COLUMNS), ("test",), 100, goal=GOAL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--cost", default="lm")
    parser.add_argument("--rows", nargs="*", default=list(ROWS), choices=ROWS, metavar="ROW")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=60.0)
    given = parser.parse_args()
    torch.set_num_threads(1)
    stopwatch.time = SimpleNamespace(monotonic=time.process_time)  # type: ignore[attr-defined]  # others may use the machine
    study = study_of(given.cost, given.rows, given.seeds, given.seconds)
    for run in study.runs:
        execute(study, run, given.out, progress=False)
        record = json.loads((given.out / run.name / "record.json").read_text())
        figures = record["figures"]["test"]
        shown = ("lm", "edit", "nontermination", "repetition", "length", "perplexity")
        told = ", ".join(f"{name} {figures[name]:.3f}" for name in shown)
        print(f"{run.name}: {record['updates']} updates, {record['update_seconds']} s; {told}", flush=True)
    write_json(given.out / "search.json", {"title": study.title, "rows": records(study, given.out)})


if __name__ == "__main__":
    main()
