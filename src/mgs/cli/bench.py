"""`mgs bench`: how fast updates are on this machine."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from mgs.cli.arguments import Parser
from mgs.errors import UserError, unknown
from mgs.experiments.bench import MODELS, Bench, run_bench
from mgs.experiments.inputs import check_output
from mgs.report.plots import plot_per_candidate
from mgs.training.config import option

PICTURES = (".png", ".pdf", ".svg")


@dataclass
class BenchOptions:
    """What to measure."""

    models: str | None = option(
        None, f"Models, comma-separated, of {', '.join(MODELS)} (default: gpt2,llama on a GPU)."
    )
    json: str | None = option(None, "File for everything that was measured.")
    plot: str | None = option(None, "File for a picture of time per candidate over their number.")
    new_tokens: int = option(128, "Tokens decoded for each prefix.")
    quick: bool = option(False, "Fewer candidates and tokens: a minute on two cores.")

    def __post_init__(self) -> None:
        if self.new_tokens < 8:
            raise UserError(f"new_tokens must be at least 8 to time a step, got {self.new_tokens}")
        for name in self.models.split(",") if self.models is not None else ():
            if name not in MODELS:
                raise unknown("model", name, MODELS)
        check_output(self.json)
        check_output(self.plot)
        if self.plot and Path(self.plot).suffix not in PICTURES:
            raise unknown("kind of picture", Path(self.plot).suffix, PICTURES)


def bench(argv: Sequence[str]) -> None:
    parser = Parser((BenchOptions,), "mgs bench", "Time updates: candidates one by one, as one batch, decoding alone.")
    (options,) = parser.parse(argv)
    gpu = torch.cuda.is_available()
    results = []
    for name in (options.models or ("gpt2,llama" if gpu else "small")).split(","):
        setting = Bench(name, new_tokens=options.new_tokens)
        if not gpu:
            setting = replace(setting, many=(4, 16, 64), compared=(16, 64), repeats=1)
        if options.quick:
            setting = replace(setting, new_tokens=min(32, options.new_tokens), many=(4, 16), compared=(16,), repeats=1)
        results.append(run_bench(setting))
        if options.json:
            Path(options.json).write_text(json.dumps(results, indent=2) + "\n")
    if options.plot:
        plot_per_candidate(results, Path(options.plot))
