"""Noise as a function of where it is used, and the arithmetic of directions."""

import math

import pytest
import torch

from mgs.search.directions import clipped, dot, key, noise_like, norm, weighted_sum


def test_keys_are_63_bit_and_differ_when_anything_differs():
    places = [
        (0, 0, 0, "a"),
        (1, 0, 0, "a"),
        (0, 1, 0, "a"),
        (0, 0, 1, "a"),
        (0, 0, 0, "b"),
        (0, 0, "0", "a"),
        (0, 0, 0),
    ]
    keys = [key(*place) for place in places]
    assert len(set(keys)) == len(places)
    assert all(0 <= value < 2**63 for value in keys)
    assert key(3, 1, 4, "w") == key(3, 1, 4, "w")


def test_keys_fill_their_range_evenly():
    shares = torch.tensor([key(i) / 2**63 for i in range(4000)], dtype=torch.float64)
    counts = torch.histc(shares, bins=8, min=0, max=1)
    assert float(((counts - 500) ** 2 / 500).sum()) < 24.3  # chi-square, 7 degrees of freedom, p = 0.001


def test_noise_is_standard_normal_and_drawn_again_equal():
    noise = noise_like(torch.empty(200, 100), 0, 1, "w")
    num = noise.numel()
    assert noise.shape == (200, 100)
    assert noise.dtype == torch.float32
    assert abs(float(noise.mean())) < 4 / math.sqrt(num)
    assert abs(float(noise.var()) - 1) < 4 * math.sqrt(2 / num)
    assert torch.equal(noise, noise_like(torch.empty(200, 100), 0, 1, "w"))
    assert not torch.equal(noise, noise_like(torch.empty(200, 100), 0, 1, "v"))


def test_noise_neither_reads_nor_moves_the_global_generator():
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = noise_like(torch.empty(5), 7)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert torch.equal(first, noise_like(torch.empty(5), 7))


def test_noise_for_a_half_precision_parameter_is_still_fp32():
    assert noise_like(torch.empty(3, dtype=torch.bfloat16), 0).dtype == torch.float32


def test_dot_and_norm_go_over_all_parameters():
    a = {"x": torch.tensor([1.0, 2.0]), "y": torch.tensor([[3.0]])}
    b = {"x": torch.tensor([4.0, -1.0]), "y": torch.tensor([[0.5]])}
    assert dot(a, b) == 4 - 2 + 1.5
    assert norm(a) == pytest.approx(math.sqrt(14), rel=1e-15)


def test_norm_is_accumulated_in_float64():
    direction = {"big": torch.tensor([1e4]), "small": torch.full((1000,), 1e-2)}
    assert norm(direction) ** 2 == pytest.approx(1e8 + 0.1, rel=1e-12)


@pytest.mark.parametrize(("max_norm", "expected"), [(1.0, 1.0), (5.0, 5.0), (10.0, 5.0)])
def test_clipping_shortens_what_is_longer_and_keeps_where_it_points(max_norm, expected):
    direction = {"x": torch.tensor([3.0]), "y": torch.tensor([4.0])}
    short = clipped(direction, max_norm)
    assert norm(short) == pytest.approx(expected, rel=1e-6)
    assert dot(short, direction) == pytest.approx(5 * expected, rel=1e-6)


def test_weighted_sum_is_the_sum_by_hand():
    directions = [{"x": torch.tensor([1.0, 2.0])}, {"x": torch.tensor([10.0, 20.0])}, {"x": torch.tensor([7.0, 7.0])}]
    total = weighted_sum([0.25, 0.75, 0.0], iter(directions))
    assert total["x"].tolist() == [7.75, 15.5]
    assert directions[0]["x"].tolist() == [1.0, 2.0]


def test_weighted_sum_leaves_out_what_has_weight_zero():
    total = weighted_sum([0.0, 1.0], [{"x": torch.tensor([math.inf])}, {"x": torch.tensor([2.0])}])
    assert total["x"].tolist() == [2.0]


def test_weighted_sum_wants_as_many_weights_as_directions():
    with pytest.raises(ValueError, match=r"shorter|longer"):
        weighted_sum([0.5, 0.5], [{"x": torch.ones(1)}])
