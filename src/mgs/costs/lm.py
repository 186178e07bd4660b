"""The LM cost: −log p_score(Ŷ | X) under a frozen scoring model, summed to and including ⟨eos⟩."""

from __future__ import annotations

import copy
from collections.abc import Sequence

from torch import nn

from mgs.models.likelihood import score
from mgs.types import Text


class LanguageModelCost:
    """Callable like any cost. The scoring model is usually the starting point of training, frozen: `of(model)`."""

    def __init__(self, model: nn.Module):
        self.model = model

    @classmethod
    def of(cls, model: nn.Module) -> LanguageModelCost:
        """A cost under `model` as it is now, whatever happens to `model` later."""
        return cls(copy.deepcopy(model).eval().requires_grad_(False))

    @property
    def by_group(self) -> bool:
        """On a CPU candidates are scored one by one: rounding depends on what is scored together, and there the same
        run gives the same bits however many processes share its candidates."""
        return next(self.model.parameters()).device.type == "cpu"

    def __call__(self, hypotheses: Sequence[Text], references: Sequence[Text], prefixes: Sequence[Text]) -> list[float]:
        return self._scores([text.token_ids for text in prefixes], [text.token_ids for text in hypotheses])

    def of_prefixes(self, prefixes: Sequence[Text]) -> list[float]:
        """−log p_score(X), of the tokens after the first: a constant of the data, which makes −log p_score(X, Ŷ) of the
        cost."""
        tokens = [text.token_ids for text in prefixes]
        return self._scores([ids[:1] for ids in tokens], [ids[1:] for ids in tokens])

    def _scores(self, given: Sequence[Sequence[int]], scored: Sequence[Sequence[int]]) -> list[float]:
        return [-value for value in score(self.model, given, scored)]
