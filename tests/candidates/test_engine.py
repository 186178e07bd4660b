"""The engine: costs of many candidates, in groups that fit, on a model that is as before in the end."""

import math
import warnings
import weakref

import pytest
import torch
from torch import nn

from mgs.candidates import Candidates, engine
from mgs.decoding import Decoder
from mgs.errors import CostError
from mgs.models import searched_parameters
from mgs.search import Temperature, mgs_update

SAMPLE, BEAM = Decoder(sample=True), Decoder(beams=2)
FORMS = {"dense": {}, "rank 1": {"rank": 1}, "no noise": {"noise": 0.0, "lengths": (0.5, 1.0)}}
ON_LINUX = "DefaultCPUAllocator: can't allocate memory: you tried to allocate 4000000 bytes. Error code 12"
ON_WINDOWS = "DefaultCPUAllocator: not enough memory: you tried to allocate 4000000 bytes."


def mean_cost(rows):
    """As the task's, of one candidate's continuations."""
    return math.fsum(sum((i + 1) * 1.37**t for t, i in enumerate(row)) for row in rows) / len(rows)


@pytest.fixture
def numbers():
    return [*range(6), None]


@pytest.fixture
def tries(monkeypatch):
    """(candidates, rows of each) of every batch tried; a model given more than `most` rows at once raises `error`."""

    class Tries(list):
        most, error = math.inf, torch.OutOfMemoryError("CUDA out of memory")

    seen, plan, decode = Tries(), Candidates._plan, Decoder.rows

    def planned(self, *args):
        seen.append(plan(self, *args))
        return seen[-1]

    def short(self, model, prefixes, *args):
        if len(prefixes) > seen.most:
            raise seen.error
        return decode(self, model, prefixes, *args)

    monkeypatch.setattr(Candidates, "_plan", planned)
    monkeypatch.setattr(Decoder, "rows", short)
    return seen


# -- costs ----------------------------------------------------------------------------------------------------------


def costs_of(candidates, model, proposal, batch, noise=(0,), with_base=False, done=lambda num: None):
    """The costs of all candidates, and that of θ if asked for."""
    numbers = [*range(len(proposal)), *([None] if with_base else [])]
    means = candidates.means(model, proposal, numbers, batch, noise, done)
    return means[: len(proposal)], means[-1] if with_base else None


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("decoder", [SAMPLE, BEAM], ids=str)
@pytest.mark.parametrize("kind", ["gpt2", "t5"])
@pytest.mark.filterwarnings("ignore:candidates of T5")
def test_costs_are_those_of_what_copies_decode(
    kind, decoder, form, make_model, make_proposal, make_task, batch_of, prefixes, one_copy_each
):
    model = make_model(kind)
    proposal = make_proposal(model, num=4, size=0.3, **FORMS[form])
    expected = {k: mean_cost(rows) for k, rows in one_copy_each(model, proposal, prefixes, decoder, 10, (7, 1)).items()}
    candidates = Candidates(make_task(decoder))
    costs, base = costs_of(candidates, model, proposal, batch_of(prefixes), (7, 1), with_base=True)
    assert costs == pytest.approx([expected[k] for k in range(4)], rel=1e-12)
    assert base == pytest.approx(expected[None], rel=1e-12)
    assert len({*costs, base}) >= 3
    assert costs_of(candidates, model, proposal, batch_of(prefixes), (7, 1)) == (costs, None)


def test_candidates_keep_their_numbers_whatever_order_they_are_decoded_in(
    make_model, make_proposal, make_task, batch_of, prefixes
):
    model = make_model("gpt2")
    proposal = make_proposal(model, num=9, lengths=(2.0, 0.5), noise=0.3, stratified=False)
    assert len({centre.length for centre in proposal.assigned}) == 3
    candidates, batch = Candidates(make_task()), batch_of(prefixes)
    whole = candidates.decode(model, proposal, range(9), batch)
    assert list(candidates.decode(model, proposal, [5, 2, None, 8], batch)) != [5, 2, None, 8]  # sorted inside
    for k in range(9):
        assert candidates.decode(model, proposal, [k], batch) == {k: whole[k]}
    costs, _ = costs_of(candidates, model, proposal, batch)
    assert costs == pytest.approx([mean_cost(whole[k]) for k in range(9)])


