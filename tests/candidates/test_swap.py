"""Stand-ins for parameters: every function that a model calls with one, row by row, and what stays as it was."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from mgs.candidates import perturbed
from mgs.candidates.forms import stand_ins
from mgs.candidates.groups import Groups, NotByRows
from mgs.candidates.stand_in import PerCandidate
from mgs.candidates.swap import swapped, watched
from mgs.candidates.values import Factored, Stack
from mgs.models import searched_parameters
from mgs.search import Proposal, ProposalForm

K, ROWS, T, D, E = 3, 2, 5, 4, 6  # candidates, rows of each, positions, width in, width out
IDS = torch.tensor([[1, 2, 3, 4], [5, 6, 7, 8]])

#: A function of rows and parameters, and the parameters' shapes.
FUNCTIONS = {
    "linear": (lambda x, w: F.linear(x, w), (E, D)),
    "linear with a bias": (lambda x, w, b: F.linear(x, w, b), (E, D), (E,)),
    "linear with a shared bias": (lambda x, w: F.linear(x, w, torch.arange(float(E))), (E, D)),
    "linear with a shared weight": (lambda x, b: F.linear(x, torch.ones(E, D), b), (E,)),
    "addmm": (lambda x, w, b: torch.addmm(b, x.reshape(-1, D), w).view(*x.shape[:-1], E), (D, E), (E,)),
    "layer_norm": (lambda x, v, b: F.layer_norm(x, (D,), v, b), (D,), (D,)),
    "layer_norm with a shared bias": (lambda x, v: F.layer_norm(x, (D,), v, torch.ones(D), eps=0.1), (D,)),
    "layer_norm with a shared weight": (lambda x, b: F.layer_norm(x, (D,), 2 * torch.ones(D), b), (D,)),
    "layer_norm without a weight": (lambda x, b: F.layer_norm(x, (D,), None, b), (D,)),
    "rms_norm": (lambda x, v: F.rms_norm(x, (D,), v, eps=0.1), (D,)),
    "x * v": (lambda x, v: x * v, (D,)),
    "v * x": (lambda x, v: v * x, (D,)),
    "torch.mul": (lambda x, v: torch.mul(x, v), (D,)),
    "mul by a number": (lambda x, v: x.mul(v), ()),
    "mul by a row": (lambda x, v: x * v, (1, D)),
    "in place": (lambda x, v: x.clone().mul_(v), (D,)),
    "x + v": (lambda x, v: x + v, (D,)),
    "v - x": (lambda x, v: v - x, (D,)),
    "x @ w": (lambda x, w: x @ w, (D, E)),
    "conv1d over time": (lambda x, w, b: F.conv1d(x.mT, w, b, padding=1).mT, (E, D, 3), (E,)),
    "bilinear": (lambda x, w, b: F.bilinear(x, x + 1, w, bias=b), (E, D, D), (E,)),
    "bilinear with a frozen bias": (
        lambda x, w: F.bilinear(x, x + 1, w, nn.Parameter(torch.arange(float(E)))),
        (E, D, D),
    ),
    "a norm that needs rows": (lambda x, v: F.instance_norm(x.mT, weight=v).mT, (D,)),
    "prelu": (lambda x, v: F.prelu(x.mT, v).mT, (D,)),
    "where": (lambda x, v: torch.where(x > 0, x, v), (D,)),
}


def draw(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(params=["even", "uneven"])
def groups(request):
    """Two rows a candidate; or, after some have left, one, none and two."""
    groups = Groups(K)
    groups.start(K * ROWS)
    if request.param == "uneven":
        groups.keep(torch.tensor([1, 4, 5]))
    return groups


def per_row(groups, function, x, stacks):
    """The function of each row by itself, with its own candidate's parameters."""
    index = groups.index(groups.rows, x.device).tolist()
    return torch.cat([function(x[i : i + 1], *(stack[k] for stack in stacks)) for i, k in enumerate(index)])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_of_a_stand_in_is_that_of_each_candidates_own(name, groups):
    function, *shapes = FUNCTIONS[name]
    x, stacks = draw(groups.rows, T, D), [draw(K, *shape, seed=i + 1) for i, shape in enumerate(shapes)]
    found = function(x, *(PerCandidate(stack[0], Stack(stack), groups) for stack in stacks))
    assert not isinstance(found, PerCandidate)
    torch.testing.assert_close(found, per_row(groups, function, x, stacks), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["linear", "addmm", "layer_norm", "rms_norm", "x * v", "v * x"])
