"""Which numbers the options of training may be, and which options of the library's are none here: said before anything
is loaded, instead of deep inside a run or not at all."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from mgs.errors import UserError

MANY = 1_000_000  # more than anyone can wait for; it also keeps a slip of the keyboard from filling the memory

#: Option → the least and the greatest it may be.
RANGES: dict[str, tuple[float, float]] = {
    "max_steps": (-1, math.inf),
    "num_train_epochs": (0, MANY),
    "max_new_tokens": (1, math.inf),
    "eval_max_new_tokens": (1, math.inf),
    "patience": (0, math.inf),
    "ema": (0, 0.999999),
    "seed": (0, 2**32 - 1),
    "data_seed": (0, 2**32 - 1),
    "learning_rate": (0, math.inf),
    "weight_decay": (0, math.inf),
    "max_grad_norm": (0, math.inf),
    "adam_beta1": (0, 0.999999),
    "adam_beta2": (0, 0.999999),
    "adam_epsilon": (0, math.inf),
    "label_smoothing_factor": (0, 1),
    "warmup_steps": (0, math.inf),
    "logging_steps": (0, math.inf),
    "eval_steps": (0, math.inf),
    "save_steps": (0, math.inf),
    "save_total_limit": (1, math.inf),
    "shortest": (0, 1),
    "num_candidates": (1, MANY),
    "effective_share": (0, 1),
    "guide_prefixes": (1, math.inf),
    "walk_steps": (0, MANY),
    "walk_rate": (0, math.inf),
    "walk_weight": (0, math.inf),
    "walk_rows": (1, MANY),
    "num_gradients": (1, MANY),
    "lengths": (-math.inf, math.inf),
    "noise": (0, math.inf),
    "score_prefixes": (1, math.inf),
    "halvings": (0, 30),
    "likelihood_weight": (0, math.inf),
    "likelihood_budget": (0, math.inf),
    "likelihood_pace": (0, 1),
    "probe_transfer": (0, MANY),
    "gradient_norm": (0, math.inf),
    "num_samples": (1, MANY),
    "risk_temperature": (0, math.inf),
    "baseline_decay": (0, 1),
}
#: Of those, the ones that may come near 0 but not be it.
MORE_THAN_ZERO = ("num_train_epochs", "eval_steps")

#: Option of the library's that nothing here reads → what does its work.
INSTEAD = {
    "per_device_train_batch_size": "batch_tokens says how large batches are",
    "per_device_eval_batch_size": "evaluations decode as many rows at once as fit",
    "auto_find_batch_size": "batch_tokens says how large batches are",
    "metric_for_best_model": "best_by names the figure that tells the best evaluation",
}


def check_ranges(config: Any) -> None:
    """Every number of a configuration that is in the table is finite and within its bounds."""
    for name, (least, greatest) in RANGES.items():
        given = getattr(config, name, None)
        for number in given if isinstance(given, (list, tuple)) else [given]:
            if isinstance(number, (int, float)) and not (least <= number <= greatest and abs(number) < math.inf):
                raise UserError(f"{name} must be {_allowed(least, greatest)}, got {number}")
    for name in MORE_THAN_ZERO:
        if getattr(config, name, None) == 0:
            raise UserError(f"{name} must be more than 0, got 0")
    if getattr(config, "max_steps", None) == 0:
        raise UserError("max_steps must be at least 1, or -1 to train for num_train_epochs; got 0")


def check_unused(config: Any, changed: Iterable[str]) -> None:
    """None of these options was given; a copy of a configuration has the figure that it chose itself."""
    chosen = f"eval_{config.best_by or config.own_best}"
    for name in changed:
        if name in INSTEAD and getattr(config, name) != chosen:
            raise UserError(f"{name} is not used by these trainers: {INSTEAD[name]}")


def _allowed(least: float, greatest: float) -> str:
    if least == -math.inf:
        return "a finite number"
    return f"at least {least} and " + (f"at most {greatest:,}" if greatest < math.inf else "finite")
