"""The proposal as a pair of `sample` and `log_density`, against torch.distributions and the paper's formulas."""

import itertools
import math
from collections import Counter

import pytest
import torch
from torch.distributions import Categorical, Independent, MixtureSameFamily, Normal

from mgs.errors import UserError
from mgs.search.directions import normal
from mgs.search.proposal import Proposal, ProposalForm


def gradients(num=1, seed=0):
    """`num` gradients over three small tensors of unlike size."""
    generator = torch.Generator().manual_seed(seed)
    return [
        {
            "a": torch.randn(2, 2, generator=generator),
            "b": 0.3 * torch.randn(3, generator=generator),
            "c": 2 * torch.randn(1, generator=generator),
        }
        for _ in range(num)
    ]


def flat(direction):
    return torch.cat([tensor.double().flatten() for tensor in direction.values()])


def reference_mixture(form, g, sigma):
    """The same mixture by torch.distributions, from the paper's equation and not from the proposal's centres."""
    means, weights = [torch.zeros_like(flat(g[0]))], [form.mix]
    for gradient in g:
        for length in form.lengths:
            means.append(length * flat(gradient))
            weights.append((1 - form.mix) / (len(g) * len(form.lengths)))
    scale = torch.cat(
        [torch.full((tensor.numel(),), sigma[name], dtype=torch.float64) for name, tensor in g[0].items()]
    )
    components = Independent(Normal(torch.stack(means), scale.expand(len(means), -1)), 1)
    return MixtureSameFamily(Categorical(torch.tensor(weights, dtype=torch.float64)), components)


@pytest.mark.parametrize("noise_scale", ["tensor", "global", "constant"])
@pytest.mark.parametrize(("num", "lengths", "mix"), [(1, (1.0,), 0.5), (1, (0.1, 1.0), 0.2), (3, (0.3, 1.0), 0.7)])
def test_exact_density_equals_torch_distributions(noise_scale, num, lengths, mix):
    g = gradients(num)
    form = ProposalForm(mix=mix, lengths=lengths, noise=0.7, noise_scale=noise_scale, density="exact")
    proposal = Proposal(form, g, 6, 5)
    mean_abs = {name: sum(float(one[name].double().abs().mean()) for one in g) / num for name in g[0]}
    over_all = sum(float(flat(one).abs().mean()) for one in g) / num
    sigma = {
        name: 0.7 * {"tensor": mean_abs[name], "global": over_all, "constant": 1.0}[noise_scale] for name in mean_abs
    }
    expected = reference_mixture(form, g, sigma)
    for k in range(len(proposal)):
        direction = proposal.sample(k)
        assert proposal.log_density(direction) == pytest.approx(float(expected.log_prob(flat(direction))), rel=1e-9)


def test_exact_density_integrates_to_one():
    form = ProposalForm(mix=0.3, lengths=(0.5, 2.0), noise=0.4, noise_scale="constant", density="exact")
    proposal = Proposal(form, [{"w": torch.tensor([1.0])}], 2, 0)
    grid = torch.linspace(-4, 6, 4001, dtype=torch.float64)
    values = torch.tensor([proposal.log_density({"w": x.view(1)}) for x in grid], dtype=torch.float64).exp()
    assert float(torch.trapezoid(values, grid)) == pytest.approx(1.0, abs=1e-9)


def test_densities_of_thousands_of_nats_keep_their_differences():
    form = ProposalForm(components="zero", noise_scale="constant", density="exact", noise=1e-3)
    proposal = Proposal(form, [{"w": torch.ones(100_000)}], 1, 0)
    at, beside = ({"w": torch.cat([torch.zeros(99_999), torch.tensor([x])])} for x in (0.0, 8e-4))
    assert proposal.log_density(at) > 500_000
    assert proposal.log_density(at) - proposal.log_density(beside) == pytest.approx(0.32, abs=1e-6)


