"""A task cost, by name or as the user's own function, called with care.

A cost is `cost(hypotheses, references, **columns) -> list[float] | float`: one value a sequence, or one for all of them
together. It is given the columns it has parameters for: `prefixes`, and those of the user's dataset.
"""

from __future__ import annotations

import inspect
import math
import numbers
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from torch import nn

from mgs.costs.limit import Late, time_limit
from mgs.costs.lm import LanguageModelCost
from mgs.costs.meteor import meteor
from mgs.costs.sequence import edit, nontermination, repetition
from mgs.costs.translation import bleu, chrf, sbleu
from mgs.costs.wordnet import folder
from mgs.errors import CostError, NonFiniteCost, UserError, unknown
from mgs.types import Text

CostFunction = Callable[..., "Iterable[float] | float"]

#: Costs that read tokens alone.
TOKEN_COSTS: dict[str, CostFunction] = {"edit": edit, "repetition": repetition, "nontermination": nontermination}
#: Costs that need nothing but the sequences. `lm` is the other name: it needs a scoring model.
COSTS: dict[str, CostFunction] = {**TOKEN_COSTS, "sbleu": sbleu, "bleu": bleu, "chrf": chrf, "meteor": meteor}
COST_NAMES = ("lm", *COSTS)


@dataclass(frozen=True)
class Cost:
    """A named cost whose values have been checked. A call may take `seconds`; `by_sequence` is the option, if any, that
    asks about parts of a batch, which makes one value for all of its rows together impossible."""

    name: str
    function: CostFunction
    seconds: float | None = None
    by_sequence: str | None = None

    @property
    def reads_text(self) -> bool:
        """Whether it may look at the strings. Where it reads tokens alone, none are made."""
        return type(self.function) is not LanguageModelCost and self.function not in TOKEN_COSTS.values()

    @classmethod
    def of(cls, cost: str | CostFunction | Cost, scorer: nn.Module | None = None) -> Cost:
        """`cost` by name (`lm` scores with a frozen copy of `scorer`), or a callable."""
        if isinstance(cost, Cost):
            return cost
        if callable(cost):
            return cls(getattr(cost, "__name__", type(cost).__name__), cost)
        if not isinstance(cost, str):
            raise UserError(f"a cost is a function or one of {', '.join(COST_NAMES)}; got a {type(cost).__name__}")
        if cost == "lm":
            if scorer is None:
                raise UserError("the cost 'lm' needs a scoring model: give the model that training starts from")
            return cls("lm", LanguageModelCost.of(scorer))
        if cost not in COSTS:
            raise unknown("cost", cost, COST_NAMES)
        if cost == "meteor":
            folder()  # say that WordNet is missing before anything is trained
        return cls(cost, COSTS[cost])

    def per_sequence(self, hypotheses: Sequence[Text], references: Sequence[Text], /, **columns: Any) -> list[float]:
        """One value for each hypothesis; a cost of the whole corpus cannot give that."""
        values = self._call(hypotheses, references, columns)
        if isinstance(values, float):
            raise CostError(
                f"the cost {self.name!r} gave one value for the whole corpus, but this method weights single "
                "sequences: return one value a sequence, or use MGS with guides mle (MGSTrainer, mgs train mgs), which "
                "takes both"
            )
        return values

    def mean(self, hypotheses: Sequence[Text], references: Sequence[Text], /, **columns: Any) -> float:
        """C(θ): the mean over sequences, or the corpus's own value."""
        return _mean(self._call(hypotheses, references, columns))

    def means(
        self, groups: Sequence[Sequence[Text]], references: Sequence[Text], /, **columns: Sequence[Any]
    ) -> list[float]:
        """`mean` of each group of hypotheses, all against the same references and columns.

        Candidates often decode the same sequence for the same row. A cost a sequence is asked once about each: on the
        first group, which tells what kind of cost it is, and then on all that the other groups hold besides. A function
        with an attribute `by_group` that is true, whose value for a sequence depends on what it is asked about together
        with it (be it by rounding), is asked about each group by itself.
        """
        if not groups:
            return []
        if any(len(group) != len(references) for group in groups):
            raise ValueError(f"groups of {sorted({*map(len, groups)})} hypotheses for {len(references)} references")
        values = self._call(groups[0], references, columns)
        if isinstance(values, float) and self.by_sequence and len(references) > 1:
            raise CostError(
                f"the cost {self.name!r} gave one value for the whole corpus, but is asked about parts of each batch: "
                f"leave out {self.by_sequence}, or return one value a sequence"
            )
        if isinstance(values, float) or getattr(self.function, "by_group", False):
            return [_mean(values), *(self.mean(group, references, **columns) for group in groups[1:])]
        members, places = _distinct(groups)
        values += self._further(members[len(values) :], references, columns)
        return [math.fsum(values[place] for place in group) / len(group) for group in places]

    def _further(
        self, members: Sequence[tuple[int, Text]], references: Sequence[Text], columns: dict[str, Sequence[Any]]
    ) -> list[float]:
        """Values of (row, hypothesis) pairs under a cost that has given one a sequence before."""
        if not members:
            return []
        rows, hypotheses = [row for row, _ in members], [text for _, text in members]
        repeated = {name: [column[row] for row in rows] for name, column in columns.items()}
        values = self._call(hypotheses, [references[row] for row in rows], repeated)
        if not isinstance(values, float):
            return values
        if len(rows) > 1:
            raise CostError(
                f"the cost {self.name!r} gave one value a sequence and then one for {len(rows)} hypotheses together: "
                "return the same kind every time"
            )
        return [values]  # arrays of one value often lose their dimension

    def _call(
        self, hypotheses: Sequence[Text], references: Sequence[Text], columns: dict[str, Any]
    ) -> list[float] | float:
        wanted = self._wanted(columns)
        try:
            # Lists of its own: a cost may well sort what it is given.
            with time_limit(self.seconds):
                values = self.function(list(hypotheses), list(references), **wanted)
                if isinstance(values, Iterator):
                    values = list(values)  # a generator raises only now
        except Late:
            raise CostError(
                f"the cost {self.name!r} did not answer within {self.seconds:g} s "
                f"(on {len(hypotheses)} hypotheses, the first {_shown(hypotheses[0])}): allow more with cost_timeout"
            ) from None
        except (UserError, KeyboardInterrupt):
            raise
        except BaseException as error:  # also SystemExit: a cost may stop a run, but not without a word
            raise CostError(
                f"the cost {self.name!r} raised {_said(error)} "
                f"(on {len(hypotheses)} hypotheses, the first {_shown(hypotheses[0])})"
            ) from error
        if inspect.iscoroutine(values):
            values.close()  # or Python warns that nobody waited for it
        if isinstance(values, numbers.Real) or getattr(values, "ndim", None) == 0:
            return self._number(values)
        if isinstance(values, (str, bytes, Mapping, Set)) or not isinstance(values, Iterable):
            raise CostError(
                f"the cost {self.name!r} returned {type(values).__name__}: return a number or one a sequence"
            )
        # Out of an array all at once: one by one would wait for the GPU at each.
        tolist = getattr(values, "tolist", None) if getattr(values, "ndim", None) == 1 else None
        listed = tolist() if tolist else self._list(values)
        if len(listed) != len(hypotheses):
            raise CostError(f"the cost {self.name!r} returned {len(listed)} values for {len(hypotheses)} hypotheses")
        return [self._number(value, i, hypotheses[i]) for i, value in enumerate(listed)]

    def _wanted(self, columns: dict[str, Any]) -> dict[str, Any]:
        """The columns that the function has parameters for; its first two are the hypotheses and the references."""
        try:
            parameters = list(inspect.signature(self.function).parameters.values())
        except (TypeError, ValueError):  # built in C: no signature to look at
            return {}
        taken, free = {p.name for p in parameters[:2]}, {p.name: p for p in parameters[2:]}
        needed = [
            name for name, p in free.items() if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
        ]
        if missing := [name for name in needed if name not in columns]:
            raise CostError(
                f"the cost {self.name!r} asks for the column {missing[0]!r}, which not every row of the dataset has "
                f"(there are: {', '.join(columns) or 'none'})"
            )
        everything = any(p.kind is p.VAR_KEYWORD for p in parameters)
        return {name: values for name, values in columns.items() if name not in taken and (everything or name in free)}

    def _list(self, values: Iterable[Any]) -> list[Any]:
        try:
            return list(values)
        except Exception as error:
            raise CostError(
                f"the cost {self.name!r} returned a {type(values).__name__} that cannot be gone through: {_said(error)}"
            ) from None

    def _number(self, value: Any, row: int | None = None, hypothesis: Text | None = None) -> float:
        """A finite float; without a row it is of the whole corpus."""
        try:
            if isinstance(value, (str, bytes)):
                raise TypeError
            number = float(value)
        except Exception:  # whatever the conversion of the user's own type raises
            where, shown = _place(row, hypothesis)
            raise CostError(
                f"the cost {self.name!r} returned {reprlib.repr(value)} for {where}, not a number{shown}"
            ) from None
        if not math.isfinite(number):
            where, shown = _place(row, hypothesis)
            raise NonFiniteCost(f"the cost {self.name!r} returned {number} for {where}{shown}: costs must be finite")
        return number


