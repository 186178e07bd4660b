"""Directions in parameter space, and noise that is a function of where it is used.

The seed is the sample: the noise of candidate k for parameter w at a step is drawn from (seed, step, k, name of w),
never stored, and drawn again when the update is formed. Two layers of one shape get different noise.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from mgs.types import Direction


def key(*where: object) -> int:
    """A 63-bit seed from what identifies a draw."""
    return int.from_bytes(hashlib.blake2b(repr(where).encode(), digest_size=8).digest(), "big") >> 1


def noise_like(tensor: Tensor, *where: object) -> Tensor:
    """Standard normal noise in the tensor's shape and on its device (each device type has its own stream)."""
    generator = torch.Generator(device=tensor.device).manual_seed(key(*where))
    return torch.randn(tensor.shape, generator=generator, device=tensor.device, dtype=torch.float32)


def dot(a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> float:
    """⟨a, b⟩ over all parameters, accumulated in float64."""
    return math.fsum(float((a[name].double() * b[name].double()).sum()) for name in a)


def norm(direction: Mapping[str, Tensor]) -> float:
    """‖Δ‖, the L2 norm over all parameters together."""
    return math.sqrt(math.fsum(float(tensor.double().square().sum()) for tensor in direction.values()))


def clipped(direction: Direction, max_norm: float) -> Direction:
    """The direction, shortened to `max_norm` if it is longer."""
    length = norm(direction)
    if length <= max_norm:
        return direction
    return {name: tensor * (max_norm / length) for name, tensor in direction.items()}


def weighted_sum(weights: Iterable[float], directions: Iterable[Direction]) -> Direction:
    """Σ w_k Δ_k, one direction in memory at a time; those of weight 0 are not added."""
    total: Direction = {}
    for weight, direction in zip(weights, directions, strict=True):
        for name, tensor in direction.items():
            if name not in total:
                total[name] = torch.zeros_like(tensor)
            if weight:
                total[name].add_(tensor, alpha=weight)
    return total
