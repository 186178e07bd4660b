"""`mgs demo`: the table, three outputs before and after, and the picture."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mgs.cli.arguments import Parser
from mgs.costs import sbleu
from mgs.errors import unknown
from mgs.experiments import translation_demo
from mgs.experiments.demo import DemoResult, run_demo, worst_first
from mgs.experiments.inputs import TASKS
from mgs.report.escape import printable
from mgs.report.plots import plot_progress
from mgs.report.tables import figures_table
from mgs.training.config import option
from mgs.training.ranges import check_ranges
from mgs.types import Text

PLUMBING = ("save_strategy", "keep_best", "report_to", "eval_steps")


@dataclass
class DemoOptions:
    """The demo."""

    task: str = option("completion", "completion: text on the embedded corpus; or translation: names, dates, amounts.")
    output_dir: str = option("demo", "Folder for results.json, the picture and the trained models.")
    seed: int = option(0, "Seed of batches and candidates.")

    def __post_init__(self) -> None:
        if self.task not in TASKS:
            raise unknown("task", self.task, TASKS)
        check_ranges(self)


def demo(argv: Sequence[str]) -> None:
    (options,) = Parser((DemoOptions,), "mgs demo", "MLE, MGS, MRT and PG on the embedded corpus, in minutes.").parse(
        argv
    )
    out = Path(options.output_dir)
    out.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    show = show_translation if options.task == "translation" else show_completion
    print(show(out, options.seed))
    folder = printable(out)
    print(
        f"{folder}/results.json, {folder}/progress.png and the trained models; {time.monotonic() - began:.0f} s in all"
    )


def show_completion(out: Path, seed: int) -> str:
    """Run it, show it, and say what came of it."""
    result = run_demo(out, seed)
    result.save(out / "results.json")
    cost, perplexity = curves(result, "lm"), curves(result, "perplexity")
    plot_progress(cost, perplexity, out / "progress.png", "LM cost (nats)", "validation prefixes, greedy decoding")
    figures_table(result.rows, result.signature, f"Text completion on the embedded corpus (seed {seed})")
    show_settings(result)
    print("Continuations of the 3 test prefixes on which MLE goes on longest:\n")
    show_outputs(result, worst_first(result.continuations["MLE"], 3), ("MLE", "MGS-LM"))
    return verdict(result)


def show_translation(out: Path, seed: int) -> str:
    result = translation_demo.run_translation_demo(out, seed)
    result.save(out / "results.json")
    # The start's many updates would leave no room for the others.
    score, perplexity = (curves(result, figure, without="MLE") for figure in ("sbleu", "perplexity"))
    plot_progress(score, perplexity, out / "progress.png", "sentence BLEU", "validation sentences, greedy decoding")
    figures_table(result.rows, result.signature, f"German into English, CLDR's names, dates and amounts (seed {seed})")
    show_settings(result)
    print("Translations of the 3 test sentences that the start translates worst:\n")
    costs = sbleu(result.continuations["MLE"], result.continuations["Human"])
    worst = sorted(range(len(costs)), key=lambda row: -costs[row])[:3]
    show_outputs(result, worst, ("MLE", "MGS-SBLEU", "Human"), whole=True)
    return translation_demo.verdict(result)


def curves(result: DemoResult, figure: str, without: str = "") -> dict[str, list[tuple[float, float]]]:
    """A watched figure over updates, by method."""
    shown = {name: curve for name, curve in result.curves.items() if name != without}
    return {name: [(entry["step"], entry[figure]) for entry in curve] for name, curve in shown.items()}


def show_settings(result: DemoResult) -> None:
    """What each method was given, beyond the library's defaults."""
    for name, settings in result.settings.items():
        print(f"{name}: " + ", ".join(f"{key} {value}" for key, value in settings.items() if key not in PLUMBING))
    print()


def show_outputs(result: DemoResult, chosen: Sequence[int], methods: Sequence[str], whole: bool = False) -> None:
    """What some methods make of the inputs that a rule chose; those of translation are `whole` sentences."""
    for index in chosen:
        print(f"  {printable(result.prefixes[index].strip())}{'' if whole else ' …'}")
        for name in methods:
            print(f"    {name:<9} {shortened(result.continuations[name][index])}")
        print()


def shortened(text: Text, limit: int = 240) -> str:
    end = " ⟨eos⟩" if text.ended else " → ∞"
    shown = printable(text.strip())
    return (shown if len(shown) <= limit else shown[:limit] + " …") + end


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
