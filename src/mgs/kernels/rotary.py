"""Rotary positions for one new token: queries and keys in one go."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _rotate(
    q_ptr, k_ptr, cos_ptr, sin_ptr, q_out, k_out, num_q, num_k, q_row, q_head, k_row, k_head, cos_row,
    HALF: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    head, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    d = tl.arange(0, BLOCK)
    here = d < HALF
    if head < num_q:
        source = q_ptr + row * q_row + head * q_head
        target = q_out + (row * num_q + head) * 2 * HALF
    else:
        source = k_ptr + row * k_row + (head - num_q) * k_head
        target = k_out + (row * num_k + head - num_q) * 2 * HALF
    first, second = tl.load(source + d, mask=here), tl.load(source + HALF + d, mask=here)
    cos, sin = cos_ptr + row * cos_row, sin_ptr + row * cos_row
    tl.store(target + d, first * tl.load(cos + d, mask=here) - second * tl.load(sin + d, mask=here), mask=here)
    other_cos, other_sin = tl.load(cos + HALF + d, mask=here), tl.load(sin + HALF + d, mask=here)
    tl.store(target + HALF + d, second * other_cos + first * other_sin, mask=here)


def rotate(query: Tensor, key: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """`query` and `key` (rows, heads, 1, dim), turned by `cos` and `sin` (rows or 1, 1, dim)."""
    rows, num_q, _, dim = query.shape
    num_k = key.shape[1]
    q_out = torch.empty((rows, num_q, 1, dim), device=query.device, dtype=query.dtype)
    k_out = torch.empty((rows, num_k, 1, dim), device=query.device, dtype=query.dtype)
    _rotate[num_q + num_k, rows](
        query, key, cos, sin, q_out, k_out, num_q, num_k, query.stride(0), query.stride(1), key.stride(0),
        key.stride(1), cos.stride(0) if cos.shape[0] > 1 else 0,
        HALF=dim // 2, BLOCK=triton.next_power_of_2(dim // 2), num_warps=1,
    )  # fmt: skip
    return q_out, k_out
