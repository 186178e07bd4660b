"""Settings that belong together, by name: `MGSConfig(recipe=...)`, `mgs train mgs --recipe NAME`. What is given beside
a recipe wins over it. Why `dependable` is what it is: `docs/search.md`; what `risk` gains: `docs/translation.md`."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from mgs.errors import unknown

PAPER, DEPENDABLE, RISK = "paper", "dependable", "risk"
RECIPES: dict[str, dict[str, Any]] = {
    # The published search, which the defaults are.
    PAPER: {},
    # Two directions that differ in what matters, and prefixes of their own that say whether they help: towards sooner
    # ends, and away from what the decoder makes of the data now, without noise; and staying, where neither is better.
    # Each goes as far as a small helping of likelihood takes it, and so does the mean of those that are better. Adam
    # would make a step of its own size out of that, so it is added as it is.
    DEPENDABLE: {
        "batch_tokens": 131_072,
        "guides": ["ends", "decoded"],
        "guide_prefixes": 128,
        "lengths": [0.9],
        "length_unit": "budget",
        "noise": 0.0,
        "stay": True,
        "num_candidates": 3,
        "mix": 0.3,
        "score_prefixes": 64,
        "score_apart": True,
        "likelihood_budget": 0.04,
        "likelihood_pace": 0.2,
        "temperature": "auto",
        "effective_share": 1.0,
        "optim": "sgd",
        "learning_rate": 1.0,
        "weight_decay": 0.0,
        "max_grad_norm": 0.0,
    },
    # For models that end where they should, as in translation: around the gradient of the expected cost of samples,
    # small steps of Adam, which the weights make smaller where that gradient, at its full length, decodes worse.
    RISK: {
        "batch_tokens": 16_384,
        "guides": ["risk"],
        "temperature": "100.0",
        "noise": 0.1,
        "noise_scale": "global",
        "learning_rate": 2e-5,
        "weight_decay": 1e-4,
        "adam_beta2": 0.98,
    },
}
Config = TypeVar("Config")


def recipe_options(name: str) -> dict[str, Any]:
    if name not in RECIPES:
        raise unknown("recipe", name, RECIPES)
    return RECIPES[name]


def with_recipes(config_type: type[Config]) -> type[Config]:
    """Makes the options of `recipe` the defaults of a call. Only a call knows what it leaves out: once an object is
    made, an option that was given its default looks like one that was not given."""
    plain: Callable[..., None] = config_type.__init__

    @wraps(plain)
    def init(self: Any, *given: Any, **options: Any) -> None:
        plain(self, *given, **{**recipe_options(options.get("recipe", PAPER)), **options})

    config_type.__init__ = init  # type: ignore[method-assign]
    return config_type
