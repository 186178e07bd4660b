"""Normalisation with a scale and shift of each row's own candidate, one read and one write a row."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _normalise(
    x_ptr, weight_ptr, bias_ptr, y_ptr, rows_each, size, eps, weight_group, bias_group,
    CENTRED: tl.constexpr, HAS_BIAS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    group = row // rows_each
    d = tl.arange(0, BLOCK)
    here = d < size
    x = tl.load(x_ptr + row * size + d, mask=here, other=0.0).to(tl.float32)
    if CENTRED:
        x = tl.where(here, x - tl.sum(x, axis=0) / size, 0.0)
    y = x * tl.rsqrt(tl.sum(x * x, axis=0) / size + eps)
    y *= tl.load(weight_ptr + group * weight_group + d, mask=here, other=0.0)
    if HAS_BIAS:
        y += tl.load(bias_ptr + group * bias_group + d, mask=here, other=0.0)
    tl.store(y_ptr + row * size + d, y.to(y_ptr.dtype.element_ty), mask=here)


def normalise(x: Tensor, weight_KD: Tensor, bias_KD: Tensor | None, eps: float, centred: bool) -> Tensor:
    """LayerNorm (`centred`) or RMSNorm over the last dimension; rows lie candidate by candidate."""
    size = x.shape[-1]
    x = x.contiguous()
    num_rows = x.numel() // size
    y = torch.empty_like(x)
    bias = weight_KD if bias_KD is None else bias_KD
    block = triton.next_power_of_2(size)
    _normalise[num_rows,](
        x, weight_KD, bias, y, num_rows // len(weight_KD), size, eps, weight_KD.stride(0), bias.stride(0),
        CENTRED=centred, HAS_BIAS=bias_KD is not None, BLOCK=block, num_warps=max(1, min(8, block // 256)),
    )  # fmt: skip
    return y
