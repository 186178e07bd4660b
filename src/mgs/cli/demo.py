"""`mgs demo`: the table, three continuations before and after, and the picture."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mgs.cli.arguments import Parser
from mgs.experiments.demo import DemoResult, run_demo, worst_first
from mgs.report.escape import printable
from mgs.report.plots import plot_progress
from mgs.report.tables import figures_table
from mgs.training.config import option
from mgs.training.ranges import check_ranges

SHOWN = ("MLE", "MGS-LM")
PLUMBING = ("save_strategy", "keep_best", "report_to", "eval_steps")


@dataclass
class DemoOptions:
    """The demo."""

    output_dir: str = option("demo", "Folder for results.json, the picture and the trained models.")
    seed: int = option(0, "Seed of batches and candidates.")

    def __post_init__(self) -> None:
        check_ranges(self)


def demo(argv: Sequence[str]) -> None:
    (options,) = Parser((DemoOptions,), "mgs demo", "MLE, MGS, MRT and PG on the embedded corpus, in minutes.").parse(
        argv
    )
    out = Path(options.output_dir)
    out.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    result = run_demo(out, options.seed)
    result.save(out / "results.json")
    cost = {name: [(e["step"], e["lm"]) for e in curve] for name, curve in result.curves.items()}
    perplexity = {name: [(e["step"], e["perplexity"]) for e in curve] for name, curve in result.curves.items()}
    plot_progress(cost, perplexity, out / "progress.png", "LM cost (nats)", "validation prefixes, greedy decoding")
    figures_table(result.rows, result.signature, f"Text completion on the embedded corpus (seed {options.seed})")
    show_settings(result)
    show_continuations(result)
    print(verdict(result))
    folder = printable(out)
    print(
        f"{folder}/results.json, {folder}/progress.png and the trained models; {time.monotonic() - began:.0f} s in all"
    )


def show_settings(result: DemoResult) -> None:
    """What each method was given, beyond the library's defaults."""
    for name, settings in result.settings.items():
        print(f"{name}: " + ", ".join(f"{key} {value}" for key, value in settings.items() if key not in PLUMBING))
    print()


def show_continuations(result: DemoResult, num: int = 3) -> None:
    """Three prefixes, chosen by a rule: those on which the starting model goes on longest."""
    print(f"Continuations of the {num} test prefixes on which MLE goes on longest:\n")
    for index in worst_first(result.continuations["MLE"], num):
        print(f"  {printable(result.prefixes[index].strip())} …")
        for name in SHOWN:
            text = result.continuations[name][index]
            end = " ⟨eos⟩" if text.ended else " → ∞"
            shown = printable(text.strip())
            print(f"    {name:<7} {shown if len(shown) <= 240 else shown[:240] + ' …'}{end}")
        print()


def verdict(result: DemoResult) -> str:
    """What the table says of MGS beside MLE, favourable or not."""
    mle, mgs = result.rows["MLE"], result.rows["MGS-LM"]
    ill, well = (row["nontermination"] + row["repetition"] for row in (mle, mgs))
    change = mgs["perplexity"] / mle["perplexity"] - 1
    met = well <= ill / 2 and mgs["lm"] < mle["lm"] and change <= 0.10
    return (
        f"MGS-LM: non-termination + repetition {ill:.3f} → {well:.3f}, LM cost {mle['lm']:.1f} → {mgs['lm']:.1f}, "
        f"perplexity {change:+.1%}. " + ("" if met else "This run did NOT reach half of MLE's at 10% more perplexity. ")
    )
