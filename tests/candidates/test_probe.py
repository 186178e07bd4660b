"""Models whose candidates cannot be one batch are found, decoded one at a time, and still exact."""

import warnings
from contextlib import nullcontext

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from mgs.candidates import Candidates, probe
from mgs.candidates.probe import swappable
from mgs.candidates.swap import swapped
from mgs.decoding import Decoder
from mgs.models import searched_parameters

DECODERS = [Decoder(sample=True), Decoder(beams=2)]
WIDTH = 16


def weight(*shape):
    return nn.Parameter(0.5 * torch.randn(shape, generator=torch.Generator().manual_seed(2)))


class Convolution(nn.Module):
    """A function that stand-ins know nothing of."""

    def __init__(self):
        super().__init__()
        self.weight, self.bias = weight(WIDTH, WIDTH, 3), weight(WIDTH)

    def forward(self, x):
        return F.conv1d(x.mT, self.weight, self.bias, padding=1).mT


class FrozenBias(Convolution):
    """Beside rows there is a tensor without rows, whose length rows may happen to divide."""

    def __init__(self):
        super().__init__()
        self.bias.requires_grad_(False)


class Bilinear(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight, self.bias = weight(WIDTH, WIDTH, WIDTH), weight(WIDTH)

    def forward(self, x):
        return x + F.bilinear(x, x, self.weight, self.bias)


class Matrix(nn.Module):
    """A matrix that is not multiplied with: low-rank candidates of it must be written out."""

    def __init__(self):
        super().__init__()
        self.weight = weight(1, WIDTH)

    def forward(self, x):
        return x * self.weight


class Exponent(nn.Module):
    """A function of the parameter alone."""

    def __init__(self):
        super().__init__()
        self.weight = weight(WIDTH)

    def forward(self, x):
        return x * self.weight.exp()


class Transposed(nn.Module):
    """What is read off a parameter without a function."""

    def __init__(self):
        super().__init__()
        self.weight = weight(WIDTH, WIDTH)

    def forward(self, x):
        return x + x @ self.weight.T


class Hidden(nn.Module):
    """The parameter is kept where nobody looks for it."""

    def __init__(self):
        super().__init__()
        self.weight = weight(WIDTH)
        self.kept = [self.weight]

    def forward(self, x):
        return x * self.kept[0]

    def __deepcopy__(self, memo):  # as the list of a copy would: the same parameter again
        twin = Hidden()
        twin.weight.data.copy_(self.weight.data)
        return twin


class Mixing(nn.Module):
    """Rows that see each other: no candidate's rows can stand beside another's."""

    def __init__(self):
        super().__init__()
        self.weight = weight(WIDTH)

    def forward(self, x):
        return x + self.weight * x.mean(dim=0, keepdim=True)


class Asserting(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = weight(WIDTH)

    def forward(self, x):
        assert type(self.weight) is nn.Parameter
        return x * self.weight


class Deciding(nn.Module):
    """What it does depends on a value, of which there is one a candidate."""

    def __init__(self):
        super().__init__()
        self.weight = weight(WIDTH)

    def forward(self, x):
        return x * self.weight if self.weight.sum().item() > 0 else x


class Shaped(nn.Module):
    """A parameter with places for rows and positions of its own."""

    def __init__(self):
        super().__init__()
        self.weight = weight(1, 1, WIDTH)

    def forward(self, x):
        return x * self.weight


@pytest.fixture
def make_odd(make_model):
    """GPT-2 with one of these after its last norm, or one of the other models."""

    def make(kind):
        if isinstance(kind, str):
            return make_model(kind)
        model = make_model("gpt2")
        model.transformer.ln_f = nn.Sequential(model.transformer.ln_f, kind())
        return model

    return make


@pytest.mark.parametrize("kind", ["gpt2", "llama", "bart", "marian", "lora"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_ordinary_models_can_be_one_batch(kind, dtype, make_model):
    assert swappable(make_model(kind).to(dtype)) is None


@pytest.mark.parametrize("form", [{}, {"rank": 1}], ids=str)
@pytest.mark.parametrize("decoder", DECODERS, ids=str)
@pytest.mark.parametrize("kind", [Convolution, FrozenBias, Bilinear, Matrix, Exponent, Transposed, Shaped])
def test_unknown_functions_are_called_candidate_by_candidate(
    kind, decoder, form, make_odd, make_proposal, make_task, batch_of, prefixes, one_copy_each
):
    model = make_odd(kind)
    assert swappable(model) is None
    proposal = make_proposal(model, num=3, **form)  # with θ and four prefixes, as many rows as the model is wide
    found = Candidates(make_task(decoder)).decode(model, proposal, [*range(3), None], batch_of(prefixes))
    assert found == one_copy_each(model, proposal, prefixes, decoder, 10)
    assert len({tuple(rows) for rows in found.values()}) >= 3


ODD = {
    "mixtral": "outputs differ",
    Deciding: "of a parameter alone is no tensor",
    Hidden: "outputs differ",
    Mixing: "outputs differ|Error|NotByRows",
    Asserting: "AssertionError",
}


@pytest.mark.parametrize("decoder", DECODERS, ids=str)
@pytest.mark.parametrize("kind", [kind for kind in ODD if kind is not Mixing])
def test_other_models_decode_one_candidate_at_a_time_with_one_warning(
    kind, decoder, make_odd, make_proposal, make_task, batch_of, prefixes, one_copy_each
):
    model = make_odd(kind)
    proposal = make_proposal(model, num=4)
    candidates = Candidates(make_task(decoder))
    with pytest.warns(UserWarning, match=f"decoded one at a time, which is slower.*({ODD[kind]})") as said:
        found = candidates.decode(model, proposal, [*range(4), None], batch_of(prefixes))
    assert len(said) == 1
    assert found == one_copy_each(model, proposal, prefixes, decoder, 10)
    assert len({tuple(rows) for rows in found.values()}) >= 4
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nothing is said again
        assert candidates.decode(model, proposal, [2], batch_of(prefixes)) == {2: found[2]}


def test_a_model_is_tried_again_where_other_parameters_are_searched(
    make_odd, make_proposal, make_task, batch_of, prefixes, one_copy_each
):
    model = make_odd(Asserting)
    odd, candidates = model.transformer.ln_f[1], Candidates(make_task(DECODERS[0]))
    for frozen in (True, False):
        odd.requires_grad_(not frozen)
        proposal = make_proposal(model, num=2)
        with nullcontext() if frozen else pytest.warns(UserWarning, match="AssertionError"):
            found = candidates.decode(model, proposal, [0, 1], batch_of(prefixes))
        assert candidates._batches(model) == frozen
        expected = one_copy_each(model, proposal, prefixes, DECODERS[0], 10)
        assert found == {k: expected[k] for k in (0, 1)}


def test_rows_that_see_each_other_are_found(make_odd):
    assert swappable(make_odd(Mixing)) is not None


@pytest.mark.parametrize("kind", ["gpt2", "t5", Exponent, Asserting])
@pytest.mark.parametrize("training", [True, False])
def test_trying_leaves_the_model_as_it_was(kind, training, make_odd):
    model = make_odd(kind).train(training)
    before = {name: (p, p.data_ptr(), p.detach().clone()) for name, p in model.named_parameters()}
    torch.manual_seed(0)
    state = torch.get_rng_state()
    swappable(model)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(module.training == training for module in model.modules())
    assert not any(module._forward_pre_hooks for module in model.modules())
    for name, p in model.named_parameters():
        assert p is before[name][0]
        assert p.data_ptr() == before[name][1]
        assert torch.equal(p, before[name][2])


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_any_parameter_left_out_shows(kind, make_model, monkeypatch):
    model, missed = make_model(kind), []
    for left_out in searched_parameters(model):
        monkeypatch.setattr(
            probe,
            "swapped",
            lambda model, ins, name=left_out: swapped(model, {n: each for n, each in ins.items() if n != name}),
        )
        if swappable(model) is None:
            missed.append(left_out)
    assert missed == []
