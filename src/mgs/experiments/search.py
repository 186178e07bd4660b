"""Does a search get there on every seed, and is it the search that does? The recipes, and what they must beat in the
same time: search without gradients, gradients without regard to cost, search for nothing but how likely ends should be,
and steps without search: of MLE, as they are, on short targets alone, or taken only where they decode better, and of
the guide that decodes. See `docs/search.md`."""

from __future__ import annotations

from dataclasses import replace

from mgs.experiments.completion import COSTS, UNIFORM, ZERO_ONLY, Options, Scale, starting, study
from mgs.experiments.inputs import DataOptions
from mgs.experiments.study import Goal, Run, Study, seeded
from mgs.training.recipes import DEPENDABLE, RECIPES

#: Hardly any output without an end, repetition near people's, and next to none of the likelihood lost.
GOAL = Goal(at_most={"nontermination": 0.02, "repetition": 0.06}, times_start={"perplexity": 1.04})
SEEDS = {"smoke": 1, "laptop": 5, "small": 5, "paper": 5}
SECONDS = {"smoke": 1.0, "laptop": 120.0, "small": 60.0, "paper": 3600.0}  # of updates
#: What is shown is where a run is when its time is over, and how it came there from update 0.
WATCHED: Options = {"keep_best": False, "patience": 0, "eval_on_start": True}

SEARCH: Options = RECIPES[DEPENDABLE]
PLAIN: Options = {"optim": "sgd", "weight_decay": 0.0, "max_grad_norm": 1.0}
SHORTEST = 1 / 6  # of a batch, by length of target
#: One gradient or none, whichever decodes better: no temperature is as high as to let both count.
GATE: Options = {
    **SEARCH,
    "guides": ["mle"],
    "likelihood_budget": None,
    "length_unit": "norm",
    "num_gradients": 1,
    "num_candidates": 2,
    "components": "mle",
    "temperature": "1e9",
    "density": "none",
}
#: One number that says how likely ends are, in all but name: the recipe with the guide that does nothing else.
ENDS: Options = {"guides": ["ends"], "num_candidates": 2, "mix": 0.5}
#: Steps along what the recipe's other guide says, whatever they decode.
DECODED: Options = {
    **GATE,
    "guides": ["decoded"],
    "num_candidates": 1,
    "stay": False,
    "score_apart": False,
}


def search(scale: str, data: DataOptions, model: str | None = None) -> Study:
    """Beyond the paper: each row for the same time, from one start."""
    chosen, mle = starting(scale, data, model)
    watched: Options = {} if scale == "smoke" else {"eval_steps": 3}
    large = {**chosen.large, **watched}
    steps = {**PLAIN, "learning_rate": chosen.step, "batch_tokens": chosen.large["batch_tokens"], **watched}
    searches: dict[str, Options] = {
        "paper recipe": {},
        "dependable": {**SEARCH, **large},
        "zero only": ZERO_ONLY,
        "uniform weights": {**SEARCH, **large, **UNIFORM},
        "ends alone": {**SEARCH, **large, **ENDS},
        "gate alone": {**GATE, **large, "lengths": [chosen.step]},
        "decoded steps": {**DECODED, **large, "lengths": [chosen.step / 3], "score_prefixes": 1},
    }
    rows = [
        timed(chosen, scale, f"{cost}: {what}", COSTS[cost], options)
        for cost in COSTS
        for what, options in searches.items()
    ]
    rows += [
        timed(chosen, scale, "plain steps", None, steps),
        timed(chosen, scale, "short targets", None, {**steps, "shortest": SHORTEST}),
    ]
    made = study("search", "Dependable search", chosen, data, [*mle, *seeded(rows, SEEDS[scale])])
    note = (
        f"{chosen.note} Unlike in the other studies each run but MLE's has {SECONDS[scale]:g} s of updates, however "
        "many those are (--jobs 1: runs that share a machine slow each other down), and the figures of its last "
        f"weights, not of its best; {SEEDS[scale]} seeds. Plain steps and short targets are MLE, without a cost."
    )
    return replace(made, note=note, goal=GOAL, figures=("frontier", "transfer"))


def timed(chosen: Scale, scale: str, row: str, cost: str | None, options: Options) -> Run:
    whole = {**chosen.tune, **chosen.timed, **WATCHED, **options}
    return Run(row, "mgs" if cost else "mle", "@MLE", 0, cost, whole, SECONDS[scale])