def test_half_precision_does_not_erase_a_small_difference(name):
    """The result is that of each candidate's parameters in fp32, rounded once; θ + Δ itself is not rounded."""
    function, *shapes = FUNCTIONS[name]
    groups, x = Groups(K), draw(K * ROWS, 100, D).to(torch.bfloat16)
    groups.start(K * ROWS)
    theta = [draw(*shape, seed=i + 1).to(torch.bfloat16) for i, shape in enumerate(shapes)]
    stacks = [t.float() * (1 + 1e-3 * draw(K, *t.shape, seed=9)) for t in theta]
    found = function(x, *(PerCandidate(t, Stack(stack), groups) for t, stack in zip(theta, stacks, strict=True)))
    assert found.dtype == torch.bfloat16
    exact = per_row(groups, function, x.float(), stacks)
    rounded = per_row(groups, function, x, [stack.to(torch.bfloat16) for stack in stacks])
    error, error_if_rounded = ((y.float() - exact).square().mean() for y in (found, rounded))
    torch.testing.assert_close(found.float(), exact, rtol=2**-8, atol=1e-3)
    assert error < error_if_rounded


@pytest.mark.parametrize("name", ["conv1d over time", "bilinear", "x + v", "x @ w"])
def test_other_functions_keep_half_precision(name):
    function, *shapes = FUNCTIONS[name]
    groups = Groups(K)
    params = [PerCandidate(draw(*s).to(torch.bfloat16), Stack(draw(K, *s)), groups) for s in shapes]
    groups.start(K * ROWS)
    assert function(draw(K * ROWS, T, D).to(torch.bfloat16), *params).dtype == torch.bfloat16


@pytest.mark.parametrize("lookup", [F.embedding, lambda ids, w: torch.embedding(w, ids)])
def test_rows_are_looked_up_in_each_candidates_own(lookup, groups):
    table = draw(K, 9, D)
    weight = PerCandidate(table[0], Stack(table), groups)
    ids = torch.randint(0, 9, (groups.rows, T), generator=torch.Generator().manual_seed(0))
    assert torch.equal(lookup(ids, weight), per_row(groups, lookup, ids, [table]))
    positions = torch.arange(T)[None]  # the same for every row
    expected = per_row(groups, lookup, positions.expand(groups.rows, T), [table])
    assert torch.equal(lookup(positions, weight), expected)


@pytest.mark.parametrize("name", ["x + v", "mul by a row", "torch.mul"])
def test_a_matrix_of_low_rank_may_be_used_elementwise(name, groups):
    function = FUNCTIONS[name][0]
    theta, a, b = draw(1, D), draw(K, 2, 1, seed=1), draw(K, 2, D, seed=2)
    weight = PerCandidate(theta, Factored([theta], [None], [0, K], torch.zeros(K), a, b), groups)
    x = draw(groups.rows, T, D)
    torch.testing.assert_close(function(x, weight), per_row(groups, function, x, [theta + a.mT @ b]))


ALONE = {
    "exp": torch.exp,
    "sum": torch.sum,
    "cast": lambda w: w.double(),
    "part": lambda w: w[1:],
    "w + w": lambda w: w + w,
    "1 + w": lambda w: 1.0 + w.float(),
    "w T": lambda w: w.T,
    "turned": lambda w: w.transpose(0, 1)[None],
    "two": lambda w: torch.split(w, 2)[1],
    "looked up": lambda w: F.embedding(torch.tensor([[0, 1, 1], [1, 0, 2]]), w),
}