@pytest.mark.parametrize("mix", [0.5, 0.1])
def test_unit_density_is_its_formula(mix):
    (g,) = gradients()
    proposal = Proposal(ProposalForm(mix=mix, noise=0.5), [g], 4, 1)
    for k in range(4):
        direction = proposal.sample(k)
        x, centre = flat(direction), flat(g)
        by_hand = mix * torch.exp(-0.5 * (x @ x)) + (1 - mix) * torch.exp(-0.5 * ((x - centre) @ (x - centre)))
        assert proposal.log_density(direction) == pytest.approx(math.log(by_hand), rel=1e-9)


def test_unit_density_of_one_component_is_that_component_s():
    (g,) = gradients()
    direction = {name: torch.ones_like(tensor) for name, tensor in g.items()}
    for components, centre in (("zero", 0.0), ("mle", 1.0)):
        proposal = Proposal(ProposalForm(components=components), [g], 2, 1)
        difference = flat(direction) - centre * flat(g)
        assert proposal.log_density(direction) == pytest.approx(-0.5 * float(difference @ difference), rel=1e-9)


def test_no_density_is_zero():
    (g,) = gradients()
    proposal = Proposal(ProposalForm(density="none"), [g], 2, 1)
    assert [proposal.log_density(proposal.sample(k)) for k in range(2)] == [0.0, 0.0]


def test_a_tensor_without_gradient_gets_no_noise_and_no_density():
    (g,) = gradients()
    silent = g | {"b": torch.zeros(3)}
    proposal = Proposal(ProposalForm(density="exact", components="zero"), [silent], 2, 1)
    direction = proposal.sample(0)
    assert not direction["b"].any()
    without = {name: tensor for name, tensor in silent.items() if name != "b"}
    expected = Proposal(proposal.form, [without], 2, 1).log_density({name: direction[name] for name in without})
    assert proposal.log_density(direction) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("components", "length"), [("zero", 0.0), ("mle", 0.5)])
def test_samples_have_the_centre_s_mean_and_sigma(components, length):
    g = {"w": torch.full((40, 50), 2.0), "v": torch.full((2000,), -0.1)}
    proposal = Proposal(ProposalForm(components=components, lengths=(0.5,), noise=0.25), [g], 5, 3)
    for name, centre, sigma in (("w", 2.0, 0.5), ("v", -0.1, 0.025)):
        draws = torch.stack([proposal.sample(k)[name].flatten() for k in range(5)]).double()
        num = draws.numel()
        assert float(draws.mean()) == pytest.approx(length * centre, abs=4 * sigma / math.sqrt(num))
        assert float(draws.std()) == pytest.approx(sigma, rel=4 / math.sqrt(2 * num))


def test_scales_are_those_of_the_paper():
    g = {"a": torch.tensor([1.0, -3.0]), "b": torch.tensor([[8.0, 0.0, 0.0, -12.0]])}
    sigma = {
        s: Proposal(ProposalForm(noise_scale=s, noise=0.5), [g], 2, 0).sigma for s in ("tensor", "global", "constant")
    }
    assert sigma["tensor"] == {"a": 1.0, "b": 2.5}  # half of mean |g|: 2 and 5
    assert sigma["global"] == {"a": 2.0, "b": 2.0}  # half of 24 / 6
    assert sigma["constant"] == {"a": 0.5, "b": 0.5}
    other = {"a": torch.tensor([0.0, 0.0]), "b": torch.tensor([[4.0, 0.0, 0.0, -4.0]])}
    assert Proposal(ProposalForm(), [other], 2, 0).sigma == {"a": 0.0, "b": 2.0}
    assert Proposal(ProposalForm(noise_scale="global"), [other], 2, 0).sigma == pytest.approx({"a": 8 / 6, "b": 8 / 6})
    assert Proposal(ProposalForm(), [g, other], 2, 0).sigma == {"a": 1.0, "b": 3.5}  # averaged over the gradients


@pytest.mark.parametrize("rank", [None, 1])
def test_a_draw_depends_on_seed_step_candidate_and_name(rank):
    g = {"a": torch.ones(4, 2), "b": torch.ones(4, 2)}
    form = ProposalForm(components="zero", rank=rank)
    draws = [
        Proposal(form, [g], 3, seed, step).sample(k)[name].flatten()
        for seed in (0, 1)
        for step in (0, 1)
        for k in range(3)
        for name in ("a", "b")
    ]
    assert len({tuple(draw.tolist()) for draw in draws}) == len(draws) == 24


