"""The paper's text completion: the main table with its controls, and the one under ancestral sampling. What else there
is stands in `mgs.experiments.ablations`.

    smoke   minutes on two cores: the shipped model, docstrings, a few updates; shows that all of it runs
    laptop  hours on two cores: the same model and text, as many updates and seeds as a table needs
    small   one GPU: a model of the paper's size that the user names, WikiText-2
    paper   GPT-2 117M, WikiText-103 and the paper's own settings: days
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from mgs.errors import UserError, unknown
from mgs.experiments.inputs import DataOptions
from mgs.experiments.paper import PAPER
from mgs.experiments.study import Run, Study, seeded
from mgs.metrics import COLUMNS
from mgs.training.recipes import DEPENDABLE, RECIPES

COSTS = {"LM": "lm", "edit": "edit"}  # as rows have them, and as the library does
Options = Mapping[str, Any]
#: Algorithm 1 decodes with θ too, lines 1 and 2. It cancels in the update and is what the figure of training shows.
MGS: Options = {"log_base": True}
#: The paper states α = 1 for LM, whose costs differ by nats. Edit is a share: at 1 all weights are alike, and so it has
#: what the paper chose for translation's costs.
OF_COST: dict[str, Options] = {"LM": {}, "edit": {"temperature": "100.0"}}
ZERO_ONLY: Options = {"components": "zero"}
UNIFORM: Options = {"temperature": "0.0", "density": "none"}
#: The same where nothing else needs what candidates decode: one token is as good as all.
UNDECODED: Options = {**UNIFORM, "max_new_tokens": 1, "log_base": False}
#: Of MLE, for a model that has had it: one update of no length.
AS_IT_IS: Options = {
    "max_steps": 1,
    "learning_rate": 0.0,
    "batch_tokens": 512,
    "eval_strategy": "no",
    "save_strategy": "no",
    "keep_best": False,
}


@dataclass(frozen=True)
class Scale:
    """What a scale trains, from what, and how."""

    model: str | None  # None: the user names one
    data: str | None  # likewise
    mle: Options  # of fine-tuning by MLE, the start of all others
    tune: Options  # of every other run
    seeds: int
    #: Of the recipe `dependable`: few updates, of many rows.
    recipe: Options
    mle_seeds: int = 1
    min_length: int = 0  # of sequences, in tokens
    examples: int | None = None
    watched: int | None = None
    seconds: float = 1.0  # of updates, for runs that are to take the same time
    timed: Options = field(default_factory=dict)  # of those runs
    many: tuple[int, int] = (64, 256)  # how many candidates of low rank they have
    #: Of those that have several gradients: rows enough for each of them to be more than noise.
    large: Options = field(default_factory=lambda: {"batch_tokens": 131_072})
    step: float = 0.03  # of controls without a search, in gradients clipped to norm 1: smaller models bear longer ones
    note: str = ""


SCALES: dict[str, Scale] = {
    "smoke": Scale(
        model="small",
        data="docstrings",
        mle={"max_steps": 2, "eval_steps": 2, "save_steps": 2, "batch_tokens": 512, "eval_max_new_tokens": 32},
        tune={
            "max_steps": 2,
            "eval_steps": 2,
            "save_steps": 2,
            "batch_tokens": 256,
            "max_new_tokens": 12,
            "eval_max_new_tokens": 32,
        },
        seeds=1,
        recipe={"max_steps": 1, "eval_steps": 1, "save_steps": 1},
        examples=4,
        many=(6, 8),
        large={"batch_tokens": 1024},
        note="Two updates of each method on the shipped model: this shows that everything runs, and nothing else.",
    ),
    "laptop": Scale(
        model="small",
        data="docstrings",
        mle={**AS_IT_IS, "eval_max_new_tokens": 200},
        tune={
            "max_steps": 300,
            "eval_steps": 50,
            "save_steps": 50,
            "patience": 0,
            "learning_rate": 2e-4,
            "max_new_tokens": 100,
            "eval_max_new_tokens": 200,
        },
        seeds=3,
        recipe={"max_steps": 15, "eval_steps": 3, "save_steps": 3},
        min_length=42,  # the text that the shipped model was fine-tuned on
        examples=300,
        watched=100,
        seconds=300.0,
        timed={"max_steps": 100_000, "eval_steps": 10, "save_steps": 10},
        many=(32, 64),
        large={"batch_tokens": 32_768, "guide_prefixes": 64, "score_prefixes": 32},
        step=0.25,
        note=(
            "Unlike in the paper, the start is the model that ships with this library, a GPT-2 of 4.9 million "
            "parameters (117) that was trained on Wikipedia and fine-tuned by MLE on docstrings, as it is; text and "
            "tokens are its own. All else starts from it, ends after 300 updates at a learning rate of 2e-4 (6.25e-5) "
            "and takes the best of 6 evaluations on 100 prefixes, with 3 seeds (5), which differ in batches and noise. "
            "Decoding ends after 100 tokens in training (1.3 targets) and after 200 in evaluation (500). Figures come "
            "from the first 300 prefixes of each split. The rest is as in the paper."
        ),
    ),
    "small": Scale(
        model=None,
        data=None,
        # Larger batches than the paper's, for a GPU's sake: WikiText-2 is passed through in some 300 updates.
        mle={
            "max_steps": 600,
            "eval_steps": 100,
            "save_steps": 100,
            "batch_tokens": 8192,
            "learning_rate": 1e-4,
            "lr_scheduler_type": "cosine",
            "warmup_steps": 30,
            "patience": 0,
            "bf16": True,
        },
        tune={"max_steps": 300, "eval_steps": 50, "save_steps": 50, "patience": 0, "bf16": True},
        seeds=3,
        recipe={"max_steps": 15, "eval_steps": 3, "save_steps": 3},
        examples=500,
        watched=200,
        seconds=150.0,
        timed={"max_steps": 100_000, "eval_steps": 10, "save_steps": 10},
        large={"batch_tokens": 131_072, "max_new_tokens": 200},  # most targets are shorter
        note=(
            "Unlike in the paper, the start is the model named in the command, fine-tuned by MLE on WikiText-2 (2 "
            "million words, the paper's WikiText-103 has 100): 600 updates of 8,192 tokens (1,024), two passes, with a "
            "learning rate that falls from 1e-4 to zero, the best of 6 evaluations (400,000 updates, the best of 80). "
            "All else starts from that one model (one for each seed), ends after 300 updates (10 evaluations without "
            "a gain) and takes the best of 6 evaluations on 200 prefixes (all), with 3 seeds (5); seeds differ in "
            "batches and noise. Figures come from the first 500 prefixes of each split (all). Tokens are that model's, "
            "so costs, lengths and perplexities are not those of GPT-2. Gradients are in bf16. The rest is as in the "
            "paper: 10 tokens of prefix, batches of 1,024 tokens, 4 candidates or samples, AdamW at 6.25e-5, caps of "
            "1.3 targets in training and 500 tokens in evaluation."
        ),
    ),
    "paper": Scale(
        model="gpt2",
        data="Salesforce/wikitext:wikitext-103-raw-v1",
        mle={"max_steps": 400_000, "eval_steps": 5000, "save_steps": 5000, "patience": 0},
        tune={"max_steps": 100_000, "eval_steps": 100, "patience": 10},
        seeds=5,
        recipe={"max_steps": 1000, "eval_steps": 5, "save_steps": 5},
        mle_seeds=5,
        seconds=6 * 3600.0,
        timed={"patience": 0},
        note="The paper's own settings.",
    ),
}


def completion(scale: str, data: DataOptions, model: str | None = None) -> Study:
    """The main table; two controls, search without the MLE component and with no regard to cost; and what the recipe
    `dependable` comes to."""
    chosen, mle = starting(scale, data, model)
    controls = [mgs(chosen, "LM", "zero only", **ZERO_ONLY), mgs(chosen, "LM", "uniform weights", **UNDECODED)]
    rows = [*table_rows(chosen), *controls, *(dependable(chosen, cost) for cost in COSTS)]
    made = study("completion", "Text completion, greedy decoding", chosen, data, [*mle, *seeded(rows, chosen.seeds)])
    updates = chosen.recipe["max_steps"]
    told = f"Rows called {DEPENDABLE} have {updates} updates of that recipe, each from many more rows."
    return replace(made, note=f"{made.note} {told}")


def sampling(scale: str, data: DataOptions, model: str | None = None) -> Study:
    """The same by ancestral sampling, with which MGS is also trained; MLE, MRT and PG are the main table's."""
    chosen, mle = starting(scale, data, model)
    rows = [
        mgs(chosen, run.row.removeprefix("MGS-"), "sampling", decoder="sample") if run.method == "mgs" else run
        for run in table_rows(chosen)
    ]
    made = study("sampling", "Text completion, ancestral sampling", chosen, data, [*mle, *seeded(rows, chosen.seeds)])
    return replace(made, decoder="sample")


