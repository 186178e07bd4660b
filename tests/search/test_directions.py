"""Noise as a function of where it is used, and the arithmetic of directions."""

import math

import pytest
import torch

from mgs.search.directions import Layout, clipped, key, norm, normal

CPU = torch.device("cpu")


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
    noise = normal((200, 100), CPU, 0, 1, "w")
    num = noise.numel()
    assert noise.shape == (200, 100)
    assert noise.dtype == torch.float32
    assert abs(float(noise.mean())) < 4 / math.sqrt(num)
    assert abs(float(noise.var()) - 1) < 4 * math.sqrt(2 / num)
    assert torch.equal(noise, normal((200, 100), CPU, 0, 1, "w"))
    assert not torch.equal(noise, normal((200, 100), CPU, 0, 1, "v"))


def test_noise_neither_reads_nor_moves_the_global_generator():
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = normal([5], CPU, 7)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert torch.equal(first, normal([5], CPU, 7))


def parameters():
    """One parameter of each number of dimensions from 0 to 3."""
    shapes = {"matrix": (3, 2), "scalar": (), "cube": (2, 2, 2), "vector": (5,)}
    return {name: torch.randn(shape, generator=torch.Generator().manual_seed(1)) for name, shape in shapes.items()}


def test_a_layout_flattens_and_gives_back_every_parameter():
    layout, given = Layout(parameters()), parameters()
    vector = layout.flat(given)
    assert vector.shape == (layout.size,) == (6 + 1 + 8 + 5,)
    assert vector[:6].tolist() == given["matrix"].flatten().tolist()
    back = layout.views(vector)
    assert list(back) == list(given)
    assert all(torch.equal(back[name], given[name]) and back[name].shape == given[name].shape for name in given)
    assert torch.equal(layout.flat(dict(reversed(given.items()))), vector)  # the layout's order counts


def test_a_layout_views_several_vectors_at_once():
    layout, vectors = Layout(parameters()), torch.arange(60.0).view(3, 20)
    for name, tensor in parameters().items():
        together = layout.view(vectors, name)
        assert together.shape == (3, *tensor.shape)
        assert all(torch.equal(together[i], layout.view(vectors[i], name)) for i in range(3))


def test_a_view_is_the_vector_s_memory_and_flattening_is_a_copy():
    layout, given = Layout({"x": torch.zeros(2)}), {"x": torch.zeros(2)}
    vector = layout.flat(given)
    layout.view(vector, "x").fill_(1)
    assert vector.tolist() == [1, 1]
    assert given["x"].tolist() == [0, 0]


def test_a_layout_flattens_half_precision_to_fp32_without_history():
    given = {"x": torch.full((3,), 0.1, dtype=torch.bfloat16, requires_grad=True)}
    vector = Layout(given).flat(given)
    assert vector.dtype == torch.float32
    assert not vector.requires_grad
    assert torch.equal(vector, given["x"].detach().float())


def test_the_norm_goes_over_all_parameters():
    a = {"x": torch.tensor([1.0, 2.0]), "y": torch.tensor([[3.0]])}
    assert norm(a) == pytest.approx(math.sqrt(14), rel=1e-15)


def test_norm_is_accumulated_in_float64():
    direction = {"big": torch.tensor([1e4]), "small": torch.full((1000,), 1e-2)}
    assert norm(direction) ** 2 == pytest.approx(1e8 + 0.1, rel=1e-12)


@pytest.mark.parametrize(("max_norm", "expected"), [(1.0, 1.0), (5.0, 5.0), (10.0, 5.0)])
def test_clipping_shortens_what_is_longer_and_keeps_where_it_points(max_norm, expected):
    direction = {"x": torch.tensor([3.0]), "y": torch.tensor([4.0])}
    short = clipped(direction, max_norm)
    assert norm(short) == pytest.approx(expected, rel=1e-6)
    assert float(short["y"] / short["x"]) == pytest.approx(4 / 3, rel=1e-6)