@pytest.mark.parametrize("rank", [None, 1])
def test_a_draw_depends_on_nothing_else(rank):
    g = {"a": torch.ones(4, 2), "b": torch.ones(8)}
    first = Proposal(ProposalForm(components="zero", rank=rank), [g], 2, 0, 7)
    torch.manual_seed(123)
    expected = first.sample(1)
    first.sample(0)  # the order of drawing
    torch.randn(10)  # the global generator
    assert torch.equal(first.sample(1)["a"], expected["a"])
    second = Proposal(ProposalForm(density="none", rank=rank), [g, g], 70, 0, 7)  # more candidates, other centres
    assert second.components[1] == "zero"
    assert all(torch.equal(second.sample(1)[name], expected[name]) for name in g)
    if rank is None:
        assert torch.equal(first.flat(1), normal([16], torch.device("cpu"), 0, 7, 1))


def test_changing_what_was_drawn_changes_neither_the_next_draw_nor_the_gradient():
    (g,) = gradients()
    kept = {name: tensor.clone() for name, tensor in g.items()}
    for noise in (0.0, 1.0):
        proposal = Proposal(ProposalForm(components="mle", noise=noise), [g], 1, 0)
        expected = proposal.sample(0)["a"].clone()
        proposal.sample(0)["a"].zero_()
        assert torch.equal(proposal.sample(0)["a"], expected)
        assert all(torch.equal(g[name], kept[name]) for name in g)


@pytest.mark.parametrize(("num", "mix", "zeros"), [(4, 0.5, 2), (8, 0.25, 2), (10, 0.9, 9), (6, 1.0, 6), (6, 0.0, 0)])
def test_stratified_candidates_are_dealt_in_proportion(num, mix, zeros):
    (g,) = gradients()
    for step in range(5):
        assert Counter(Proposal(ProposalForm(mix=mix), [g], num, 0, step).components) == Counter(
            {name: count for name, count in (("zero", zeros), ("mle", num - zeros)) if count}
        )


def test_random_candidates_follow_the_mixture_in_the_long_run():
    g = gradients(2)
    form = ProposalForm(mix=0.3, stratified=False, lengths=(0.5, 1.0))
    num = 4000
    counts = Counter((c.gradient, c.length) for c in Proposal(form, g, num, 0).assigned)
    expected = {(None, 0.0): 0.3} | {(j, s): 0.175 for j in (0, 1) for s in (0.5, 1.0)}
    assert set(counts) == set(expected)
    for centre, share in expected.items():
        assert counts[centre] / num == pytest.approx(share, abs=4 * math.sqrt(share * (1 - share) / num))


def test_random_candidates_vary_from_step_to_step_and_stay_for_a_step():
    (g,) = gradients()
    form = ProposalForm(stratified=False)
    numbers = [Proposal(form, [g], 4, 0, step).components.count("zero") for step in range(40)]
    assert len(set(numbers)) > 2
    assert numbers == [Proposal(form, [g], 4, 0, step).components.count("zero") for step in range(40)]


@pytest.mark.parametrize("stratified", [True, False])
@pytest.mark.parametrize("components", ["zero", "mle"])
def test_one_component_alone(components, stratified):
    (g,) = gradients()
    proposal = Proposal(ProposalForm(components=components, stratified=stratified), [g], 5, 0)
    assert proposal.components == [components] * 5


def test_every_gradient_at_every_length_is_dealt_once_when_there_is_room():
    proposal = Proposal(ProposalForm(lengths=(0.03, 0.1, 0.3), mix=0.25), gradients(3), 12, 0)
    assert proposal.components.count("zero") == 3
    dealt = [(c.gradient, c.length) for c in proposal.assigned if c.gradient is not None]
    assert sorted(dealt) == [(j, s) for j in range(3) for s in (0.03, 0.1, 0.3)]


