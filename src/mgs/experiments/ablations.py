"""What the paper varies in text completion, and what it leaves to future work."""

from __future__ import annotations

from dataclasses import replace

from mgs.experiments.completion import UNDECODED, ZERO_ONLY, Options, Scale, mgs, mixed, starting, study
from mgs.experiments.inputs import DataOptions
from mgs.experiments.study import Run, Study, seeded
from mgs.training.recipes import DEPENDABLE, RECIPES

SHARES = (0.1, 0.3, 0.5)
TEMPERATURES = ("0.01", "0.1", "10.0", "100.0")  # beside 1, the paper's
#: Candidates that may stay where they are: `auto` weighs only those that are better.
AUTO: Options = {"temperature": "auto", "stay": True}


def proposal(scale: str, data: DataOptions, model: str | None = None) -> Study:
    """The mixture, and each of its components alone; and, beyond the paper, the mixture with a tenth of the gradient:
    the whole of it is a step too long for most models."""
    chosen, mle = starting(scale, data, model)
    rows = [
        mgs(chosen, "LM"),
        mgs(chosen, "LM", "zero only", **ZERO_ONLY),
        mgs(chosen, "LM", "MLE only", components="mle"),
        mgs(chosen, "LM", "a tenth of MLE", lengths=[0.1]),
    ]
    made = study("proposal", "Components of the proposal", chosen, data, [*mle, *seeded(rows, chosen.seeds)])
    return replace(made, splits=("valid",), figures=("training cost", "deviation of weights"))


def mixing(scale: str, data: DataOptions, model: str | None = None) -> Study:
    """MRT and PG with MLE for a share of batches, or none; MRT with the greedy and the human sequence among its
    candidates. One seed, as in the paper."""
    chosen, mle = starting(scale, data, model)
    rows = [mgs(chosen, "LM"), mgs(chosen, "edit")]
    for cost in ("LM", "edit"):
        rows += [
            mixed(chosen, "MRT", cost, 0.0, *candidates)
            for candidates in ((), ("greedy",), ("gold",), ("greedy", "gold"))
        ]
        rows.append(mixed(chosen, "PG", cost))
        rows += [mixed(chosen, method, cost, share) for method in ("MRT", "PG") for share in SHARES]
    made = study("mixing", "MRT and PG mixed with MLE", chosen, data, [*mle[:1], *rows])
    return replace(made, splits=("valid",), figures=("mixing share",))


def temperature(scale: str, data: DataOptions, model: str | None = None) -> Study:
    """MGS-LM from nearly uniform weights to nearly one candidate, and with automatic temperature. One seed."""
    chosen, mle = starting(scale, data, model)
    rows = [mgs(chosen, "LM"), mgs(chosen, "LM", "uniform weights", **UNDECODED)]  # α is 1, and 0
    rows += [mgs(chosen, "LM", f"α {value}", temperature=value) for value in TEMPERATURES]
    rows.append(mgs(chosen, "LM", "α auto", **AUTO))
    made = study("temperature", "Temperature of the weights", chosen, data, [*mle[:1], *rows])
    return replace(made, splits=("valid",), figures=("cost over temperature", "MLE weight", "deviation of weights"))


def many(scale: str, data: DataOptions, model: str | None = None) -> Study:
    """Beyond the paper: hundreds of candidates of rank 1 against four of full rank, each for the same time; automatic
    temperature; noise alone, which is an evolution strategy; and many short gradients instead of one."""
    chosen, mle = starting(scale, data, model)
    some, most = chosen.many
    low: Options = {"rank": 1, "num_candidates": some}
    rows: dict[str, Options] = {
        "K = 4": {},
        "K = 4, α auto": AUTO,
        f"K = {some}, rank 1": low,
        f"K = {most}, rank 1": {**low, "num_candidates": most},
        f"K = {some}, rank 1, α auto": {**low, **AUTO},
        # At the level of MGS noise says nothing about other batches; at four times as much it begins to.
        f"ES: zero only, K = {most}, rank 1": {**low, **ZERO_ONLY, "num_candidates": most, "noise": 4.0},
        "dependable": {**RECIPES[DEPENDABLE], **chosen.large},
    }
    runs = seeded([timed(chosen, row, options) for row, options in rows.items()], chosen.seeds)
    made = study("many", "Many candidates, in the same time", chosen, data, [*mle, *runs])
    note = (
        f"{made.note} Each run but MLE's has {chosen.seconds:g} s of updates, however many those are (--jobs 1: runs "
    )
    note += "that share a machine slow each other down)."
    return replace(made, note=note, figures=("progress", "cost over time"))


def timed(chosen: Scale, row: str, options: Options) -> Run:
    """A run that ends by the clock. It does not decode θ: no update needs it."""
    return Run(row, "mgs", "@MLE", 0, "lm", {**chosen.tune, **chosen.timed, **options}, chosen.seconds)
