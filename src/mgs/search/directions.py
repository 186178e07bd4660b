"""Directions in parameter space, by name and as one vector, and noise that is a function of where it is used.

The seed is the sample: the noise of candidate k at a step is drawn from (seed, step, k), never stored, and drawn again
whenever it is needed. Each parameter has its own part of the draw, so two layers of one shape get different noise.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from itertools import accumulate

import torch
from torch import Tensor

from mgs.types import Direction


def key(*where: object) -> int:
    """A 63-bit seed from what identifies a draw."""
    return int.from_bytes(hashlib.blake2b(repr(where).encode(), digest_size=8).digest(), "big") >> 1


def normal(shape: Iterable[int], device: torch.device, *where: object) -> Tensor:
    """Standard normal numbers, always the same for the same `where` (each device type has its own stream)."""
    generator = torch.Generator(device=device).manual_seed(key(*where))
    return torch.randn(tuple(shape), generator=generator, device=device, dtype=torch.float32)


class Layout:
    """Where each parameter lies in a vector of all of them."""

    def __init__(self, like: Mapping[str, Tensor]):
        self.shapes = {name: tensor.shape for name, tensor in like.items()}
        self.sizes = [shape.numel() for shape in self.shapes.values()]
        self.size = sum(self.sizes)
        self.starts = dict(zip(self.shapes, accumulate(self.sizes, initial=0), strict=False))

    def flat(self, direction: Mapping[str, Tensor]) -> Tensor:
        """One fp32 vector of all parameters."""
        return torch.cat([direction[name].detach().reshape(-1).float() for name in self.shapes])

    def view(self, vectors: Tensor, name: str) -> Tensor:
        """One parameter's part of one or more vectors (the last dimension), in its shape."""
        part = vectors.narrow(-1, self.starts[name], self.shapes[name].numel())
        return part.unflatten(-1, self.shapes[name]) if self.shapes[name] else part.squeeze(-1)

    def views(self, vectors: Tensor) -> Direction:
        return {name: self.view(vectors, name) for name in self.shapes}


def norm(direction: Mapping[str, Tensor]) -> float:
    """‖Δ‖, the L2 norm over all parameters together."""
    return float(torch.linalg.vector_norm(norms(list(direction.values())))) if direction else 0.0


def norms(tensors: list[Tensor], order: int = 2) -> Tensor:
    """The norm of each tensor; one launch for all of them on a GPU, where launching takes longer than adding."""
    if tensors[0].is_cuda:
        return torch.stack(torch._foreach_norm(tensors, order)).double()
    return torch.stack([torch.linalg.vector_norm(tensor, ord=order, dtype=torch.float64) for tensor in tensors])


def clipped(direction: Direction, max_norm: float) -> Direction:
    """The direction, shortened to `max_norm` if it is longer."""
    length = norm(direction)
    if length <= max_norm:
        return direction
    tensors = torch._foreach_mul(list(direction.values()), max_norm / length)
    return dict(zip(direction, tensors, strict=True))


def sum_of_products(a: Tensor, b: Tensor) -> Tensor:
    """Σ a·b over the last dimension, accumulated in float64."""
    return (a * b).sum(dim=-1, dtype=torch.float64)