@pytest.mark.parametrize("values", ["dense", "rank 1"])
@pytest.mark.parametrize("name", ALONE)
def test_a_function_of_a_parameter_alone_is_that_of_each_candidates_own(name, values, groups):
    function, theta, a, b = ALONE[name], draw(E, D), draw(K, 1, E, seed=1), draw(K, 1, D, seed=2)
    stack = theta + a.mT @ b
    own = Stack(stack) if values == "dense" else Factored([theta], [None], [0, K], torch.zeros(K), a, b)
    found = function(PerCandidate(theta, own, groups))
    assert isinstance(found, PerCandidate)
    assert (found.shape, found.dtype) == (function(theta).shape, function(theta).dtype)
    for k in range(K):
        torch.testing.assert_close(found.own.one(k).to(found.dtype), function(stack[k]), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rank", [0, 1])
def test_what_comes_of_it_meets_rows_as_a_parameter_does(rank, groups):
    """A matrix turned round, of both forms; and one that has a place for rows of its own."""
    theta, a, b = draw(E, D), draw(K, rank, E, seed=1), draw(K, rank, D, seed=2)
    own = Factored([theta], [None], [0, K], torch.zeros(K), a, b) if rank else Stack(theta.repeat(K, 1, 1))
    weight, x = PerCandidate(theta, own, groups), draw(groups.rows, T, D)
    stacks = [theta + a.mT @ b]
    for function in (lambda x, w: x @ w.T, lambda x, w: x + w.exp().sum(0)[None, None], lambda x, w: x - (1 + w[0])):
        torch.testing.assert_close(function(x, weight), per_row(groups, function, x, stacks), rtol=1e-4, atol=1e-4)


def add_in_place(w):
    w += 1


def set_part(w):
    w[0] = 0


@pytest.mark.parametrize("write", [add_in_place, set_part, lambda w: w.clamp_(0), lambda w: w.data.mul_(w)])
def test_a_parameter_is_never_written(write, groups):
    theta = nn.Parameter(draw(D))
    before = theta.detach().clone()
    with pytest.raises(NotByRows, match="writes a parameter"):
        write(PerCandidate(theta, Stack(draw(K, D)), groups))
    assert torch.equal(theta, before)


def test_what_is_no_tensor_cannot_be_one_of_each(groups):
    with pytest.raises(NotByRows, match="tolist of a parameter alone is no tensor"):
        PerCandidate(draw(D), Stack(draw(K, D)), groups).tolist()


def test_a_stand_in_looks_like_the_parameter(groups):
    weight = PerCandidate(nn.Parameter(draw(E, D).double()), Stack(draw(K, E, D)), groups)
    assert (weight.shape, weight.dtype, weight.device.type) == ((E, D), torch.float64, "cpu")
    assert (weight.dim(), weight.size(0), weight.numel(), weight.is_floating_point()) == (2, E, E * D, True)
    assert not weight.requires_grad


# -- in a model -----------------------------------------------------------------------------------------------------


def places(model):
    """Every parameter where it is: the object, and its bits."""
    return {
        (id(module), name): (p, p.detach().clone())
        for module in model.modules()
        for name, p in module._parameters.items()
        if p is not None
    }


def assert_in_place(model, before):
    after = places(model)
    assert after.keys() == before.keys()
    for place, (parameter, values) in before.items():
        assert after[place][0] is parameter
        assert torch.equal(after[place][1], values)
        assert type(parameter) is nn.Parameter


@pytest.mark.parametrize("factored", [False, True])
@torch.no_grad()
def test_tied_weights_get_one_stand_in_everywhere(factored, make_model, make_proposal, copied):
    model = make_model("llama")
    before, name, groups = places(model), "model.embed_tokens.weight", Groups(2)
    proposal = make_proposal(model, num=2, components="zero", rank=1)
    ins = stand_ins(searched_parameters(model), proposal, [0, 1], groups, factored)
    with swapped(model, {name: ins[name]}), watched(model, groups):
        assert model.lm_head.weight is model.model.embed_tokens.weight is ins[name]
        logits = model(IDS).logits
    assert_in_place(model, before)
    for k, row in enumerate(logits):
        delta = proposal.sample(k)[name]
        torch.testing.assert_close(row, copied(model, {name: delta})(IDS).logits[k], rtol=1e-4, atol=1e-4)
        once = copied(model, {})  # tied no more: Δ where tokens are read, not where they are predicted
        once.lm_head.weight = nn.Parameter(model.lm_head.weight.clone())
        once.model.embed_tokens.weight.add_(delta)
        assert (row - once(IDS).logits[k]).abs().max() > 0.1


@pytest.mark.parametrize("factored", [False, True])
@torch.no_grad()
def test_what_is_not_searched_is_shared(factored, make_model, make_proposal):
    model = make_model("gpt2")
    frozen = {model.transformer.wte.weight, model.transformer.h[0].mlp.c_fc.bias}
    for parameter in frozen:
        parameter.requires_grad_(False)
    before, groups = places(model), Groups(2)
    proposal = make_proposal(model, num=2, rank=1)
    ins = stand_ins(searched_parameters(model), proposal, [0, 1], groups, factored)
    assert len(ins) == len(list(model.parameters())) - 2
    with swapped(model, ins), watched(model, groups):
        assert {p for p in model.parameters() if not isinstance(p, PerCandidate)} == frozen
        assert model.lm_head.weight is before[id(model.transformer.wte), "weight"][0]
        model(IDS)
    assert_in_place(model, before)


@pytest.mark.parametrize("rank", [None, 1, 2])
def test_two_layers_of_one_shape_get_different_noise(rank, make_model, make_proposal):
    model = make_model("gpt2")
    proposal = make_proposal(model, num=2, components="zero", noise_scale="constant", noise=0.1, rank=rank)
    parameters = searched_parameters(model)
    ins = stand_ins(parameters, proposal, [0, 1], Groups(2), rank is not None)
    for suffix in ("attn.c_attn.weight", "mlp.c_fc.weight", "ln_1.bias"):
        names = [f"transformer.h.{layer}.{suffix}" for layer in range(2)]
        noise = [ins[name].own.one(k) - parameters[name] for name in names for k in range(2)]
        for i, one in enumerate(noise):
            assert 0.02 < one.std() < 0.3
            assert not any(torch.allclose(one, other, atol=1e-3) for other in noise[:i])


def test_an_exception_leaves_every_parameter_in_place(make_model, make_proposal):
    model, groups = make_model("gpt2"), Groups(2)
    before = places(model)
    ins = stand_ins(searched_parameters(model), make_proposal(model, num=2), [0, 1], groups, False)
    with pytest.raises(RuntimeError, match="midway"), swapped(model, ins), watched(model, groups):
        raise RuntimeError("midway")
    assert_in_place(model, before)
    assert not any(module._forward_pre_hooks for module in model.modules())


@pytest.mark.parametrize("factored", [False, True])
@pytest.mark.parametrize("kind", ["gpt2", "llama", "marian"])
@torch.no_grad()
def test_a_model_in_half_precision_hears_what_rounding_would_erase(kind, factored, make_model, copied):
    model = make_model(kind).to(torch.bfloat16)
    ids = torch.randint(1, 20, (4, 16), generator=torch.Generator().manual_seed(0))
    inputs = {"input_ids": ids} | ({"decoder_input_ids": ids} if kind == "marian" else {})
    groups, parameters = Groups(2), searched_parameters(model)
    tiny = {name: 2**-10 * p.detach().float().abs() for name, p in parameters.items()}  # θ has eight bits
    proposal = Proposal(ProposalForm(components="mle", noise=0.0), [tiny], 1)
    with perturbed(model, tiny):
        assert torch.equal(model(**inputs).logits, copied(model, {})(**inputs).logits)
    twice = {name: torch.cat([value, value]) for name, value in inputs.items()}
    with swapped(model, stand_ins(parameters, proposal, [None, 0], groups, factored)), watched(model, groups):
        base, moved = model(**twice).logits.float().chunk(2)
    single = copied(model, {}).float()
    exact = copied(single, tiny)(**inputs).logits - single(**inputs).logits
    assert torch.corrcoef(torch.stack([(moved - base).flatten(), exact.flatten()]))[0, 1] > 0.1
