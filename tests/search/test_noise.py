"""Noise of full and of low rank, and what a proposal computes without forming its directions."""

import gc
import math
import weakref
from collections import defaultdict

import pytest
import torch

from mgs.errors import UserError
from mgs.search import Proposal, ProposalForm, noise
from mgs.search.directions import Layout, norm, normal
from mgs.search.noise import BLOCK, LowRankNoise, Noise

CPU = torch.device("cpu")
SHAPES = {"matrix": (4, 3), "vector": (6,), "cube": (2, 3, 2), "scalar": (), "same": (4, 3)}
ranks = pytest.mark.parametrize("rank", [None, 1, 4])


def gradients(num=1):
    generator = torch.Generator().manual_seed(2)
    return [
        {name: (0.2 + i) * torch.randn(shape, generator=generator) for i, (name, shape) in enumerate(SHAPES.items())}
        for _ in range(num)
    ]


def low_rank(rank=2, shapes=SHAPES, where=(0, 0)):
    return LowRankNoise(rank, Layout({name: torch.empty(shape) for name, shape in shapes.items()}), CPU, *where)


def drawn_by(monkeypatch):
    """What is drawn from now on, as the places of the draws."""
    places = []
    monkeypatch.setattr(
        noise, "normal", lambda shape, device, *where: places.append(where) or normal(shape, device, *where)
    )
    return places


ONES = defaultdict(lambda: 1.0)  # the scale of every parameter


@pytest.mark.parametrize("rank", [1, 4])
def test_noise_of_low_rank_has_entries_of_variance_1_and_mean_0(rank):
    num = 2000
    a, b = low_rank(rank).draw(range(num), ONES).factors("matrix")
    entries = torch.einsum("kri,krj->kij", a, b).double()
    fourth = 3 * (1 + 2 / rank)  # E[ε⁴] of a sum of `rank` products of two normal numbers
    assert float(entries.mean(0).abs().max()) < 4 / math.sqrt(num)
    assert float((entries.square().mean(0) - 1).abs().max()) < 4 * math.sqrt((fourth - 1) / num)
    assert abs(float((entries[:, 0, 0] * entries[:, 1, 2]).mean())) < 4 / math.sqrt(num)  # and uncorrelated


@pytest.mark.parametrize(("rank", "expected"), [(1, 1), (3, 3), (9, 5)])
def test_noise_of_low_rank_has_that_rank(rank, expected):
    layout = low_rank(rank, {"w": (7, 5)})
    assert all(int(torch.linalg.matrix_rank(layout.flat(k).view(7, 5))) == expected for k in (0, 1, BLOCK))


def test_what_is_no_matrix_is_standard_normal_whatever_the_rank():
    draws = torch.cat(
        [low_rank(1).draw(range(500), ONES).others(name).flatten() for name in ("vector", "cube", "scalar")]
    )
    assert float(draws.mean()) == pytest.approx(0, abs=4 / math.sqrt(len(draws)))
    assert float(draws.var()) == pytest.approx(1, abs=4 * math.sqrt(2 / len(draws)))
    assert float(draws.pow(4).mean()) == pytest.approx(3, abs=4 * math.sqrt(96 / len(draws)))  # products have more


@ranks
def test_two_layers_of_one_shape_and_two_candidates_get_different_noise(rank):
    layout = Layout(gradients()[0])
    source = Noise(layout, CPU, 0) if rank is None else LowRankNoise(rank, layout, CPU, 0)
    draws = [layout.view(source.flat(k), name) for k in (0, 1, BLOCK, BLOCK + 1) for name in ("matrix", "same")]
    assert len({tuple(draw.flatten().tolist()) for draw in draws}) == 8


@pytest.mark.parametrize(
    "ks", [[3], [0, 1, 2], [BLOCK - 1, BLOCK], [5, 2 * BLOCK + 5, 4, 5], list(range(1, 2 * BLOCK + 3))]
)
def test_a_candidate_s_draw_does_not_depend_on_who_else_is_asked_for(ks):
    source = low_rank()
    a, b = source.draw(ks, ONES).factors("matrix")
    others = source.draw(ks, ONES).others("cube")
    assert (a.shape, b.shape, others.shape) == ((len(ks), 2, 4), (len(ks), 2, 3), (len(ks), 2, 3, 2))
    for i, k in enumerate(ks):
        alone_a, alone_b = source.draw([k], ONES).factors("matrix")
        assert torch.equal(a[i], alone_a[0])
        assert torch.equal(b[i], alone_b[0])
        assert torch.equal(others[i], source.draw([k], ONES).others("cube")[0])
        assert torch.equal(a[i].T @ b[i], source.layout.view(source.flat(k), "matrix"))


def test_each_block_is_drawn_once_in_whatever_order_candidates_come(monkeypatch):
    source, num = low_rank(), 4 * BLOCK
    by_centre = sorted(range(num), key=lambda k: k % 5)
    drawn = drawn_by(monkeypatch)
    found = source.draw(by_centre, ONES).numbers
    assert sorted(drawn) == [(0, 0, "block", block) for block in range(4)]
    assert torch.equal(found, source.draw(range(num), ONES).numbers[by_centre])


@pytest.mark.parametrize("num", [2, BLOCK, 3 * BLOCK])
@ranks
def test_a_candidate_does_not_depend_on_their_number(num, rank):
    form = ProposalForm(components="mle", rank=rank)
    few, many = (Proposal(form, gradients(), n, 3, 1) for n in (num, num + 1))
    assert torch.equal(few.flat(num - 1), many.flat(num - 1))