def test_with_more_centres_than_candidates_each_step_takes_others_and_none_twice():
    form, g = ProposalForm(components="mle", lengths=(0.1, 0.3)), gradients(4)
    dealt = [[(c.gradient, c.length) for c in Proposal(form, g, 3, 0, step).assigned] for step in range(30)]
    assert all(len(set(step)) == 3 for step in dealt)
    assert len({centre for step in dealt for centre in step}) == 8


@pytest.mark.parametrize(("num", "lengths", "mix"), [(1, (1.0,), 0.5), (3, (0.1, 0.5), 0.2), (2, (1.0,), 0.0)])
def test_weights_of_the_centres_sum_to_one(num, lengths, mix):
    centres = ProposalForm(mix=mix, lengths=lengths).centres(num)
    assert sum(c.weight for c in centres) == pytest.approx(1.0)
    assert sum(c.weight for c in centres if c.gradient is None) == pytest.approx(mix)


@pytest.mark.parametrize("stratified", [True, False])
@pytest.mark.parametrize("components", ["mixture", "zero", "mle"])
@pytest.mark.parametrize("num", [1, 4])
def test_stay_makes_the_first_candidate_exactly_zero(num, components, stratified):
    (g,) = gradients()
    proposal = Proposal(ProposalForm(stay=True, components=components, stratified=stratified), [g], num, 0)
    assert len(proposal) == num
    assert proposal.components[0] == "zero"
    assert not any(tensor.any() for tensor in proposal.sample(0).values())
    assert all(tensor.any() for k in range(1, num) for tensor in proposal.sample(k).values())


def test_without_noise_candidates_are_the_centres_themselves():
    g = gradients(2)
    proposal = Proposal(ProposalForm(noise=0.0, lengths=(0.25, 1.0), mix=0.5), g, 8, 0)
    for k, centre in enumerate(proposal.assigned):
        for name, tensor in proposal.sample(k).items():
            expected = torch.zeros_like(tensor) if centre.gradient is None else centre.length * g[centre.gradient][name]
            assert torch.equal(tensor, expected)


def test_directions_are_fp32_for_gradients_of_any_type():
    for dtype, noise in itertools.product((torch.float64, torch.bfloat16), (0.0, 1.0)):
        proposal = Proposal(ProposalForm(noise=noise, components="mle"), [{"w": torch.ones(2, dtype=dtype)}], 1, 0)
        assert proposal.sample(0)["w"].dtype == proposal.mean([1.0])["w"].dtype == torch.float32


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"components": "mixtur"}, "did you mean 'mixture'"),
        ({"noise_scale": "tensors"}, "did you mean 'tensor'"),
        ({"density": "exakt"}, "did you mean 'exact'"),
        ({"mix": 1.5}, r"between 0 and 1; got 1\.5"),
        ({"mix": -0.1}, "between 0 and 1"),
        ({"noise": -1.0}, "noise must be ≥ 0"),
        ({"lengths": ()}, "lengths not empty"),
        ({"density": "exact", "noise": 0.0}, "exact density needs noise"),
        ({"density": "exact", "stay": True}, "exact density needs noise"),
        (
            {"density": "exact", "rank": 1},
            "noise of low rank has no exact density: leave out rank, or use density unit",
        ),
        ({"rank": 0}, "must be at least 1, got 0"),
    ],
)
def test_a_wrong_form_is_refused_with_what_to_do(options, message):
    with pytest.raises(UserError, match=message):
        ProposalForm(**options)


def test_a_proposal_needs_candidates_and_a_gradient():
    with pytest.raises(UserError, match="at least 1, got 0"):
        Proposal(ProposalForm(), gradients(), 0, 0)
    with pytest.raises(UserError, match="at least one gradient"):
        Proposal(ProposalForm(), [], 4, 0)


def test_candidates_say_what_their_gradients_are_of():
    form, g = ProposalForm(mix=0.3, stay=True), {"w": torch.ones(3)}
    assert Proposal(form, [g, g], 3, names=["ends", "decoded"]).components[0] == "zero"
    assert {*Proposal(form, [g, g], 3, names=["ends", "decoded"]).components} == {"zero", "ends", "decoded"}
    assert {*Proposal(form, [g, g], 3).components} == {"zero", "mle"}
