"""The costs of many candidates θ + Δ_k: decoded as one batch, in groups that fit the memory."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import nn

from mgs.candidates.forms import Number, in_order, is_factored, stand_ins
from mgs.candidates.gpu import OnGPU, Rows, Work, precise
from mgs.candidates.groups import Groups
from mgs.candidates.likelihood import TOGETHER, mean_nlls
from mgs.candidates.perturbed import perturbed
from mgs.candidates.probe import Found, once, swappable
from mgs.candidates.swap import swapped, watched
from mgs.candidates.task import Task
from mgs.decoding import row_keys
from mgs.decoding.agreement import supports_graph
from mgs.decoding.memory import bytes_per_row, free_memory
from mgs.metrics import texts
from mgs.models import searched_parameters
from mgs.search import Proposal
from mgs.search.noise import BLOCK
from mgs.types import Batch

T = TypeVar("T")
ROWS_AT_ONCE = {"cpu": 1024, "cuda": 16_384}
MEMORY_SHARE = 0.6  # of what is free; the rest is for what an estimate does not see


@dataclass
class Candidates:
    """Decodes and scores candidates, at most `most_rows` rows together; None is what fits."""

    task: Task
    most_rows: int | None = None
    gpu: OnGPU = field(default_factory=OnGPU, repr=False)
    _why_not: Found[str | None] = field(default_factory=WeakKeyDictionary, repr=False)

    def means(
        self,
        model: nn.Module,
        proposal: Proposal,
        numbers: Sequence[Number],
        batch: Batch,
        noise: Sequence[int] = (0,),
        done: Callable[[int], object] = lambda num: None,
    ) -> list[float]:
        """C(θ+Δ_k) of these candidates; None is θ itself. All get the same noise; `done` hears of progress."""
        rows = self.decode(model, proposal, numbers, batch, noise, done)
        strings = self.task.cost.reads_text
        hypotheses = [texts(self.task.tokenizer, rows[number], strings) for number in numbers]
        scorer = getattr(self.task.cost.function, "model", None)
        with precise(scorer) if isinstance(scorer, nn.Module) else nullcontext():
            return self.task.cost.means(hypotheses, self.task.references(batch), **self.task.columns(batch))

    def decode(
        self,
        model: nn.Module,
        proposal: Proposal,
        numbers: Sequence[Number],
        batch: Batch,
        noise: Sequence[int] = (0,),
        done: Callable[[int], object] = lambda num: None,
    ) -> dict[Number, Rows]:
        """What each candidate makes of every prefix."""
        decode = self._together if self._batches(model) else self._alone

        def group(some: list[Number], at_once: int) -> list[Rows]:
            return decode(model, proposal, some, self._work(model, batch, noise, at_once))

        return self._in_groups(model, proposal, numbers, batch, group, done)

    def nlls(self, model: nn.Module, proposal: Proposal, numbers: Sequence[Number], batch: Batch) -> list[float]:
        """−log p of a target token, the mean over the batch, under each candidate; None is θ itself."""
        together = self._batches(model)
        found: dict[Number, float] = {}

        def group(some: list[Number], at_once: int) -> list[float]:
            return mean_nlls(model, proposal, some, batch, at_once, together)

        for start in range(0, len(numbers), TOGETHER):
            found |= self._in_groups(model, proposal, numbers[start : start + TOGETHER], batch, group)
        return [found[number] for number in numbers]

    def _in_groups(
        self,
        model: nn.Module,
        proposal: Proposal,
        numbers: Sequence[Number],
        batch: Batch,
        work: Callable[[list[Number], int], list[T]],
        done: Callable[[int], object] = lambda num: None,
    ) -> dict[Number, T]:
        """What `work` finds for each candidate, given as many of them, and of rows at once, as fit the memory."""
        out: dict[Number, T] = {}
        left = in_order(proposal, numbers)
        while left:
            num, at_once = self._plan(model, proposal, batch, len(left) if self._batches(model) else 1)
            some = left[:num]
            found: list[T] | None = None
            try:
                found = work(some, at_once)
            except (torch.OutOfMemoryError, RuntimeError) as error:
                if not _is_out_of_memory(error) or num * at_once == 1:
                    raise
            if found is None:  # only here is the error gone, and with it the frames that hold what filled the memory
                self._halve(num, at_once)
                continue
            out.update(zip(some, found, strict=True))
            left = left[num:]
            done(num)
        return out

    def _together(self, model: nn.Module, proposal: Proposal, numbers: Sequence[Number], work: Work) -> list[Rows]:
        """One batch: a part of the prefixes for the first candidate, the same for the second, and so on."""
        parameters = searched_parameters(model)
        factored = is_factored(proposal, len(work.prefixes))
        if work.decoder.beams == 1 and supports_graph(model):
            return self.gpu.decode(model, parameters, proposal, numbers, factored, work)
        num, groups = len(numbers), Groups(len(numbers))
        ins = stand_ins(parameters, proposal, numbers, groups, factored)
        out: list[Rows] = [[] for _ in numbers]
        with swapped(model, ins), watched(model, groups):
            for part in work.parts():
                each = len(part.prefixes)
                groups.start(each * num)
                rows = part.decoder.rows(
                    model, part.prefixes * num, part.caps * num, part.eos, part.keys_B.repeat(num), groups.keep
                )
                for i, mine in enumerate(out):
                    mine += rows[i * each : (i + 1) * each]
        return out

    def _alone(self, model: nn.Module, proposal: Proposal, numbers: Sequence[Number], work: Work) -> list[Rows]:
        """One candidate by itself, for models whose parameters cannot be swapped."""
        (number,) = numbers
        out: Rows = []
        with perturbed(model, {} if number is None else proposal.sample(number)):
            for part in work.parts():
                out += part.decoder.rows(model, part.prefixes, part.caps, part.eos, part.keys_B)
        return [out]

    def _work(self, model: nn.Module, batch: Batch, noise: Sequence[int], at_once: int) -> Work:
        prefixes = list(batch.prefixes)
        keys_B = row_keys(batch.numbers, *noise)
        caps = self.task.caps(model, batch)
        return Work(self.task.decoder, prefixes, keys_B, caps, self.task.end, at_once)

    def _batches(self, model: nn.Module) -> bool:
        """Whether this model's candidates can be one batch, found out once."""
        return once(self._why_not, model, _tried) is None

    def _plan(self, model: nn.Module, proposal: Proposal, batch: Batch, wanted: int) -> tuple[int, int]:
        """How many candidates go together, and how many prefixes of each at a time."""
        device, beams = proposal.gradients[0].device, self.task.decoder.beams
        factored = is_factored(proposal, len(batch))
        own = 4 * (_thin(proposal) if factored else proposal.layout.size)
        block = BLOCK * own if factored and proposal.form.rank else 0  # is drawn whole, however few are asked for
        room = max(self.task.caps(model, batch)) + max(map(len, batch.prefixes))
        each = own / len(batch) + beams * bytes_per_row(model, room)
        fit = int((MEMORY_SHARE * free_memory(device) - block) / each)
        most = min(ROWS_AT_ONCE.get(device.type, 1024) // beams, fit)
        most = max(1, min(most, self.most_rows or most))
        num = max(1, min(wanted, most // len(batch)))
        return num, max(1, min(len(batch), most // num))

    def _halve(self, num: int, rows_each: int) -> None:
        """After an out-of-memory: half as many rows from now on, said once."""
        if self.most_rows is None:
            warnings.warn(
                f"out of memory with {num} candidates of {rows_each} rows each: going on with half as many rows at "
                "once, and again half where that is still too many",
                stacklevel=3,
            )
        self.most_rows = max(1, num * rows_each // 2)
        self.gpu.clear()
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def _tried(model: nn.Module) -> str | None:
    """`swappable`, and a warning where it is not."""
    why = swappable(model)
    if why is not None:
        warnings.warn(
            f"candidates of {type(model).__name__} are decoded one at a time, which is slower: a batch of them "
            f"did not give what single ones give ({why})",
            stacklevel=2,
        )
    return why


def _thin(proposal: Proposal) -> int:
    """Numbers that a candidate of low rank has of its own."""
    rank = proposal.form.rank or 0
    shapes = proposal.layout.shapes.values()
    return sum(rank * sum(shape) if len(shape) == 2 else shape.numel() for shape in shapes)


def _is_out_of_memory(error: BaseException) -> bool:
    said = ("can't allocate memory", "not enough memory")  # by the CPU's allocator: on Linux and macOS, on Windows
    return isinstance(error, torch.OutOfMemoryError) or any(words in str(error) for words in said)
