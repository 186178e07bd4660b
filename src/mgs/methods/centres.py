"""What candidates are drawn around: down the gradients of guides. A guide is a loss; the paper's is of likelihood."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import torch
from torch import nn
from tqdm.auto import tqdm

from mgs.candidates import Task
from mgs.errors import NonFinite
from mgs.methods.decoded import decoded_gradient
from mgs.methods.ends import ends_gradient
from mgs.methods.loops import loops_gradient
from mgs.methods.method import Key, Outcome
from mgs.methods.mle import mle_gradient, num_scored
from mgs.methods.parallel import averaged
from mgs.methods.parts import described, parts
from mgs.methods.risk import risk_gradient
from mgs.ranks import ALONE, Ranks
from mgs.search.directions import clipped, norm
from mgs.types import Batch, Direction, Text

GUIDES = ("mle", "ends", "loops", "risk", "decoded")
BY_TOKENS = ("mle", "ends")  # guides whose losses are means over tokens, not over rows
Decoded = Callable[[], Sequence[Text]]  # what the task's decoder makes of some rows, when a guide asks for it


@dataclass(frozen=True)
class Centres:
    """g_j = −∇L_j, clipped: one for each guide, and of the likelihood one for each part of the batch. The same on every
    rank: by the same computation, or, where `over` ranks share the rows, as the mean of what they make of theirs."""

    task: Task
    guides: Sequence[str] = ("mle",)
    num_parts: int = 1
    split: str = "order"
    prefixes: int | None = None  # that guides other than the likelihood take
    num_samples: int = 4  # of each, for `risk`
    max_norm: float = 1.0
    bf16: bool = False
    label_smoothing: float = 0.0
    over: Ranks = ALONE
    progress: bool = False

    def __call__(
        self, model: nn.Module, batch: Batch, key: Key = Key(0, 0)
    ) -> tuple[list[Direction], list[dict[str, Any]]]:
        """The directions, and facts about each for the log."""
        model.train()
        if self.over.size > 1:
            torch.manual_seed(key.number("share", self.over.rank))  # of the dropout
        found, facts = [], []
        decoded = cache(lambda: self.task.decode(model, self._mine(self._some(batch)), key))  # guides share it
        cut = [(guide, part) for guide in self.guides for part in self._parts(batch, guide)]
        for guide, part in tqdm(cut, desc="gradients", leave=False, delay=3, disable=not self.progress):
            mine = self._mine(part)
            whole = averaged(self.over, mine, partial(self._gradient, model, mine, guide, decoded, key))
            length = norm(whole.gradient)
            if not math.isfinite(length):
                raise NonFinite(f"the {guide.upper()} gradient of update {key.step + 1} is not finite")
            down = dict(zip(whole.gradient, torch._foreach_neg(list(whole.gradient.values())), strict=True))
            found.append(clipped(down, self.max_norm))
            facts.append({"guide": guide, "loss": whole.loss, "norm": length, **described(part)})
        return found, facts

    def _parts(self, batch: Batch, guide: str) -> list[Batch]:
        """Of the likelihood, parts that differ; of the rest, all there is: a few rows say little."""
        if guide == "mle":
            return parts(batch, self.num_parts, self.split)
        return [self._some(batch)]

    def _some(self, batch: Batch) -> Batch:
        return batch.select(range(min(len(batch), self.prefixes or len(batch))))

    def _mine(self, batch: Batch) -> Batch:
        return batch.share(self.over.share(len(batch)))

    def _gradient(self, model: nn.Module, batch: Batch, guide: str, decoded: Decoded, key: Key) -> Outcome:
        """∇ of the guide's loss over these rows, and the loss."""
        if guide == "risk":
            found = risk_gradient(self.task, model, batch, self.num_samples, key, self.bf16)
        elif guide == "decoded":
            found = decoded_gradient(self.task, model, batch, decoded(), self.bf16, self.over)
        elif guide == "loops":
            found = loops_gradient(model, batch, decoded(), self.task.end, self.bf16)
        elif guide == "ends":
            found = ends_gradient(model, batch, self.task.end, self.bf16)
        else:
            found = mle_gradient(model, batch, self.bf16, label_smoothing=self.label_smoothing)
        return Outcome(*found, weight=num_scored(batch) if guide in BY_TOKENS else len(batch))
