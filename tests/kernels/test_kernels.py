"""What the kernels mean, in plain operations.

They run on a GPU, or in Triton's interpreter (see `test_interpreter.py`), whose products of bf16 matrices are nonsense:
there high halves are float16 too, which changes the rounding and none of the indices.
"""

import os

import pytest
import torch
import torch.nn.functional as F

from mgs import kernels

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = torch.device("cpu" if INTERPRETED else "cuda")
HALF = torch.float16 if INTERPRETED else torch.bfloat16

if not INTERPRETED and not (torch.cuda.is_available() and kernels.usable(DEVICE)):
    pytest.skip("no GPU with Triton; where there is Triton, the interpreter runs these", allow_module_level=True)

triton = pytest.importorskip("triton")
tl = pytest.importorskip("triton.language")
linear = pytest.importorskip("mgs.kernels.linear")
attention = pytest.importorskip("mgs.kernels.attention")
norms = pytest.importorskip("mgs.kernels.norms")
rotary = pytest.importorskip("mgs.kernels.rotary")


@triton.jit
def split_in_float16(x):
    high = x.to(tl.float16)
    return high, (x - high.to(tl.float32)).to(tl.float16)


@pytest.fixture(autouse=True)
def halves(monkeypatch):
    if INTERPRETED:
        monkeypatch.setattr(linear, "_split", split_in_float16)


@pytest.fixture
def randn():
    generator = torch.Generator().manual_seed(0)
    return lambda *shape: torch.randn(*shape, generator=generator).to(DEVICE)


def assert_nearly(found, expected):
    """To the accuracy that two halves promise; TF32 would be 40 times too far, one half more than that."""
    error = (found.double() - expected.double()).square().mean().sqrt() / expected.double().std()
    assert found.shape == expected.shape
    assert found.dtype == torch.float32
    assert error < 2e-5


def transposed(x):
    """The same matrices, with inputs as the last dimension in memory."""
    return x.mT.contiguous().mT


def candidates(randn, num, num_in, num_out, inputs_last):
    """θ and candidates near it: the high half of θ, what is missing from it to each candidate, and its scale."""
    theta, unscale = 0.05 * randn(num_in, num_out), torch.tensor(2.0**-10, device=DEVICE)
    high = theta.to(HALF)
    low = ((theta + 1e-4 * randn(num, num_in, num_out) - high.float()) / unscale).to(torch.float16)
    return (transposed(high), transposed(low), unscale) if inputs_last else (high, low, unscale)


def all_candidates(rows, high, low, unscale, bias=None):
    grouped = rows.double().view(len(low), -1, rows.shape[1])
    out = grouped @ (high.double() + low.double() * unscale.double())
    return (out if bias is None else out + bias.double()[:, None]).flatten(0, 1)


FEW = {  # candidates, rows of each, inputs, outputs
    "one row": (3, 1, 70, 50),
    "ragged": (2, 9, 130, 70),
    "whole tiles": (2, 16, 128, 64),
    "rows in two blocks": (2, 130, 70, 33),
    "inputs in parts": (2, 5, 800, 70),
    "inputs in whole parts": (1, 3, 768, 64),
}


@pytest.mark.parametrize("inputs_last", [False, True], ids=["outputs last", "inputs last"])
@pytest.mark.parametrize("case", FEW.values(), ids=FEW.keys())
def test_few_rows_of_each_candidate(randn, case, inputs_last):
    num, rows_each, num_in, num_out = case
    halves = candidates(randn, num, num_in, num_out, inputs_last)
    rows, bias = randn(num * rows_each, num_in), randn(num, num_out)
    assert_nearly(linear.few_rows(rows, *halves, bias), all_candidates(rows, *halves, bias))
    assert_nearly(linear.few_rows(rows, *halves, None), all_candidates(rows, *halves))
    shared = bias[:1].expand(num, num_out)
    assert_nearly(linear.few_rows(rows, *halves, shared), all_candidates(rows, *halves, shared))