def examples(scale: str, data: DataOptions, model: str | None = None) -> Study:
    """Continuations by the main table's models, and what candidates decode."""
    chosen, mle = starting(scale, data, model)
    made = study("examples", "Examples of continuations", chosen, data, [*mle[:1], *table_rows(chosen)])
    return replace(made, figures=("continuations", "candidates"))


def table_rows(chosen: Scale) -> list[Run]:
    """The main table's rows after MLE. The shares of MLE are those the paper chose for each cost."""
    return [
        run
        for cost, mrt_share in (("LM", 0.1), ("edit", 0.3))
        for run in (mgs(chosen, cost), mixed(chosen, "MRT", cost, mrt_share), mixed(chosen, "PG", cost, 0.1))
    ]


def mgs(chosen: Scale, cost: str, what: str = "", **options: Any) -> Run:
    row = f"MGS-{cost}" + f" ({what})" * bool(what)
    return Run(row, "mgs", "@MLE", 0, COSTS[cost], {**chosen.tune, **MGS, **OF_COST[cost], **options})


def dependable(chosen: Scale, cost: str) -> Run:
    return mgs(chosen, cost, DEPENDABLE, **{**RECIPES[DEPENDABLE], **chosen.large, **chosen.recipe})


def mixed(chosen: Scale, method: str, cost: str, share: float = 0.0, *candidates: str) -> Run:
    """MRT or PG, with MLE for a share of batches; `candidates`, greedy or gold, join MRT's samples."""
    inside = [*candidates, *([f"+MLE {share}"] if share else [])]
    row = f"{method}-{cost}" + (f" ({', '.join(inside)})" if inside else "")
    options = {"mle_share": share} | {f"{kind}_candidate": True for kind in candidates}
    return Run(row, method.lower(), "@MLE", 0, COSTS[cost], {**chosen.tune, **options})


def starting(scale: str, data: DataOptions, model: str | None) -> tuple[Scale, list[Run]]:
    """The scale, and the runs of MLE that all others start from."""
    if scale not in SCALES:
        raise unknown("scale", scale, SCALES)
    chosen = SCALES[scale]
    start, data.data = model or chosen.model, data.data or chosen.data
    if start is None or data.data is None:
        raise UserError(
            f"scale {scale!r} needs a model and WikiText-2: give --model with a folder or a .gguf file, and --data "
            "FOLDER with its train, valid and test files"
        )
    data.task, data.min_length = "completion", data.min_length or chosen.min_length
    return chosen, seeded([Run("MLE", "mle", start, options=chosen.mle)], chosen.mle_seeds)


def study(name: str, title: str, chosen: Scale, data: DataOptions, runs: Sequence[Run]) -> Study:
    return Study(
        name,
        title,
        data,
        runs,
        tuple(COLUMNS),
        examples=chosen.examples,
        watched=chosen.watched,
        paper=PAPER.get(name, {}),
        note=chosen.note,
    )
