"""θ + Δ for as long as a block lasts, and θ untouched after it."""

import copy

import pytest
import torch

from mgs.candidates import perturbed
from mgs.models import searched_parameters

IDS = torch.tensor([[1, 2, 3, 4], [5, 6, 7, 8]])


def materialised(model, direction):
    """A deep copy with Δ added, the slow and certain way."""
    twin = copy.deepcopy(model)
    parameters = dict(twin.named_parameters())
    with torch.no_grad():
        for name, delta in direction.items():
            parameters[name].add_(delta)
    return twin


def snapshot(model):
    """Every tensor of the model, with where it lies in memory."""
    return {name: (p.data_ptr(), p.detach().clone()) for name, p in model.state_dict(keep_vars=True).items()}


def assert_untouched(model, before):
    after = snapshot(model)
    assert after.keys() == before.keys()
    for name, (place, values) in before.items():
        assert after[name][0] == place, name
        assert torch.equal(after[name][1], values), name


@torch.no_grad()
def test_the_candidate_is_a_deep_copy_with_the_direction_added(gpt2, direction):
    delta = direction(gpt2)
    twin = materialised(gpt2, delta)
    with perturbed(gpt2, delta) as candidate:
        inside = candidate(IDS).logits
    assert torch.equal(inside, twin(IDS).logits)
    assert (inside - gpt2(IDS).logits).abs().max() > 0.1


def test_the_weights_are_the_same_bits_in_the_same_place_afterwards(gpt2, direction):
    before = snapshot(gpt2)
    for seed in range(3):
        with perturbed(gpt2, direction(gpt2, seed, size=1e-4)):
            gpt2(IDS)
    assert_untouched(gpt2, before)


def test_the_weights_are_restored_after_an_exception(gpt2, direction):
    before = snapshot(gpt2)
    with pytest.raises(RuntimeError, match="midway"), perturbed(gpt2, direction(gpt2)):
        raise RuntimeError("midway")
    assert_untouched(gpt2, before)


def test_the_weights_are_restored_when_a_direction_does_not_fit(gpt2, direction):
    before = snapshot(gpt2)
    delta = direction(gpt2)
    delta["transformer.ln_f.weight"] = torch.ones(3)
    with pytest.raises(RuntimeError), perturbed(gpt2, delta):
        pass
    assert_untouched(gpt2, before)


def test_the_same_block_twice_gives_the_same_candidate(gpt2, direction):
    delta = direction(gpt2)
    with perturbed(gpt2, delta):
        first = gpt2(IDS).logits
    with perturbed(gpt2, delta):
        assert torch.equal(gpt2(IDS).logits, first)


def test_a_candidate_of_a_candidate_adds_up_and_unwinds(gpt2):
    name = "transformer.ln_f.bias"
    parameter = dict(gpt2.named_parameters())[name]
    start = parameter.detach().clone()
    with perturbed(gpt2, {name: torch.ones(8)}):
        with perturbed(gpt2, {name: torch.ones(8)}):
            assert torch.equal(parameter, start + 1 + 1)
        assert torch.equal(parameter, start + 1)
    assert torch.equal(parameter, start)


def test_tied_weights_get_one_direction(gpt2, direction):
    delta = direction(gpt2)
    assert "transformer.wte.weight" in delta
    assert "lm_head.weight" not in delta
    with perturbed(gpt2, delta):
        assert gpt2.lm_head.weight is gpt2.transformer.wte.weight
        inside = gpt2.lm_head.weight.detach().clone()
    assert torch.equal(inside, gpt2.transformer.wte.weight + delta["transformer.wte.weight"])


def test_parameters_that_are_not_named_stay_where_they_are(gpt2):
    places = {name: p.data_ptr() for name, p in gpt2.named_parameters()}
    with perturbed(gpt2, {"transformer.ln_f.bias": torch.ones(8)}):
        moved = {name for name, p in gpt2.named_parameters() if p.data_ptr() != places[name]}
    assert moved == {"transformer.ln_f.bias"}


def test_a_half_precision_model_keeps_its_type(gpt2, direction):
    gpt2.to(torch.bfloat16)
    with perturbed(gpt2, direction(gpt2)):
        assert {p.dtype for p in gpt2.parameters()} == {torch.bfloat16}


def test_gradients_and_the_graph_are_left_alone(gpt2, direction):
    gpt2(IDS, labels=IDS).loss.backward()
    before = {name: p.grad.clone() for name, p in gpt2.named_parameters()}
    with perturbed(gpt2, direction(gpt2)):
        pass
    assert all(torch.equal(p.grad, before[name]) and p.requires_grad for name, p in gpt2.named_parameters())


@torch.no_grad()
def test_of_a_lora_model_only_the_adapters_are_searched(gpt2, direction):
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(
        r=2, target_modules=["c_attn"], fan_in_fan_out=True, task_type="CAUSAL_LM", lora_dropout=0.0
    )
    model = peft.get_peft_model(gpt2, config)
    delta = direction(model)
    assert delta.keys() == searched_parameters(model).keys()
    assert len(delta) == 4  # A and B of two layers
    assert all("lora_" in name for name in delta)
    before = snapshot(model)
    plain, twin = model(IDS).logits, materialised(model, delta)
    with perturbed(model, delta):
        inside = model(IDS).logits
        for name, p in model.named_parameters():
            assert (p.data_ptr() == before[name][0]) == ("lora_" not in name)
    assert torch.equal(inside, twin(IDS).logits)
    assert (inside - plain).abs().max() > 1e-3
    assert_untouched(model, before)