# The closed forms against directions that are drawn and kept. Candidates reach over the border of a block.
FORMS = [
    {},
    {"stay": True},
    {"noise": 0.0, "mix": 0.2},
    {"mix": 0.2, "lengths": (0.1, 0.7), "noise": 0.4},
    {"mix": 0.2, "lengths": (0.1, 0.7), "noise_scale": "constant", "stay": True, "stratified": False},
    {"components": "mle", "noise_scale": "global", "stay": True},
    {"components": "zero"},
]
DENSE_AND_LOW = [(None, "unit"), (None, "exact"), (None, "none"), (1, "unit"), (4, "unit")]


def form_of(options, **others):
    if others.get("density") == "exact" and (options.get("stay") or options.get("noise") == 0):
        options = options | {"stay": False, "noise": 0.3}  # the exact density is for noise on all
    return ProposalForm(**options, **others)


@pytest.mark.parametrize("num_gradients", [1, 3])
@pytest.mark.parametrize("options", FORMS)
@pytest.mark.parametrize(("rank", "density"), DENSE_AND_LOW)
def test_log_densities_are_the_log_density_of_every_sample(rank, density, options, num_gradients):
    proposal = Proposal(form_of(options, rank=rank, density=density), gradients(num_gradients), BLOCK + 6, 1, 2)
    expected = [proposal.log_density(proposal.sample(k)) for k in range(len(proposal))]
    assert proposal.log_densities() == pytest.approx(expected, rel=1e-5, abs=1e-4)
    assert density == "none" or max(expected) - min(expected) > 0.1


@pytest.mark.parametrize("num_gradients", [1, 3])
@pytest.mark.parametrize("options", FORMS)
@ranks
def test_squared_norms_and_mean_are_those_of_the_samples(rank, options, num_gradients):
    proposal = Proposal(form_of(options, rank=rank), gradients(num_gradients), BLOCK + 6, 1, 2)
    samples = [proposal.sample(k) for k in range(len(proposal))]
    assert proposal.squared_norms() == pytest.approx([norm(sample) ** 2 for sample in samples], rel=1e-5)
    weights = torch.softmax(torch.randn(len(samples), generator=torch.Generator().manual_seed(5)), 0).double()
    mean = proposal.mean(weights.tolist())
    for name, shape in SHAPES.items():
        expected = torch.tensordot(weights, torch.stack([sample[name].double() for sample in samples]), dims=1)
        assert mean[name].shape == shape
        torch.testing.assert_close(mean[name], expected.float(), rtol=1e-5, atol=1e-5)


def test_exact_log_densities_leave_out_a_tensor_without_gradient():
    g = gradients()[0] | {"vector": torch.zeros(6)}
    proposal = Proposal(ProposalForm(density="exact"), [g], 4, 0)
    assert proposal.log_densities() == pytest.approx([proposal.log_density(proposal.sample(k)) for k in range(4)])


def test_densities_and_norms_leave_the_gradients_as_they_are():
    g, kept = gradients(), gradients()
    proposal = Proposal(ProposalForm(density="exact"), g, 4, 0)
    before = proposal.flat(3)
    proposal.log_densities(), proposal.squared_norms(), proposal.mean([0.25] * 4), proposal.log_density(g[0])
    assert torch.equal(proposal.flat(3), before)
    assert all(torch.equal(tensor, kept[0][name]) for name, tensor in g[0].items())


def test_the_mean_draws_no_candidate_of_weight_zero(monkeypatch):
    proposal = Proposal(ProposalForm(), gradients(), 5, 8, 9)
    drawn = drawn_by(monkeypatch)
    mean = proposal.mean([0.0, 0.5, 0.0, 0.0, 0.5])
    assert drawn == [(8, 9, 1), (8, 9, 4)]
    expected = 0.5 * proposal.flat(1) + 0.5 * proposal.flat(4)
    torch.testing.assert_close(proposal.layout.flat(mean), expected)


def test_the_mean_of_low_rank_draws_only_blocks_with_weight(monkeypatch):
    proposal = Proposal(ProposalForm(rank=1, stay=True), gradients(), 4 * BLOCK, 8)
    weights = [0.0] * 4 * BLOCK
    weights[0] = weights[BLOCK + 3] = weights[3 * BLOCK] = 1 / 3  # candidate 0 stays: it needs no noise
    drawn = drawn_by(monkeypatch)
    mean = proposal.mean(weights)
    assert drawn == [(8, "block", 1), (8, "block", 3)]
    expected = (proposal.flat(BLOCK + 3) + proposal.flat(3 * BLOCK)) / 3
    torch.testing.assert_close(proposal.layout.flat(mean), expected, rtol=1e-5, atol=1e-5)


@ranks
def test_nothing_is_drawn_without_noise_or_weight(rank, monkeypatch):
    drawn = drawn_by(monkeypatch)
    silent = Proposal(ProposalForm(noise=0.0, rank=rank), gradients(), 4, 0)
    silent.mean([0.25] * 4), silent.log_densities(), silent.squared_norms()
    nothing = Proposal(ProposalForm(rank=rank), gradients(), 4, 0).mean([0.0] * 4)
    assert not drawn
    assert not any(tensor.any() for tensor in nothing.values())


@pytest.mark.parametrize("num", [3, 5])
@ranks
def test_the_mean_wants_as_many_weights_as_candidates(rank, num):
    proposal = Proposal(ProposalForm(rank=rank), gradients(), 4, 0)
    with pytest.raises(UserError, match=f"4 candidates need as many weights, got {num}"):
        proposal.mean([1 / num] * num)


def test_inner_products_are_drawn_once_and_die_with_the_proposal(monkeypatch):
    drawn = drawn_by(monkeypatch)
    proposal = Proposal(ProposalForm(), gradients(), 4, 0)
    proposal.log_densities(), proposal.squared_norms(), proposal.log_densities()
    assert len(drawn) == 4
    gone = weakref.ref(proposal)
    del proposal
    gc.collect()
    assert gone() is None
