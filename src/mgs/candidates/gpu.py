"""Candidates on a GPU: weights in buffers that stay where they are, decoded by loops that were captured once."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from mgs import kernels
from mgs.candidates.forms import Number, stand_ins
from mgs.candidates.fused import fused
from mgs.candidates.groups import Groups
from mgs.candidates.siblings import join, siblings
from mgs.candidates.swap import PerCandidate, swapped, watched
from mgs.candidates.values import Factored, Planes, Stack, Values
from mgs.decoding import Decoder
from mgs.decoding.graph import Loops
from mgs.search import Proposal
from mgs.search.directions import Layout

ROWS_STEP = 2  # rows of a candidate are rounded up to this, so that captured loops fit more batches
Rows = list[tuple[int, ...]]


class DenseBuffers:
    """Dense candidates' weights: high halves of θ, a low half of each candidate, vectors in full."""

    def __init__(self, model: nn.Module, parameters: Mapping[str, Tensor], layout: Layout, num: int):
        device = next(iter(parameters.values())).device
        self.layout, self.num = layout, num
        self.vector_layout = Layout(
            {name: parameters[name] for name, shape in layout.shapes.items() if len(shape) != 2}
        )
        self.high = torch.empty(layout.size, dtype=torch.bfloat16, device=device)
        self.low_K = torch.empty(num, layout.size, dtype=torch.float16, device=device)
        self.unscale = torch.ones((), device=device)
        self.vectors_K = torch.empty(num, self.vector_layout.size, device=device)
        spans = [(layout.starts[name], shape.numel()) for name, shape in self.vector_layout.shapes.items()]
        self.vector_places = torch.cat([torch.arange(start, start + size) for start, size in spans]).to(device)
        self.groups = Groups(num)
        matrices = {
            name: Planes(layout.view(self.high, name), layout.view(self.low_K, name), self.unscale)
            for name in layout.shapes
            if name not in self.vector_layout.shapes
        }
        join(siblings(model), matrices, layout, Planes(self.high, self.low_K, self.unscale))
        vectors = {name: Stack(stack) for name, stack in self.vector_layout.views(self.vectors_K).items()}
        values: dict[str, Values] = {**matrices, **vectors}
        self.stand_ins = {name: PerCandidate(parameters[name], values[name], self.groups) for name in layout.shapes}

    def fits(self, layout: Layout, num: int) -> bool:
        return self.num == num and self.layout.shapes == layout.shapes

    def fill(self, parameters: Mapping[str, Tensor], proposal: Proposal, numbers: Sequence[Number]) -> None:
        theta = self.layout.flat(parameters)
        self.high.copy_(theta)
        vectors = theta[self.vector_places]
        rest = theta.sub_(self.high)
        scale = low_scale(float(rest.abs().max()), proposal)
        self.unscale.fill_(1 / scale)
        for number, low, own in zip(numbers, self.low_K, self.vectors_K, strict=True):
            if number is None:
                low.copy_(rest * scale)
                own.copy_(vectors)
            else:
                delta = proposal.flat(number)
                torch.add(vectors, delta[self.vector_places], out=own)
                low.copy_(delta.add_(rest).mul_(scale))


def low_scale(largest_rest: float, proposal: Proposal) -> float:
    """A power of two that brings every low half well into what fp16 holds (6·10⁴), and small ones out of its dust."""
    lengths = max((abs(centre.length) for centre in proposal.assigned), default=0.0)
    largest = float(torch.stack([gradient.abs().max() for gradient in proposal.gradients]).max())
    bound = largest_rest + lengths * largest + 8 * max(proposal.sigma.values())  # no draw of 10⁹ lies beyond 8 σ
    return 2.0 ** min(12, math.floor(math.log2(30_000 / bound))) if bound > 0 else 1.0


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
                self.buffers = DenseBuffers(model, parameters, proposal.layout, len(numbers))
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


@contextmanager
def precise(model: nn.Module) -> Iterator[None]:
    """A model that is only read, with its products on the tensor cores at nearly fp32 accuracy."""
    if not kernels.usable(next(model.parameters()).device):
        yield
        return
    groups = Groups(1)
    ins = {
        name: PerCandidate(p, Factored([p.detach()], [None], [0, 1], torch.zeros(1)), groups)
        for name, p in model.named_parameters()
        if p.ndim == 2 and p.dtype == torch.float32
    }
    with swapped(model, ins), watched(model, groups):
        yield
