"""Stand-ins for a model's parameters, from a proposal: dense, shared or of low rank.

dense       each candidate's own tensors: K model copies, exact, any noise
factored    θ and the gradients once, each candidate a length along one of them and, with `rank`, thin factors
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

import torch
from torch import Tensor

from mgs import kernels
from mgs.candidates.groups import Groups
from mgs.candidates.stand_in import PerCandidate
from mgs.candidates.values import Factored, Stack, Values
from mgs.search import Centre, Proposal
from mgs.search.noise import LowRankNoise, Thin

#: A candidate by its number in the proposal; None is θ itself.
Number = int | None
FACTORS = torch.bfloat16  # of low-rank noise on a GPU
FEW_ROWS = 32  # with so few rows a candidate, a product takes as long as reading the matrix: shared ones save time


def in_order(proposal: Proposal, numbers: Sequence[Number]) -> list[Number]:
    """Candidates of one centre beside each other, θ and those around zero first."""
    return sorted(numbers, key=lambda k: _place(centre_of(proposal, k)))


def centre_of(proposal: Proposal, number: Number) -> Centre:
    return Centre(0.0) if number is None else proposal.assigned[number]


def is_factored(proposal: Proposal, rows_each: int) -> bool:
    """Whether candidates share dense matrices instead of having their own."""
    if isinstance(proposal.noise, LowRankNoise) and proposal.form.noise > 0:
        return True
    lengths = len(set(proposal.assigned)) > len({centre.gradient for centre in proposal.assigned})
    return proposal.form.noise == 0 and lengths and rows_each <= FEW_ROWS and proposal.gradients[0].is_cuda


def stand_ins(
    parameters: Mapping[str, Tensor], proposal: Proposal, numbers: Sequence[Number], groups: Groups, factored: bool
) -> dict[str, PerCandidate]:
    """What the model gets in place of its searched parameters; `numbers` are in order."""
    values = _factored(parameters, proposal, numbers) if factored else _dense(parameters, proposal, numbers)
    return {name: PerCandidate(parameters[name], values[name], groups) for name in proposal.layout.shapes}


def _dense(parameters: Mapping[str, Tensor], proposal: Proposal, numbers: Sequence[Number]) -> dict[str, Values]:
    layout = proposal.layout
    theta = layout.flat(parameters)
    stack_KP = torch.empty(len(numbers), layout.size, device=theta.device)
    for row, number in zip(stack_KP, numbers, strict=True):
        row.copy_(theta) if number is None else torch.add(theta, proposal.flat(number), out=row)
    return {name: Stack(layout.view(stack_KP, name)) for name in layout.shapes}


def _factored(parameters: Mapping[str, Tensor], proposal: Proposal, numbers: Sequence[Number]) -> dict[str, Values]:
    centres = [centre_of(proposal, number) for number in numbers]
    thin = _thin(proposal, numbers)
    factors = thin
    if thin is not None and kernels.usable(thin.numbers.device):  # noise to eight bits, in half the memory
        factors = Thin(thin.noise, thin.numbers.to(FACTORS))
    return {
        name: _matrix(parameters[name], proposal, centres, name, factors)
        if len(shape) == 2
        else _stack(parameters[name], proposal, centres, name, thin)
        for name, shape in proposal.layout.shapes.items()
    }


def _thin(proposal: Proposal, numbers: Sequence[Number]) -> Thin | None:
    """The candidates' low-rank noise; zero for those without any."""
    if not isinstance(proposal.noise, LowRankNoise) or proposal.form.noise == 0:
        return None
    thin = proposal.noise.draw([number or 0 for number in numbers], proposal.sigma)
    silent = [i for i, number in enumerate(numbers) if number is None or proposal.silent(number)]
    thin.numbers[silent] = 0.0
    return thin


def _matrix(theta: Tensor, proposal: Proposal, centres: Sequence[Centre], name: str, thin: Thin | None) -> Factored:
    bases, slopes, cuts = [], [], [0]
    theta = theta.detach().float()
    for gradient, members in groupby(centres, key=lambda centre: centre.gradient):
        lengths = [centre.length for centre in members]
        slope = None if gradient is None else proposal.layout.view(proposal.gradients[gradient], name)
        if slope is not None and len(set(lengths)) == 1:
            bases.append(theta + lengths[0] * slope)
            slope = None
        else:
            bases.append(theta)
        slopes.append(slope)
        cuts.append(cuts[-1] + len(lengths))
    a, b = (None, None) if thin is None else thin.factors(name)
    lengths_K = torch.tensor([centre.length for centre in centres], device=theta.device)
    return Factored(bases, slopes, cuts, lengths_K, a, b)


def _stack(theta: Tensor, proposal: Proposal, centres: Sequence[Centre], name: str, thin: Thin | None) -> Stack:
    along_KJ = proposal.coordinates(centres).to(device=theta.device, dtype=torch.float32)
    gradients = torch.stack([proposal.layout.view(gradient, name).flatten() for gradient in proposal.gradients])
    stack = torch.addmm(theta.detach().float().flatten(), along_KJ, gradients).view(len(centres), *theta.shape)
    return Stack(stack if thin is None else stack.add_(thin.others(name)))


def _place(centre: Centre) -> tuple[int, float]:
    return (-1 if centre.gradient is None else centre.gradient), centre.length
