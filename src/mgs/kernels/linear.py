"""Products of a few rows with each of many weight sets, and of many rows with one, at nearly fp32 accuracy.

Decoding multiplies a handful of rows with each candidate's weights, so time goes into reading weights. A weight is kept
in two halves of two bytes, w = high + low; rows are split alike, and

    x w ≈ x_high w_high + x_low w_high + x w_low

runs on the tensor cores with an error of some 10⁻⁶, against 8·10⁻⁴ for TF32. High halves are bf16. Candidates differ
from θ by about as little as bf16 drops, so they all share them: a candidate is its low half alone, which is fp16 (three
bits more than bf16) and scaled, because it is small and holds all of Δ.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

ROW_SCALE: tl.constexpr = tl.constexpr(2.0**-4)  # rows up to 10⁶ fit fp16
PROCESSORS = 132  # of a large GPU; only tile sizes depend on it


@triton.jit
def _split(x):
    high = x.to(tl.bfloat16)
    return high, (x - high.to(tl.float32)).to(tl.bfloat16)


@triton.jit
def _add_parts(
    total, parts_ptr, counts_ptr, tile, part, PARTS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr
):
    """The sum of a tile's parts, for the last of them to finish, always added in the same order, so that results
    repeat; and whether this is the last. Leaves the count at zero for the next product."""
    SIZE: tl.constexpr = BLOCK_M * BLOCK_N
    mine = parts_ptr + tile * PARTS * SIZE
    spot = tl.arange(0, BLOCK_N)[:, None] + tl.arange(0, BLOCK_M)[None, :] * BLOCK_N
    tl.store(mine + part * SIZE + spot, total)
    tl.debug_barrier()
    last = tl.atomic_add(counts_ptr + tile, 1, sem="acq_rel") == PARTS - 1
    if last:
        total = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
        for i in tl.static_range(PARTS):
            total += tl.load(mine + i * SIZE + spot, cache_modifier=".cg")
        tl.atomic_xchg(counts_ptr + tile, 0, sem="release")
    return total, last


@triton.jit
def _few_rows(
    x_ptr, high_ptr, low_ptr, unscale_ptr, bias_ptr, y_ptr, parts_ptr, counts_ptr,
    rows_each, num_out, num_in, w_in, w_out, low_group, bias_group,
    HAS_BIAS: tl.constexpr, PARTS: tl.constexpr, WHOLE: tl.constexpr, OUT_LAST: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """yᵀ = Wᵀ xᵀ, so that the weights are the side the tensor cores want large.

    Program (group, tile of outputs, part of the inputs)."""
    group, tile, part = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2)
    n = tile * BLOCK_N + tl.arange(0, BLOCK_N)
    length = tl.cdiv(tl.cdiv(num_in, PARTS), BLOCK_D) * BLOCK_D
    begin = part * length
    for first in range(0, rows_each, BLOCK_M):
        m = first + tl.arange(0, BLOCK_M)
        d = begin + tl.arange(0, BLOCK_D)
        x = x_ptr + (group * rows_each + m[None, :]) * num_in + d[:, None]
        if OUT_LAST:
            place = d[:, None] * w_in + n[None, :] * w_out
        else:
            place = n[:, None] * w_out + d[None, :] * w_in
        high, low = high_ptr + place, low_ptr + group * low_group + place
        here = (m < rows_each)[None, :]
        main = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
        rest = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
        small = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
        for start in range(begin, tl.minimum(begin + length, num_in), BLOCK_D):
            if WHOLE:  # no tile sticks out
                w_high, w_low = tl.load(high), tl.load(low)
                row = tl.load(x, mask=here, other=0.0)
            else:
                inside = start + tl.arange(0, BLOCK_D) < num_in
                if OUT_LAST:
                    there = inside[:, None] & (n < num_out)[None, :]
                else:
                    there = (n < num_out)[:, None] & inside[None, :]
                w_high, w_low = tl.load(high, mask=there, other=0.0), tl.load(low, mask=there, other=0.0)
                row = tl.load(x, mask=here & inside[:, None], other=0.0)
            x_high, x_low = _split(row)
            if OUT_LAST:
                w_high, w_low = tl.trans(w_high), tl.trans(w_low)
            main = tl.dot(w_high, x_high, main)
            rest = tl.dot(w_high, x_low, rest)
            small = tl.dot(w_low, (row * ROW_SCALE).to(tl.float16), small)
            x += BLOCK_D
            high += BLOCK_D * w_in
            low += BLOCK_D * w_in
        total = main + (rest + small * (tl.load(unscale_ptr) / ROW_SCALE))
        last = True
        if PARTS > 1:
            tile_number = group * tl.num_programs(1) + tile
            total, last = _add_parts(total, parts_ptr, counts_ptr, tile_number, part, PARTS, BLOCK_M, BLOCK_N)
        if last:
            if HAS_BIAS:
                total += tl.load(bias_ptr + group * bias_group + n, mask=n < num_out, other=0.0)[:, None]
            y = y_ptr + (group * rows_each + m[None, :]) * num_out + n[:, None]
            tl.store(y, total, mask=here & (n < num_out)[:, None])


def few_rows(rows_NI: Tensor, high: Tensor, low_K: Tensor, unscale: Tensor, bias_KO: Tensor | None) -> Tensor:
    """Rows (K·M, I) times `high` + `low_K`, of shapes (I, O) and (K, I, O) with any strides. `low_K` has been
    multiplied by one over `unscale`, a tensor of one number."""
    groups, (num_in, num_out) = len(low_K), high.shape
    rows_each = len(rows_NI) // groups
    y = torch.empty((len(rows_NI), num_out), device=rows_NI.device, dtype=torch.float32)
    block_m, block_n, block_d = min(128, max(16, triton.next_power_of_2(rows_each))), 64, 64
    tiles = triton.cdiv(num_out, block_n)
    parts = _parts(groups * tiles, num_in) if rows_each <= block_m else 1
    workspace, counts = y, y
    if parts > 1:
        workspace = torch.empty(groups * tiles * parts * block_m * block_n, device=y.device, dtype=torch.float32)
        counts = _counts(y.device)
    bias = y if bias_KO is None else bias_KO
    _few_rows[groups, tiles, parts](
        rows_NI, high, low_K, unscale, bias, y, workspace, counts,
        rows_each, num_out, num_in, high.stride(0), high.stride(1), low_K.stride(0), bias.stride(0),
        HAS_BIAS=bias_KO is not None, PARTS=parts, OUT_LAST=high.stride(1) == 1,
        WHOLE=num_out % block_n == 0 and num_in % (block_d * parts) == 0,
        BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_D=block_d, num_warps=4, num_stages=4 if block_m <= 32 else 3,
    )  # fmt: skip
    return y


def _parts(programs: int, num_in: int) -> int:
    """Into how many parts the inputs are cut: four on a GPU that would otherwise be half idle."""
    return 4 if programs < 128 and num_in >= 768 and programs <= TILES else 1


TILES = 65_536  # of a product that is cut into parts
_COUNTS: dict[torch.device, Tensor] = {}


def _counts(device: torch.device) -> Tensor:
    """Zeros that the kernel leaves as zeros, always in the same place: captured graphs go on using them."""
    if device not in _COUNTS:
        _COUNTS[device] = torch.zeros(TILES, device=device, dtype=torch.int32)
    return _COUNTS[device]


@triton.jit
def _many_rows(
    x_ptr, w_ptr, v_ptr, bias_ptr, y_ptr, t_ptr, b_ptr, num_first, num_rows, rows_each, num_out, num_in,
    w_in, w_out, bias_group, b_group,
    HAS_BIAS: tl.constexpr, RANK: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Program = a tile of y. The first rows are multiplied with w, the others with v. With RANK, adds t_m b_k of the
    candidate k that row m belongs to."""
    tiles_first = tl.cdiv(num_first, BLOCK_M)
    tiles_m = tiles_first + tl.cdiv(num_rows - num_first, BLOCK_M)
    tile = tl.program_id(0)
    tile_m = tile % tiles_m
    if tile_m < tiles_first:
        m = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
        matrix, end = w_ptr, num_first
    else:
        m = num_first + (tile_m - tiles_first) * BLOCK_M + tl.arange(0, BLOCK_M)
        matrix, end = v_ptr, num_rows
    n = (tile // tiles_m) * BLOCK_N + tl.arange(0, BLOCK_N)
    d = tl.arange(0, BLOCK_D)
    here, there = (m < end)[:, None], (n < num_out)[None, :]
    x = x_ptr + m[:, None] * num_in + d[None, :]
    w = matrix + d[:, None] * w_in + n[None, :] * w_out
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, num_in, BLOCK_D):
        inside = d < num_in - start
        x_high, x_low = _split(tl.load(x, mask=here & inside[None, :], other=0.0))
        w_high, w_low = _split(tl.load(w, mask=inside[:, None] & there, other=0.0))
        total = tl.dot(x_high, w_high, total)
        total = tl.dot(x_low, w_high, total)
        total = tl.dot(x_high, w_low, total)
        x += BLOCK_D
        w += BLOCK_D * w_in
    k = (m // rows_each)[:, None].to(tl.int64)
    if HAS_BIAS:
        total += tl.load(bias_ptr + k * bias_group + n[None, :], mask=here & there, other=0.0)
    for r in tl.static_range(RANK):
        t = tl.load(t_ptr + m * RANK + r, mask=m < end, other=0.0)
        b = tl.load(b_ptr + k * b_group + r * num_out + n[None, :], mask=here & there, other=0.0)
        total += t[:, None] * b.to(tl.float32)
    tl.store(y_ptr + m[:, None].to(tl.int64) * num_out + n[None, :], total, mask=here & there)


@triton.jit
def _project(x_ptr, a_ptr, t_ptr, rows_each, num_in, a_group, RANK: tl.constexpr, BLOCK_D: tl.constexpr):
    """t_mr = ⟨x_m, a_kr⟩; program = a row."""
    row = tl.program_id(0).to(tl.int64)
    a = a_ptr + (row // rows_each) * a_group
    for r in tl.static_range(RANK):
        total = tl.zeros((BLOCK_D,), dtype=tl.float32)
        for start in range(0, num_in, BLOCK_D):
            d = start + tl.arange(0, BLOCK_D)
            x = tl.load(x_ptr + row * num_in + d, mask=d < num_in, other=0.0)
            total += x * tl.load(a + r * num_in + d, mask=d < num_in, other=0.0).to(tl.float32)
        tl.store(t_ptr + row * RANK + r, tl.sum(total, axis=0))


def many_rows(
    rows_NI: Tensor,
    first: Tensor,
    num_first: int | None = None,
    second: Tensor | None = None,
    rows_each: int = 1,
    bias_KO: Tensor | None = None,
    a_KRI: Tensor | None = None,
    b_KRO: Tensor | None = None,
) -> Tensor:
    """Rows (N, I) times an fp32 matrix (I, O), the rows from `num_first` on times a second one of the same strides;
    plus the bias and (x a_k) b_k of the candidate of each row."""
    num_rows, (num_in, num_out) = len(rows_NI), first.shape
    y = torch.empty((num_rows, num_out), device=rows_NI.device, dtype=torch.float32)
    rank, t, b = 0, y, y
    if a_KRI is not None and b_KRO is not None:
        rank = a_KRI.shape[1]
        t, b = torch.empty((num_rows, rank), device=y.device, dtype=torch.float32), b_KRO
        _project[num_rows,](rows_NI, a_KRI, t, rows_each, num_in, a_KRI.stride(0), RANK=rank, BLOCK_D=1024, num_warps=4)
    num_first = num_rows if num_first is None else num_first
    second = first if second is None else second
    bias = y if bias_KO is None else bias_KO
    block_m, block_n, block_d, warps, stages = _many_tile(num_rows, num_out)
    tiles = triton.cdiv(num_first, block_m) + triton.cdiv(num_rows - num_first, block_m)
    _many_rows[tiles * triton.cdiv(num_out, block_n),](
        rows_NI, first, second, bias, y, t, b, num_first, num_rows, rows_each, num_out, num_in,
        first.stride(0), first.stride(1), bias.stride(0), b.stride(0), HAS_BIAS=bias_KO is not None, RANK=rank,
        BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_D=block_d, num_warps=warps, num_stages=stages,
    )  # fmt: skip
    return y


def _many_tile(num_rows: int, num_out: int) -> tuple[int, int, int, int, int]:
    """The largest tile that still gives every processor one."""
    for block_m, block_n, warps in ((128, 128, 8), (128, 64, 4), (64, 64, 4), (32, 64, 4)):
        if triton.cdiv(num_rows, block_m) * triton.cdiv(num_out, block_n) >= PROCESSORS and num_rows > block_m // 2:
            return block_m, block_n, 32 if block_m > 64 else 64, warps, 3
    return 16 if num_rows <= 16 else 32 if num_rows <= 32 else 64, 32, 64, 4, 3