def test_every_candidate_meets_the_same_sampling_noise(make_model, make_proposal, make_task, batch_of, prefixes):
    model = make_model("llama")
    proposal = make_proposal(model, num=4, components="zero", noise=0.0)
    candidates, batch = Candidates(make_task(SAMPLE)), batch_of(prefixes)
    found = [costs_of(candidates, model, proposal, batch, (0, step), with_base=True) for step in range(5)]
    assert all(costs == [base] * 4 for costs, base in found)
    assert len({base for _, base in found}) == 5


@pytest.mark.parametrize(
    ("options", "heard"),
    [
        ({}, [6]),
        ({"most_rows": 16}, [4, 2]),
        ({"most_rows": 4}, [1] * 6),
        ({"most_rows": 9}, [2, 2, 2]),
        ({"most_rows": 3}, [1] * 6),
    ],
)
def test_done_hears_of_every_candidate(options, heard, make_model, make_proposal, make_task, batch_of, prefixes):
    model, found = make_model("gpt2"), []
    proposal, batch = make_proposal(model, num=6), batch_of(prefixes)
    costs_of(Candidates(make_task(), **options), model, proposal, batch, done=found.append)
    assert found == heard
    costs_of(Candidates(make_task(), **options), model, proposal, batch, with_base=True, done=found.append)
    assert sum(found) == 6 + 7  # θ is one more


def test_a_thousand_candidates_of_rank_one(make_model, make_proposal, make_task, batch_of, prefixes, copied, tries):
    model = make_model("llama")
    proposal = make_proposal(model, num=1024, rank=1)
    candidates = Candidates(make_task(SAMPLE, max_new_tokens=5))
    costs, _ = costs_of(candidates, model, proposal, batch_of(prefixes[:1]), (3,))
    assert tries == [(1024, 1)]
    assert len(costs) == 1024
    assert len(set(costs)) > 100
    for k in (0, 63, 64, 511, 512, 1023):
        rows = SAMPLE(copied(model, proposal.sample(k)), prefixes[:1], 5, 0, (3,))
        assert costs[k] == pytest.approx(mean_cost(rows))


@pytest.mark.parametrize("form", FORMS)
def test_the_update_is_the_weighted_sum_of_directions(form, make_model, make_proposal, make_task, batch_of, prefixes):
    model = make_model("gpt2")
    proposal = make_proposal(model, num=6, **FORMS[form])
    costs, base = costs_of(Candidates(make_task()), model, proposal, batch_of(prefixes), with_base=True)
    update = mgs_update(proposal, costs, Temperature(0.1), base)
    assert max(update.weights) < 0.9
    for name, found in update.direction.items():
        expected = sum(float(w) * proposal.sample(k)[name].double() for k, w in enumerate(update.weights))
        torch.testing.assert_close(found, expected.float(), rtol=1e-4, atol=1e-6)
        assert expected.abs().max() > 1e-3


@pytest.mark.parametrize("decoder", [SAMPLE, BEAM], ids=str)
@pytest.mark.parametrize("form", ["dense", "rank 1"])
@pytest.mark.parametrize("kind", ["gpt2", "bart"])
def test_a_model_in_half_precision_has_candidates(
    kind, form, decoder, make_model, make_proposal, make_task, batch_of, prefixes
):
    model = make_model(kind).to(torch.bfloat16)
    candidates = Candidates(make_task(decoder))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        costs, base = costs_of(candidates, model, make_proposal(model, **FORMS[form]), batch_of(prefixes), (0,), True)
    assert len({*costs, base}) >= 3
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}


# -- the model afterwards -------------------------------------------------------------------------------------------


@pytest.fixture(params=["gpt2", "lora", "bart", "t5"])
def untouched(request, make_model):
    """A model in training mode; afterwards it has the same parameters in the same places, with the same bits."""
    model = make_model(request.param).train()
    names = [name for name, _ in model.named_parameters(remove_duplicate=False)]
    before = {name: model.get_parameter(name) for name in names}
    bits = {name: (p.data_ptr(), p.detach().clone()) for name, p in before.items()}
    yield model
    for name, parameter in before.items():
        assert model.get_parameter(name) is parameter
        assert type(parameter) is nn.Parameter
        assert parameter.data_ptr() == bits[name][0]
        assert torch.equal(parameter, bits[name][1])
        assert parameter.grad is None
    assert all(module.training for module in model.modules())
    assert not any(module._forward_pre_hooks for module in model.modules())


