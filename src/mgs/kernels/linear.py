"""y_g = x_g W_g (+ b_g) for groups of rows that each have their own weights.

Decoding multiplies a few rows with each weight set, so time goes into reading weights: tiles stream through W once,
and the product itself runs on the tensor cores at fp32 accuracy (three TF32 products an fp32 product).
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _linear(
    x_ptr, w_ptr, bias_ptr, y_ptr,
    num_rows, num_out, num_in,
    x_group, x_row, w_group, w_in, w_out, bias_group,
    HAS_BIAS: tl.constexpr, PRECISION: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    tiles_m = tl.cdiv(num_rows, BLOCK_M)
    tile = tl.program_id(0)
    group = tl.program_id(1).to(tl.int64)
    m = (tile % tiles_m) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = (tile // tiles_m) * BLOCK_N + tl.arange(0, BLOCK_N)
    d = tl.arange(0, BLOCK_D)
    x = x_ptr + group * x_group + m[:, None] * x_row + d[None, :]
    w = w_ptr + group * w_group + d[:, None] * w_in + n[None, :] * w_out
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, num_in, BLOCK_D):
        inside = d < num_in - start
        x_tile = tl.load(x, mask=(m < num_rows)[:, None] & inside[None, :], other=0.0)
        w_tile = tl.load(w, mask=inside[:, None] & (n < num_out)[None, :], other=0.0)
        total = tl.dot(x_tile, w_tile, total, input_precision=PRECISION)
        x += BLOCK_D
        w += BLOCK_D * w_in
    if HAS_BIAS:
        total += tl.load(bias_ptr + group * bias_group + n, mask=n < num_out, other=0.0)[None, :]
    y = y_ptr + (group * num_rows + m[:, None]) * num_out + n[None, :]
    tl.store(y, total, mask=(m < num_rows)[:, None] & (n < num_out)[None, :])


def linear(x_GMI: Tensor, w_GIO: Tensor, bias_GO: Tensor | None, precision: str = "tf32x3", tile=None) -> Tensor:
    groups, rows, num_in = x_GMI.shape
    num_out = w_GIO.shape[-1]
    y = torch.empty((groups, rows, num_out), device=x_GMI.device, dtype=torch.float32)
    bm, bn, bd, warps, stages = tile
    grid = (triton.cdiv(rows, bm) * triton.cdiv(num_out, bn), groups)
    bias = x_GMI if bias_GO is None else bias_GO
    _linear[grid](
        x_GMI, w_GIO, bias, y, rows, num_out, num_in,
        x_GMI.stride(0), x_GMI.stride(1), w_GIO.stride(0) if w_GIO.shape[0] > 1 else 0, w_GIO.stride(1), w_GIO.stride(2),
        0 if bias_GO is None else bias_GO.stride(0),
        HAS_BIAS=bias_GO is not None, PRECISION=precision,
        BLOCK_M=bm, BLOCK_N=bn, BLOCK_D=bd, num_warps=warps, num_stages=stages,
    )  # fmt: skip
    return y
