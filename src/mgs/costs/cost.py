"""A task cost, by name or as the user's own function, called with care.

A cost is `cost(hypotheses, references, **columns) -> list[float] | float`: one value a sequence, or one for all of them
together. It is given the columns it has parameters for: `prefixes`, and those of the user's dataset.
"""

from __future__ import annotations

import inspect
import math
import numbers
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from mgs.costs.lm import LanguageModelCost
from mgs.costs.sequence import edit, nontermination, repetition
from mgs.errors import CostError, UserError, unknown
from mgs.types import Text

CostFunction = Callable[..., "Iterable[float] | float"]

#: Costs that need nothing but the sequences. `lm` is the other name: it needs a scoring model.
COSTS: dict[str, CostFunction] = {"edit": edit, "repetition": repetition, "nontermination": nontermination}
COST_NAMES = ("lm", *COSTS)


@dataclass(frozen=True)
class Cost:
    """A named cost whose values have been checked."""

    name: str
    function: CostFunction

    @classmethod
    def of(cls, cost: str | CostFunction | Cost, scorer: nn.Module | None = None) -> Cost:
        """`cost` by name (`lm` scores with a frozen copy of `scorer`), or a callable."""
        if isinstance(cost, Cost):
            return cost
        if callable(cost):
            return cls(getattr(cost, "__name__", type(cost).__name__), cost)
        if cost == "lm":
            if scorer is None:
                raise UserError("the cost 'lm' needs a scoring model: give the model that training starts from")
            return cls("lm", LanguageModelCost.of(scorer))
        if cost not in COSTS:
            raise unknown("cost", cost, COST_NAMES)
        return cls(cost, COSTS[cost])

    def per_sequence(self, hypotheses: Sequence[Text], references: Sequence[Text], /, **columns: Any) -> list[float]:
        """One value for each hypothesis; a cost of the whole corpus cannot give that."""
        values = self._call(hypotheses, references, columns)
        if isinstance(values, float):
            raise CostError(
                f"the cost {self.name!r} gave one value for the whole corpus, but this method weights single "
                "sequences: return one value a sequence, or use MGS, which takes both"
            )
        return values

    def mean(self, hypotheses: Sequence[Text], references: Sequence[Text], /, **columns: Any) -> float:
        """C(θ): the mean over sequences, or the corpus's own value."""
        values = self._call(hypotheses, references, columns)
        return values if isinstance(values, float) else math.fsum(values) / len(values)

    def _call(
        self, hypotheses: Sequence[Text], references: Sequence[Text], columns: dict[str, Any]
    ) -> list[float] | float:
        try:
            values = self.function(hypotheses, references, **_wanted(self.function, columns))
            if isinstance(values, Iterator):
                values = list(values)  # a generator raises only now
        except CostError:
            raise
        except Exception as error:
            raise CostError(
                f"the cost {self.name!r} raised {type(error).__name__}: {error} "
                f"(on {len(hypotheses)} hypotheses, the first {_shown(hypotheses[0])})"
            ) from error
        if isinstance(values, numbers.Real) or getattr(values, "ndim", None) == 0:
            return self._number(values, "the corpus", None)
        if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
            raise CostError(
                f"the cost {self.name!r} returned {type(values).__name__}: return a number or one a sequence"
            )
        listed = list(values)
        if len(listed) != len(hypotheses):
            raise CostError(f"the cost {self.name!r} returned {len(listed)} values for {len(hypotheses)} hypotheses")
        return [self._number(value, f"sequence {i}", hypotheses[i]) for i, value in enumerate(listed)]

    def _number(self, value: Any, where: str, hypothesis: Text | None) -> float:
        shown = f": {_shown(hypothesis)}" if hypothesis is not None else ""
        try:
            if isinstance(value, (str, bytes)):
                raise TypeError
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            raise CostError(f"the cost {self.name!r} returned {value!r} for {where}, not a number{shown}") from None
        if not math.isfinite(number):
            raise CostError(f"the cost {self.name!r} returned {number} for {where}{shown}: costs must be finite")
        return number


def _wanted(function: CostFunction, columns: dict[str, Any]) -> dict[str, Any]:
    """The columns that the function has parameters for; its first two are the hypotheses and the references."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # built in C: no signature to look at
        return {}
    taken, free = {parameter.name for parameter in parameters[:2]}, {parameter.name for parameter in parameters[2:]}
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        free |= set(columns)
    return {name: values for name, values in columns.items() if name in free - taken}


def _shown(text: Text, limit: int = 80) -> str:
    return repr(str(text) if len(text) <= limit else str(text)[:limit] + "…")
