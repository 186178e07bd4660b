"""The paper's translation table: a baseline by MLE, MGS for three costs on top of it, MGS from scratch; and beside them
what the paper cites instead of running, MRT, and PG, and MLE that just goes on.

    smoke   minutes on two cores: formatted dates, units and names in German and English, a tiny model
    laptop  two cores: the same text, a model of one layer a side, trained until its learning rate is zero
    small   one GPU: Multi30k, a model of 10 million parameters
    paper   IWSLT'14 and the paper's own settings: days
"""

from __future__ import annotations

from typing import Any

from mgs.errors import UserError, unknown
from mgs.experiments.inputs import DataOptions
from mgs.experiments.paper import PAPER
from mgs.experiments.paper import TRANSLATION_COLUMNS as COLUMNS
from mgs.experiments.study import Run, Study, seeded
from mgs.training.recipes import RECIPES, RISK

SCALES = ("smoke", "laptop", "small", "paper")
NOISES, TEMPERATURES = (0.01, 0.1, 1.0), (1.0, 10.0, 100.0)

ADAM: dict[str, Any] = {"adam_beta2": 0.98, "weight_decay": 1e-4, "label_smoothing_factor": 0.1, "patience": 0}

#: What each scale trains, from what, and how: from scratch, and when fine-tuning.
SIZES: dict[str, dict[str, Any]] = {
    "smoke": {
        "model": "new:iwslt-tiny",
        "scratch": {"max_steps": 60, "eval_steps": 30, "batch_tokens": 2048, "learning_rate": 3e-3, "warmup_steps": 20},
        "tune": {"max_steps": 4, "eval_steps": 2, "batch_tokens": 1024, "learning_rate": 1e-4},
        "anew": {"max_steps": 4, "eval_steps": 2},
        "seeds": 1,
        "examples": 40,
    },
    "laptop": {
        "model": "new:one-layer",
        "scratch": {
            "max_steps": 2500,
            "eval_steps": 500,
            "save_steps": 500,
            "batch_tokens": 1000,
            "by_length": True,
            "learning_rate": 5e-3,
            "lr_scheduler_type": "cosine",
            "warmup_steps": 300,
        },
        "tune": {"max_steps": 60, "eval_steps": 30, "save_steps": 30, "batch_tokens": 4000, "learning_rate": 1e-4},
        "anew": {"max_steps": 400, "eval_steps": 200, "save_steps": 200, "warmup_steps": 100},
        "seeds": 3,
        "examples": 300,
    },
    "small": {
        "model": "new:iwslt-small",
        "scratch": {
            "max_steps": 1500,
            "eval_steps": 250,
            "batch_tokens": 32_768,
            "by_length": True,
            "learning_rate": 1.5e-3,
            "lr_scheduler_type": "cosine",
            "warmup_steps": 200,
            "save_steps": 250,
        },
        "tune": {"max_steps": 60, "eval_steps": 30, "batch_tokens": 16_384, "learning_rate": 2e-5, "save_steps": 30},
        "anew": {"max_steps": 400, "eval_steps": 200, "save_steps": 200, "warmup_steps": 100},
        "scored": {"score_prefixes": 128},
        "seeds": 3,
        "examples": None,
    },
    "paper": {
        "model": "new:iwslt",
        "scratch": {
            "max_steps": 100_000,
            "eval_steps": 1000,
            "batch_tokens": 8192,  # sources and targets
            "by_length": True,
            "learning_rate": 5e-4,
            "lr_scheduler_type": "inverse_sqrt",
            "warmup_steps": 4000,
        },
        "tune": {
            "max_steps": 10_000,
            "batch_tokens": 32_768,
            "gradient_accumulation_steps": 4,
            "learning_rate": 5e-4,
            "lr_scheduler_type": "inverse_sqrt",
            "warmup_steps": 4000,
        },
        "anew": {},
        "seeds": 1,
        "examples": None,
    },
}
#: The paper's choice on IWSLT'14, by a grid over NOISES and TEMPERATURES: when fine-tuning, and from scratch.
TUNED = {"temperature": "100.0", "noise": 1.0, "noise_scale": "global"}
FROM_SCRATCH = {"temperature": "1.0", "noise": 1.0, "noise_scale": "global"}


def translation(scale: str, data: DataOptions, model: str | None = None) -> Study:
    """The table."""
    size = _size(scale, data, model)
    tune, scratch = {**ADAM, **size["tune"]}, {**ADAM, **size["scratch"]}
    anew = scratch | size["anew"]
    mle = Run("MLE", "mle", size["model"], options=scratch)
    short = [Run("MLE (train, as many updates)", "mle", size["model"], options=anew)] if size["anew"] else []
    scratch_mgs = Run(
        "MGS-SBLEU (train)", "mgs", size["model"], 0, "sbleu", anew | FROM_SCRATCH | size.get("scored", {})
    )
    tuned = [
        Run(f"MGS-{cost.upper()}{what}", "mgs", "@MLE", 0, cost, options)
        for what, options in (("", tune | TUNED), (" (guide risk)", RECIPES[RISK] | tune))
        for cost in ("sbleu", "meteor", "edit")
    ]
    tuned += [
        Run("MRT-SBLEU", "mrt", "@MLE", 0, "sbleu", tune | {"length_normalised": True}),
        Run("PG-SBLEU", "pg", "@MLE", 0, "sbleu", tune),
        Run("MLE (going on)", "mle", "@MLE", 0, None, tune),
    ]
    runs = [mle, scratch_mgs, *short, *seeded(tuned, size["seeds"])]
    return Study(
        "translation", "Translation", data, runs, COLUMNS, examples=size["examples"], paper=PAPER["translation"]
    )


def translation_grid(scale: str, data: DataOptions, model: str | None = None) -> Study:
    """MGS-SBLEU under every noise and temperature of the paper's grid, and with automatic temperature."""
    size = _size(scale, data, model)
    tune = {**ADAM, **size["tune"]}
    runs = [Run("MLE", "mle", size["model"], options={**ADAM, **size["scratch"]})]
    for noise in NOISES:
        for temperature in (*(f"{t}" for t in TEMPERATURES), "auto"):
            options = tune | {"noise": noise, "temperature": temperature, "noise_scale": "global"}
            runs.append(Run(f"noise {noise:g}, α {temperature}", "mgs", "@MLE", 0, "sbleu", options))
    return Study("translation-grid", "Noise and temperature", data, runs, COLUMNS, ("valid",), size["examples"])


def _size(scale: str, data: DataOptions, model: str | None) -> dict[str, Any]:
    if scale not in SCALES:
        raise unknown("scale", scale, SCALES)
    if scale not in ("smoke", "laptop") and data.data is None:
        wanted = "Multi30k" if scale == "small" else "IWSLT'14, German to English"
        raise UserError(
            f"scale {scale!r} needs {wanted}: give --data FOLDER with train, valid and test files and --languages de-en"
        )
    data.task = "translation"
    return SIZES[scale] | ({"model": model} if model else {})
