"""Candidates on a GPU: weights in buffers that stay where they are, decoded by loops that were captured once."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from mgs import kernels
from mgs.candidates.forms import Number, stand_ins
from mgs.candidates.fused import fused
from mgs.candidates.groups import Groups
from mgs.candidates.siblings import join, siblings
from mgs.candidates.stand_in import PerCandidate
from mgs.candidates.swap import swapped, watched
from mgs.candidates.values import Factored, Planes, Stack, Values
from mgs.decoding import Decoder
from mgs.decoding.graph import Loops
from mgs.models.likelihood import evaluating
from mgs.search import Proposal
from mgs.search.directions import Layout

ROWS_STEP = 2  # rows of a candidate are rounded up to this, so that captured loops fit more batches
Rows = list[tuple[int, ...]]


@dataclass(frozen=True)
class Work:
    """What is to be decoded, the same for every candidate."""

    decoder: Decoder
    prefixes: list[tuple[int, ...]]
    keys_B: Tensor  # of the noise
    caps: list[int]  # tokens that each prefix may have
    eos: int
    at_once: int  # prefixes of a candidate that go together

    def parts(self) -> Iterator[Work]:
        for start in range(0, len(self.prefixes), self.at_once):
            rows = slice(start, start + self.at_once)
            yield replace(self, prefixes=self.prefixes[rows], keys_B=self.keys_B[rows], caps=self.caps[rows])


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
        places = [torch.arange(start, start + size) for start, size in spans]
        self.vector_places = torch.cat([torch.empty(0, dtype=torch.long), *places]).to(device)
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
        work: Work,
    ) -> list[Rows]:
        """What each candidate makes of every prefix."""
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
        binding = (str(work.decoder), len(numbers), where_weights_lie(model))
        try:
            with evaluating(model), fused(model), swapped(model, ins), watched(model, groups):
                for part in work.parts():
                    for mine, rows in zip(out, self._part(model, groups, part, binding), strict=True):
                        mine += rows
        finally:
            if factored:
                self.loops.clear()
        return out

    def _part(self, model: nn.Module, groups: Groups, work: Work, binding: Hashable) -> Iterator[Rows]:
        num, real = groups.num, len(work.prefixes)
        spare = -real % ROWS_STEP if self.buffers is not None else 0
        prefixes = work.prefixes + work.prefixes[:1] * spare
        keys = torch.cat([work.keys_B, work.keys_B[:1].repeat(spare)])
        groups.start(num * len(prefixes))
        rows = self.loops.decode(
            model, prefixes * num, max(work.caps), work.eos, keys.repeat(num), work.decoder.process(), binding, num
        )
        for k in range(num):
            mine = rows[k * len(prefixes) :][:real]
            yield [tokens[:cap] for tokens, cap in zip(mine, work.caps, strict=True)]

    def clear(self) -> None:
        """Captured loops first: they read the buffers."""
        self.loops.clear()
        self.buffers = None


def where_weights_lie(model: nn.Module) -> int:
    """A captured step goes on reading the memory it was captured with: if weights move, it must not be used again."""
    return hash(tuple(parameter.data_ptr() for parameter in model.parameters()))


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
