"""What candidates are drawn around: where guides lead from θ.

A guide is a loss; the paper's is that of likelihood. Its centre is down its gradient (Algorithm 1, line 3), or at the
end of a walk of many steps that is held to the start.
"""

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
from mgs.methods.stops import stops_gradient
from mgs.methods.walk import Walk, divergence_gradient, same_weights
from mgs.ranks import ALONE, Ranks
from mgs.search.directions import clipped, norm
from mgs.types import Batch, Direction, Text

GUIDES = ("mle", "ends", "loops", "stops", "risk", "decoded")
BY_TOKENS = ("mle", "ends")  # guides whose losses are means over tokens, not over rows, ...
OF_DECODED = ("loops", "stops", "decoded")  # ... and those that look at what the decoder makes of the rows
#: What that is, made when a guide first asks for it.
Decoded = Callable[[], Sequence[Text]]


@dataclass(frozen=True)
class Centres:
    """One for each guide, and of likelihood one for each part of the batch. The same on every rank: by the same
    computation, or, where `over` ranks share the rows, as the mean of what they make of theirs."""

    task: Task
    guides: Sequence[str] = ("mle",)
    num_parts: int = 1
    split: str = "order"
    prefixes: int | None = None  # that guides other than likelihood take
    num_samples: int = 4  # of each, for `risk`
    walk: Walk | None = None
    anchor: nn.Module | None = None  # what walks are held to
    max_norm: float = 1.0  # of a gradient
    bf16: bool = False
    label_smoothing: float = 0.0
    over: Ranks = ALONE
    progress: bool = False

    def __call__(
        self, model: nn.Module, batch: Batch, key: Key = Key(0, 0)
    ) -> tuple[list[Direction], list[dict[str, Any]]]:
        """As directions from θ, and facts about each for the log."""
        model.train()
        if self.over.size > 1:
            torch.manual_seed(key.number("share", self.over.rank))  # of the dropout
        found, facts = [], []
        decoded = cache(lambda: self.task.decode(model, self._mine(self._some(batch)), key))  # guides share it
        cut = [(guide, part) for guide in self.guides for part in self._parts(batch, guide)]
        for guide, part in tqdm(cut, desc="gradients", leave=False, delay=3, disable=not self.progress):
            mine = self._mine(part)
            if self.walk is None:
                centre, fact = self._down(model, mine, guide, decoded, key)
            else:
                centre, fact = self._walked(self.walk, model, self._mine(batch), mine, guide, decoded, key)
            if not math.isfinite(fact["norm"]):
                raise NonFinite(f"the {guide.upper()} gradient of update {key.step + 1} is not finite")
            found.append(centre)
            facts.append({"guide": guide, **fact, **described(part)})
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

    def _down(
        self, model: nn.Module, mine: Batch, guide: str, decoded: Decoded, key: Key
    ) -> tuple[Direction, dict[str, Any]]:
        """−∇ of the guide's loss, clipped."""
        whole = averaged(self.over, mine, partial(self._gradient, model, mine, guide, decoded, key))
        down = dict(zip(whole.gradient, torch._foreach_neg(list(whole.gradient.values())), strict=True))
        return clipped(down, self.max_norm), {"loss": whole.loss, "norm": norm(down)}

    def _walked(
        self, walk: Walk, model: nn.Module, holding: Batch, leading: Batch, guide: str, decoded: Decoded, key: Key
    ) -> tuple[Direction, dict[str, Any]]:
        """Where the guide leads step by step, while all rows hold it back. What has been put right since the start is
        what the start pulls back: so the guide is asked about what that decodes, too."""
        assert self.anchor is not None
        anchor, num = self.anchor, len(leading.all)
        texts = [decoded()] if guide in OF_DECODED else [[]]
        if guide in OF_DECODED and not same_weights(model, anchor):
            texts.append(self.task.decode(anchor, leading, key))

        def hold(numbers: Sequence[int]) -> Outcome:
            some = holding.share(_own(holding, numbers))

            def found() -> Outcome:
                return Outcome(*divergence_gradient(model, anchor, some, self.bf16), weight=num_scored(some))

            return averaged(self.over, some, found)

        def lead(numbers: Sequence[int]) -> Outcome:
            own = [_own(leading, [n - k * num for n in numbers]) for k in range(len(texts))]
            some = leading.share([row for rows in own for row in rows])
            theirs = [of[row] for of, rows in zip(texts, own, strict=True) for row in rows if of] or texts[0][:1]
            return averaged(self.over, some, partial(self._gradient, model, some, guide, lambda: theirs, key))

        counted = len(holding.all), num * len(texts)
        centre, held, led = walk(model, hold, lead, counted, key.number("walk", guide))
        return centre, {"loss": led, "divergence": held, "norm": norm(centre)}

    def _gradient(self, model: nn.Module, batch: Batch, guide: str, decoded: Decoded, key: Key) -> Outcome:
        """∇ of the guide's loss over these rows, and the loss."""
        end = self.task.end
        if guide == "risk":
            found = risk_gradient(self.task, model, batch, self.num_samples, key, self.bf16)
        elif guide == "decoded":
            found = decoded_gradient(self.task, model, batch, decoded(), self.bf16, self.over)
        elif guide == "loops":
            found = loops_gradient(model, batch, decoded(), end, self.bf16)
        elif guide == "stops":
            found = stops_gradient(model, batch, decoded(), end, self.bf16)
        elif guide == "ends":
            found = ends_gradient(model, batch, end, self.bf16)
        else:
            found = mle_gradient(model, batch, self.bf16, label_smoothing=self.label_smoothing)
        return Outcome(*found, weight=num_scored(batch) if guide in BY_TOKENS else len(batch))


def _own(share: Batch, numbers: Sequence[int]) -> list[int]:
    """Which rows of a share have these numbers in the whole batch."""
    wanted = set(numbers)
    return [row for row, number in enumerate(share.numbers) if number in wanted]
