"""Randomness as an explicit input: the ε of F(θ, X, ε).

Gumbel noise is a pure function of (row key, position, token): no generator, no state, no dependence on the batch a row
is in, nor on the rows that have already ended. Adding it to log-probabilities and taking the largest is a sample from
them, so ancestral sampling is greedy search on noisy logits, and the same noise can be given to every candidate.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import torch
from torch import Tensor

# Odd 64-bit constants (as signed integers) that spread consecutive inputs; the finalizer is that of splitmix64.
_POSITION, _TOKEN = 0x2545F4914F6CDD1D, -0x61C8864680B583EB
_MIX = (-0x40A7B892E31B1A47, -0x6B2FB644ECCEEE15)


def row_keys(rows: Iterable[int], *where: int) -> Tensor:
    """A 64-bit key for each row, from integers that say where the noise is used (seed, step, ...)."""
    keys = [hashlib.blake2b(repr((*where, row)).encode(), digest_size=8).digest() for row in rows]
    return torch.tensor([int.from_bytes(key, "big", signed=True) for key in keys], dtype=torch.int64)


def gumbel(keys_B: Tensor, position: int | Tensor, vocabulary: int) -> Tensor:
    """Standard Gumbel noise of shape (B, V), float64, for one position of each row."""
    tokens_V = torch.arange(vocabulary, dtype=torch.int64, device=keys_B.device) * _TOKEN
    offset = torch.as_tensor(position, dtype=torch.int64, device=keys_B.device) * _POSITION  # wraps, as it should
    bits = (keys_B + offset).unsqueeze(1) + tokens_V
    bits = (bits ^ _shift(bits, 30)) * _MIX[0]
    bits = (bits ^ _shift(bits, 27)) * _MIX[1]
    bits = bits ^ _shift(bits, 31)
    uniform = (_shift(bits, 12).double() + 0.5) * 2.0**-52  # strictly between 0 and 1: 53 bits would round up to 1
    return -torch.log(-torch.log(uniform))


def _shift(bits: Tensor, by: int) -> Tensor:
    """Logical right shift: torch's own is arithmetic on signed integers."""
    return (bits >> by) & ((1 << (64 - by)) - 1)