@pytest.mark.filterwarnings("ignore:candidates of T5")
@pytest.mark.parametrize("form", FORMS)
def test_a_model_is_as_before_after_a_step(untouched, form, make_proposal, make_task, batch_of, prefixes):
    proposal = make_proposal(untouched, **FORMS[form])
    costs, _ = costs_of(Candidates(make_task(SAMPLE)), untouched, proposal, batch_of(prefixes))
    mgs_update(proposal, costs)


@pytest.mark.filterwarnings("ignore:candidates of T5")
@pytest.mark.parametrize("form", ["dense", "rank 1"])
@pytest.mark.parametrize("decoder", [SAMPLE, BEAM], ids=str)
def test_a_model_is_as_before_after_an_exception(
    untouched, decoder, form, make_proposal, make_task, batch_of, prefixes
):
    candidates, proposal = Candidates(make_task(decoder)), make_proposal(untouched, **FORMS[form])
    candidates.decode(untouched, proposal, [0], batch_of(prefixes))  # what it can do has been tried
    passes = []

    def fail(module, args, output):
        passes.append(1)
        if len(passes) == 3:
            raise KeyError("in the third pass")

    hook = untouched.get_submodule("base_model.model.lm_head" if hasattr(untouched, "peft_config") else "lm_head")
    hook = hook.register_forward_hook(fail)
    with pytest.raises(KeyError, match="in the third pass"):
        costs_of(candidates, untouched, proposal, batch_of(prefixes))
    hook.remove()


def test_a_cost_that_raises_leaves_the_model_as_it_was(untouched, make_proposal, make_task, batch_of, prefixes):
    def broken(hypotheses, references):
        raise ZeroDivisionError("no")

    candidates = Candidates(make_task(cost=broken))
    why_not = None if "T5" not in type(untouched).__name__ else "it is a T5"
    candidates._why_not[untouched] = {frozenset(searched_parameters(untouched)): why_not}
    with pytest.raises(CostError, match="broken"):
        costs_of(candidates, untouched, make_proposal(untouched), batch_of(prefixes))


# -- memory ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("most", "sizes", "error"),
    [
        (28, {7}, torch.OutOfMemoryError("CUDA out of memory")),
        (27, {3, 1}, torch.OutOfMemoryError("CUDA out of memory")),
        (9, {1}, RuntimeError(ON_LINUX)),
        (3, {1}, RuntimeError(ON_WINDOWS)),
        (1, {1}, torch.OutOfMemoryError("CUDA out of memory")),
    ],
)
def test_out_of_memory_halves_the_rows_and_says_so_once(
    most, sizes, error, tries, numbers, make_model, make_proposal, make_task, batch_of, prefixes
):
    model, heard = make_model("gpt2"), []
    proposal, batch = make_proposal(model, num=6), batch_of(prefixes)
    task = make_task(SAMPLE, max_new_tokens=4)
    expected = Candidates(task).decode(model, proposal, numbers, batch)
    tries.clear()
    tries.most, tries.error = most, error
    candidates = Candidates(task)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = candidates.decode(model, proposal, numbers, batch, done=heard.append)
    assert found == expected
    assert sum(heard) == 7
    assert len(said) == (most < 28)
    assert all("out of memory with 7 candidates of 4 rows each" in str(warning.message) for warning in said)
    fitting = [num for num, rows in tries if num * rows <= most]
    assert set(fitting) == sizes
    assert sum(fitting) == 7
    tries.clear()
    assert candidates.decode(model, proposal, numbers, batch) == expected  # the next step begins where this one ended
    assert all(num * rows <= most for num, rows in tries)


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA"), RuntimeError("something else"), KeyError("other")])
def test_what_no_smaller_group_can_mend_is_raised(
    error, tries, numbers, make_model, make_proposal, make_task, batch_of, prefixes
):
    model = make_model("gpt2")
    tries.most, tries.error = 0, error
    candidates = Candidates(make_task(), most_rows=8)  # not for the first time
    with pytest.raises(type(error), match=error.args[0]):
        candidates.decode(model, make_proposal(model, num=6), numbers, batch_of(prefixes))
    assert tries == ([(2, 4), (1, 4), (1, 2), (1, 1)] if isinstance(error, torch.OutOfMemoryError) else [(2, 4)])