@pytest.mark.parametrize("size", [1e-2, 1e2, 1e4])
def test_few_rows_small_and_large(randn, size):
    """In the interpreter also high halves of rows are float16: nothing larger fits."""
    halves, rows = candidates(randn, 2, 70, 50, False), size * randn(10, 70)
    assert_nearly(linear.few_rows(rows, *halves, None), all_candidates(rows, *halves))


def test_the_low_halves_matter(randn):
    """Candidates differ by less than a step of the high half."""
    halves = candidates(randn, 2, 70, 50, False)
    rows = randn(1, 70).repeat(2, 1)
    first, second = linear.few_rows(rows, *halves, None)
    wanted = all_candidates(rows, *halves)
    assert float((first - second).norm()) == pytest.approx(float((wanted[0] - wanted[1]).norm()), rel=0.01)


def test_products_in_parts_repeat_and_leave_their_counts_at_zero(randn):
    """Counters are shared by all products: the next would otherwise add up parts that are not there yet."""
    halves, rows = candidates(randn, 2, 800, 70, False), randn(10, 800)
    assert linear._parts(4, 800) > 1
    first = linear.few_rows(rows, *halves, None)
    for _ in range(3):
        assert torch.equal(linear.few_rows(rows, *halves, None), first)
    assert not linear._counts(DEVICE).any()


def many_expected(rows, first, num_first, second, rows_each, bias=None, a=None, b=None):
    """Row by row."""
    out = []
    for m, row in enumerate(rows.double()):
        k = m // rows_each
        y = row @ (first if m < num_first else second).double()
        if bias is not None:
            y = y + bias[k].double()
        if a is not None:
            y = y + (row @ a[k].double().mT) @ b[k].double()
        out.append(y)
    return torch.stack(out)


@pytest.mark.parametrize("inputs_last", [False, True], ids=["outputs last", "inputs last"])
@pytest.mark.parametrize(("num_rows", "num_in", "num_out"), [(5, 70, 40), (63, 70, 40), (20, 128, 64), (63, 30, 33)])
def test_many_rows_of_one_matrix(randn, num_rows, num_in, num_out, inputs_last):
    matrix, rows = randn(num_in, num_out), randn(num_rows, num_in)
    assert_nearly(
        linear.many_rows(rows, transposed(matrix) if inputs_last else matrix), rows.double() @ matrix.double()
    )


@pytest.mark.parametrize(("num_first", "rank"), [(0, 1), (9, 0), (9, 2), (36, 1), (72, 1)])
def test_many_rows_of_two_matrices_with_what_each_candidate_adds(randn, num_first, rank):
    rows, first, second = randn(72, 70), transposed(randn(70, 40)), transposed(randn(70, 40))
    bias = randn(8, 40)
    a, b = (randn(8, rank, 70), randn(8, rank, 40)) if rank else (None, None)
    found = linear.many_rows(rows, first, num_first, second, 9, bias, a, b)
    assert_nearly(found, many_expected(rows, first, num_first, second, 9, bias, a, b))


def test_many_rows_with_a_low_rank_part_alone(randn):
    """The factors may be in half precision, more inputs than one program reads at once."""
    rows, matrix, a, b = randn(6, 1100), randn(1100, 40), randn(3, 2, 1100), randn(3, 2, 40)
    a, b = a.to(torch.float16), b.to(torch.float16)
    found = linear.many_rows(rows, matrix, rows_each=2, a_KRI=a, b_KRO=b)
    assert_nearly(found, many_expected(rows, matrix, 6, matrix, 2, a=a, b=b))


@pytest.mark.parametrize(("num_rows", "num_out"), [(1, 30), (16, 64), (17, 64), (200, 64), (4096, 64), (300, 50_000)])
def test_tiles_are_ones_the_kernel_can_do(num_rows, num_out):
    block_m, block_n, block_d, warps, stages = linear._many_tile(num_rows, num_out)
    for size in (block_m, block_n, block_d):
        assert size >= 16
        assert size & (size - 1) == 0
    assert warps in (1, 2, 4, 8)
    assert stages >= 1


def plain_attention(query, keys, values, scale):
    return F.scaled_dot_product_attention(query.double(), keys.double(), values.double(), scale=scale).float()


