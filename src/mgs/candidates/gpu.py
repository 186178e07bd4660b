"""Candidates on a GPU: weights in buffers that stay where they are, decoded by loops that were captured once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from mgs.candidates.forms import Number, stand_ins
from mgs.candidates.fused import fused
from mgs.candidates.groups import Groups
from mgs.candidates.swap import PerCandidate, swapped, watched
from mgs.candidates.values import Planes, Stack, Values
from mgs.decoding import Decoder
from mgs.decoding.graph import Loops
from mgs.search import Proposal
from mgs.search.directions import Layout

ROWS_STEP = 4  # rows of a candidate are rounded up to this, so that captured loops fit more batches
Rows = list[tuple[int, ...]]


class DenseBuffers:
    """Dense candidates' weights: high halves of θ, a low half of each candidate, vectors in full."""

    def __init__(self, parameters: Mapping[str, Tensor], layout: Layout, num: int):
        device = next(iter(parameters.values())).device
        self.layout, self.num = layout, num
        self.vector_layout = Layout(
            {name: parameters[name] for name, shape in layout.shapes.items() if len(shape) != 2}
        )
        self.high = torch.empty(layout.size, dtype=torch.bfloat16, device=device)
        self.low_K = torch.empty(num, layout.size, dtype=torch.bfloat16, device=device)
        self.vectors_K = torch.empty(num, self.vector_layout.size, device=device)
        self.groups = Groups(num)
        self.stand_ins = {
            name: PerCandidate(parameters[name], self._values(name), self.groups) for name in layout.shapes
        }

    def fits(self, layout: Layout, num: int) -> bool:
        return self.num == num and self.layout.shapes == layout.shapes

    def fill(self, parameters: Mapping[str, Tensor], proposal: Proposal, numbers: Sequence[Number]) -> None:
        theta = self.layout.flat(parameters)
        self.high.copy_(theta)
        vectors = self.vector_layout.flat(parameters)
        rest = theta.sub_(self.high)
        for number, low, own in zip(numbers, self.low_K, self.vectors_K, strict=True):
            if number is None:
                low.copy_(rest)
                own.copy_(vectors)
            else:
                delta = proposal.flat(number)
                torch.add(vectors, self.vector_layout.flat(self.layout.views(delta)), out=own)
                low.copy_(delta.add_(rest))

    def _values(self, name: str) -> Values:
        if name in self.vector_layout.shapes:
            return Stack(self.vector_layout.view(self.vectors_K, name))
        return Planes(self.layout.view(self.high, name), self.layout.view(self.low_K, name))


class OnGPU:
    """Lives as long as its engine, so that buffers and loops are used again at every update."""

    def __init__(self) -> None:
        self.loops = Loops()
        self.buffers: DenseBuffers | None = None

    def decode(
        self,
        model: nn.Module,
        parameters: Mapping[str, Tensor],
        proposal: Proposal,
        numbers: Sequence[Number],
        factored: bool,
        decoder: Decoder,
        prefixes: list,
        keys_B: Tensor,
        room: int,
        eos: int,
        at_once: int,
    ) -> list[Rows]:
        """What each candidate makes of every prefix, `at_once` prefixes at a time."""
        if factored:
            self.clear()
            groups = Groups(len(numbers))
            ins = stand_ins(parameters, proposal, numbers, groups, factored=True)
        else:
            if self.buffers is None or not self.buffers.fits(proposal.layout, len(numbers)):
                self.clear()
                self.buffers = DenseBuffers(parameters, proposal.layout, len(numbers))
            self.buffers.fill(parameters, proposal, numbers)
            groups, ins = self.buffers.groups, self.buffers.stand_ins
        out: list[Rows] = [[] for _ in numbers]
        training = model.training
        model.eval()
        try:
            with fused(model), swapped(model, ins), watched(model, groups):
                for start in range(0, len(prefixes), at_once):
                    self._some(model, groups, decoder, prefixes[start:][:at_once], keys_B[start:], room, eos, out)
        finally:
            model.train(training)
            if factored:
                self.loops.clear()
        return out

    def _some(
        self, model: nn.Module, groups: Groups, decoder: Decoder, prefixes: list, keys_B: Tensor, room: int, eos: int,
        out: list[Rows],
    ) -> None:  # fmt: skip
        num, real = groups.num, len(prefixes)
        spare = -real % ROWS_STEP if self.buffers is not None else 0
        filled = prefixes + prefixes[:1] * spare
        keys = torch.cat([keys_B[:real], keys_B[:1].repeat(spare)])
        groups.start(num * len(filled))
        rows = self.loops.decode(
            model, filled * num, room, eos, keys.repeat(num), decoder.process(), (str(decoder), num)
        )
        for i, mine in enumerate(out):
            mine += rows[i * len(filled) :][:real]

    def clear(self) -> None:
        """Captured loops first: they read the buffers."""
        self.loops.clear()
        self.buffers = None