def _mean(values: list[float] | float) -> float:
    return values if isinstance(values, float) else math.fsum(values) / len(values)


def _distinct(groups: Sequence[Sequence[Text]]) -> tuple[list[tuple[int, Text]], list[list[int]]]:
    """The different (row, hypothesis) pairs, the first group's first, and each group as places among them.

    Tokens decide as well as the string: where no cost reads strings, all are empty.
    """
    numbers: dict[tuple[int, tuple[int, ...], bool, Text], int] = {}
    places = [
        [numbers.setdefault((row, text.token_ids, text.ended, text), len(numbers)) for row, text in enumerate(group)]
        for group in groups
    ]
    return [(row, text) for row, _, _, text in numbers], places


def _place(row: int | None, hypothesis: Text | None) -> tuple[str, str]:
    """Where a bad value stands, in words, and the hypothesis it is for."""
    return ("the corpus", "") if hypothesis is None else (f"sequence {row}", f": {_shown(hypothesis)}")


def _said(error: BaseException) -> str:
    """Its type and its message, if it has one and can say it."""
    try:
        message = str(error)
    except Exception:
        message = ""
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def _shown(text: Text, limit: int = 80) -> str:
    """The string, or the tokens where no string was made of them."""
    whole = str(text) or " ".join(map(str, text.token_ids))
    return repr(whole if len(whole) <= limit else whole[:limit] + "…")