def test_what_filled_the_memory_is_gone_before_the_next_try(
    make_model, make_proposal, make_task, batch_of, prefixes, monkeypatch
):
    model, held, halve = make_model("gpt2"), [], Candidates._halve

    def filling(self, model, *args):
        large = torch.empty(10)
        held.append(weakref.ref(large))
        raise torch.OutOfMemoryError("CUDA out of memory")

    def emptied(self, *args):
        assert held[-1]() is None
        monkeypatch.undo()
        halve(self, *args)

    monkeypatch.setattr(Decoder, "rows", filling)
    monkeypatch.setattr(Candidates, "_halve", emptied)
    with pytest.warns(UserWarning, match="out of memory"):
        Candidates(make_task()).decode(model, make_proposal(model), range(5), batch_of(prefixes))


def test_one_at_a_time_takes_fewer_rows_when_memory_is_short(
    tries, make_model, make_proposal, make_task, batch_of, prefixes
):
    model = make_model("mixtral")
    proposal, batch, candidates = make_proposal(model, num=2), batch_of(prefixes), Candidates(make_task(SAMPLE))
    with pytest.warns(UserWarning, match="one at a time"):
        expected = candidates.decode(model, proposal, [0, 1], batch)
    tries.clear()
    tries.most = 2
    with pytest.warns(UserWarning, match="out of memory with 1 candidates of 4 rows each"):
        assert candidates.decode(model, proposal, [0, 1], batch) == expected
    assert tries == [(1, 4), (1, 2), (1, 2)]


@pytest.mark.parametrize("form", FORMS)
def test_groups_are_as_large_as_memory_allows(
    form, tries, numbers, make_model, make_proposal, make_task, batch_of, prefixes, monkeypatch
):
    model, sizes = make_model("gpt2"), []
    proposal, batch = make_proposal(model, num=6, **FORMS[form]), batch_of(prefixes)
    candidates = Candidates(make_task(SAMPLE, max_new_tokens=4))
    expected = candidates.decode(model, proposal, numbers, batch)
    assert tries == [(7, 4)]
    for free in (1, 40_000, 100_000, 200_000, 10**12):
        tries.clear()
        monkeypatch.setattr(engine, "free_memory", lambda device, free=free: free)
        assert candidates.decode(model, proposal, numbers, batch) == expected
        assert sum(num for num, _ in tries) == 7
        sizes.append(tries[0])
    assert sizes[0] == (1, 1)
    assert sizes[-1] == (7, 4)
    assert sizes == sorted(sizes)
    assert len(set(sizes)) > 3


def test_candidates_of_low_rank_take_less_memory(
    tries, make_model, make_proposal, make_task, batch_of, prefixes, monkeypatch
):
    model, together = make_model("gpt2"), []
    monkeypatch.setattr(engine, "free_memory", lambda device: 400_000)
    for form in ({}, {"rank": 4}, {"rank": 1}):
        tries.clear()
        candidates = Candidates(make_task(max_new_tokens=1))
        candidates.decode(model, make_proposal(model, num=40, **form), range(40), batch_of(prefixes[:1]))
        together.append(tries[0][0])
    assert together[0] < together[1] < together[2] <= 40
    monkeypatch.setattr(engine, "BLOCK", 2 * engine.BLOCK)  # drawn whole, beside what is kept of it
    tries.clear()
    candidates.decode(model, make_proposal(model, num=40, rank=1), range(40), batch_of(prefixes[:1]))
    assert 1 < tries[0][0] < together[2]


def test_free_memory_is_that_of_this_machine():
    assert 2**20 < engine.free_memory(torch.device("cpu")) < 2**50


@pytest.mark.parametrize(("beams", "each"), [(1, 4), (4, 1)])
def test_no_more_rows_than_a_device_takes_at_once(
    beams, each, tries, make_model, make_proposal, make_task, batch_of, prefixes, monkeypatch
):
    model = make_model("gpt2")
    monkeypatch.setitem(engine.ROWS_AT_ONCE, "cpu", 4)
    Candidates(make_task(Decoder(beams=beams))).decode(model, make_proposal(model), range(5), batch_of(prefixes))
    assert tries == [(1, each)] * 5
