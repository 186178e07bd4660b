"""One new token's attention over a cache of preallocated room, reading only the positions that are there."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

LOG2_E = 1.4426950408889634


@triton.jit
def _attend(
    q_ptr, new_k_ptr, new_v_ptr, k_ptr, v_ptr, out_ptr, starts_ptr, length_ptr, scale,
    q_row, q_head, k_row, k_head, v_row, v_head, cache_row, cache_head, cache_position, out_row, out_head,
    HAS_NEW: tl.constexpr, SHARING: tl.constexpr, DIM: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_T: tl.constexpr,
):  # fmt: skip
    """One program a row and a query head; SHARING query heads read one head of keys and values. HAS_NEW: all rows have
    the same length, and one more position, which is put into the cache; else each row has its own length."""
    head, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    kv_head = head // SHARING
    length = tl.load(length_ptr if HAS_NEW else length_ptr + row)
    start = tl.load(starts_ptr + row) if HAS_NEW else 0
    d = tl.arange(0, BLOCK_D)
    here = d < DIM
    query = tl.load(q_ptr + row * q_row + head * q_head + d, mask=here, other=0.0).to(tl.float32) * scale
    cached = row * cache_row + kv_head * cache_head
    if HAS_NEW:
        new_k = tl.load(new_k_ptr + row * k_row + kv_head * k_head + d, mask=here, other=0.0)
        new_v = tl.load(new_v_ptr + row * v_row + kv_head * v_head + d, mask=here, other=0.0)
        if head % SHARING == 0:
            tl.store(k_ptr + cached + length * cache_position + d, new_k, mask=here)
            tl.store(v_ptr + cached + length * cache_position + d, new_v, mask=here)
        highest = tl.sum(query * new_k.to(tl.float32), axis=0)
        total = 1.0
        mean = new_v.to(tl.float32)
    else:
        highest = float("-inf")
        total = 0.0
        mean = tl.zeros((BLOCK_D,), dtype=tl.float32)
    for first in range(start // BLOCK_T * BLOCK_T, length, BLOCK_T):
        t = first + tl.arange(0, BLOCK_T)
        there = (t >= start) & (t < length)
        tile = cached + t[:, None] * cache_position + d[None, :]
        inside = there[:, None] & here[None, :]
        keys = tl.load(k_ptr + tile, mask=inside, other=0.0).to(tl.float32)
        values = tl.load(v_ptr + tile, mask=inside, other=0.0).to(tl.float32)
        scores = tl.where(there, tl.sum(keys * query[None, :], axis=1), float("-inf"))
        new_highest = tl.maximum(highest, tl.max(scores, axis=0))
        shrink = tl.exp2(highest - new_highest)
        weights = tl.exp2(scores - new_highest)
        total = total * shrink + tl.sum(weights, axis=0)
        mean = mean * shrink + tl.sum(weights[:, None] * values, axis=0)
        highest = new_highest
    tl.store(out_ptr + row * out_row + head * out_head + d, (mean / total).to(out_ptr.dtype.element_ty), mask=here)


def attend(
    query: Tensor, new_keys: Tensor, new_values: Tensor, keys: Tensor, values: Tensor,
    starts: Tensor, length: Tensor, scaling: float,
) -> Tensor:  # fmt: skip
    """`query` (rows, heads, 1, dim); caches (rows, kv heads, room, dim). Writes the new token at `length`."""
    return _launch(query, new_keys, new_values, keys, values, starts, length, scaling, has_new=True)


def attend_to(query: Tensor, keys: Tensor, values: Tensor, lengths: Tensor, scaling: float) -> Tensor:
    """The same over the first `lengths` positions of each row, and nothing new."""
    return _launch(query, keys, values, keys, values, lengths, lengths, scaling, has_new=False)


def _launch(
    query: Tensor, new_keys: Tensor, new_values: Tensor, keys: Tensor, values: Tensor, starts: Tensor, length: Tensor,
    scaling: float, has_new: bool,
) -> Tensor:  # fmt: skip
    rows, heads, _, dim = query.shape
    if keys.stride() != values.stride():
        raise NotImplementedError("keys and values of different sizes")
    out = torch.empty((rows, 1, heads, dim), device=query.device, dtype=query.dtype)
    block, warps = (64, 2) if rows * heads < 4096 else (32, 1)  # few programs: more threads for each
    _attend[(heads, rows)](
        query, new_keys, new_values, keys, values, out, starts, length, scaling * LOG2_E,
        query.stride(0), query.stride(1), new_keys.stride(0), new_keys.stride(1),
        new_values.stride(0), new_values.stride(1), keys.stride(0), keys.stride(1), keys.stride(2),
        out.stride(0), out.stride(2), HAS_NEW=has_new,
        SHARING=heads // keys.shape[1], DIM=dim, BLOCK_D=triton.next_power_of_2(dim), BLOCK_T=block, num_warps=warps,
    )  # fmt: skip
    return out