@pytest.mark.parametrize(("heads", "kv_heads", "dim"), [(2, 2, 16), (4, 2, 24), (3, 1, 16)])
@pytest.mark.parametrize("length", [0, 5, 64, 130])
def test_attention_of_a_new_token(randn, heads, kv_heads, dim, length):
    """Row by row, over the positions that are there alone; all others hold what nobody may read."""
    starts = torch.tensor([0, length // 2, length], dtype=torch.int32, device=DEVICE)
    query = randn(3, 1, heads, dim).transpose(1, 2)  # as models hand it over
    new = randn(2, 3, 1, kv_heads, dim).transpose(2, 3)
    cache = torch.full((2, 3, kv_heads, length + 3, dim), float("nan"), device=DEVICE)
    for row, start in enumerate(starts.tolist()):
        cache[:, row, :, start:length] = randn(2, kv_heads, length - start, dim)
    after = cache.clone()
    after[..., length : length + 1, :] = new
    out = attention.attend(
        query, *new, *cache, starts, torch.tensor(length, dtype=torch.int32, device=DEVICE), scaling=0.3
    )
    assert out.shape == (3, 1, heads, dim)
    for row, start in enumerate(starts.tolist()):
        keys, values = after[:, row, :, start : length + 1].repeat_interleave(heads // kv_heads, dim=1)
        expected = plain_attention(query[row], keys, values, 0.3).transpose(0, 1)
        torch.testing.assert_close(out[row], expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(cache, after, rtol=0, atol=0, equal_nan=True)


def test_attention_survives_large_scores(randn):
    query, new = 100 * randn(2, 2, 1, 16), randn(2, 2, 2, 1, 16)
    cache = randn(2, 2, 2, 80, 16)
    starts, length = torch.zeros(2, dtype=torch.int32, device=DEVICE), torch.tensor(70, dtype=torch.int32)
    after = cache.clone()
    after[..., 70:71, :] = new
    expected = plain_attention(query, *after[..., :71, :], 1.0).transpose(1, 2)
    out = attention.attend(query, *new, *cache, starts, length.to(DEVICE), scaling=1.0)
    torch.testing.assert_close(out, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("size", [16, 48, 100])
@pytest.mark.parametrize("centred", [True, False], ids=["LayerNorm", "RMSNorm"])
@pytest.mark.parametrize("has_bias", [True, False])
def test_normalisation_with_each_candidates_scale_and_shift(randn, size, centred, has_bias):
    x, weight = 3 + 2 * randn(6, 2, size), randn(3, size)
    bias = randn(3, size) if has_bias else None
    plain = F.layer_norm(x, (size,), eps=1e-5) if centred else F.rms_norm(x, (size,), eps=1e-5)
    shared = None if bias is None else bias[:1].expand(3, size)
    for scale, shift in ((weight, bias), (weight[:1].expand(3, size), shared)):
        expected = plain.view(3, 4, size) * scale[:, None] + (0 if shift is None else shift[:, None])
        found = norms.normalise(x, scale, shift, 1e-5, centred)
        torch.testing.assert_close(found, expected.view_as(x), rtol=1e-4, atol=1e-5)


def test_normalisation_of_rows_that_do_not_lie_side_by_side(randn):
    x, weight = randn(6, 48, 2).transpose(1, 2), randn(1, 48)
    expected = F.layer_norm(x, (48,), eps=1e-5) * weight
    torch.testing.assert_close(norms.normalise(x, weight, None, 1e-5, True), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dim", [8, 12])
@pytest.mark.parametrize("shared", [True, False], ids=["one position", "a position each"])
def test_rotary_positions(randn, dim, shared):
    """Halves of each head, turned against each other; positions of all rows or of each."""
    query, key = randn(3, 1, 4, dim).transpose(1, 2), randn(3, 1, 2, dim).transpose(1, 2)
    cos, sin = randn(2, 1 if shared else 3, 1, dim)
    found = rotary.rotate(query, key, cos, sin)
    for x, turned in zip((query, key), found, strict=True):
        other = torch.cat([-x[..., dim // 2 :], x[..., : dim // 2]], dim=-1)
        torch.testing.assert_close(turned, x * cos[:, None] + other * sin[:, None], rtol=1e-5, atol=1e-5)
