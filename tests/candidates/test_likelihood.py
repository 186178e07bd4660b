"""Likelihoods of the targets under many candidates: those of copies, whatever is computed together."""

import warnings

import pytest
import torch

from mgs.candidates import Candidates, engine, likelihood
from mgs.types import Batch, Example

FORMS = {
    "dense": {"noise": 0.5},
    "rank 1": {"rank": 1, "noise": 2.0},
    "no noise": {"noise": 0.0, "lengths": (0.5, 1.0)},
    "staying": {"stay": True, "noise": 0.5},
}
NUMBERS = [*range(6), None]
EXAMPLES = [
    Example((4, 9, 2, 17, 5), (3, 1, 0)),
    Example((11, 3), (8, 8, 20, 1, 6, 2, 0)),
    Example((8, 8, 20, 1), (0,)),
    Example((6, 21, 13, 2, 7, 19), (5, 4, 3, 2, 1)),  # cut off: no ⟨eos⟩
]


@pytest.fixture
def batch():
    return Batch(EXAMPLES)


@torch.no_grad()
def one_nll(model, batch):
    """−log p of each target token by itself, from a pass over its row alone; the mean."""
    losses = []
    for example in batch.examples:
        prefix, target = list(example.prefix), list(example.target)
        if model.config.is_encoder_decoder:
            start = [model.config.decoder_start_token_id]
            inputs = {"input_ids": [prefix], "decoder_input_ids": [start + target[:-1]]}
            logits = model(**{name: torch.tensor(ids) for name, ids in inputs.items()}).logits[0]
        else:
            logits = model(input_ids=torch.tensor([prefix + target])).logits[0, len(prefix) - 1 : -1]
        log_p = torch.log_softmax(logits.double(), dim=-1)
        losses += [-float(log_p[t, token]) for t, token in enumerate(target)]
    return sum(losses) / len(losses)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", ["gpt2", "llama", "gemma", "falcon", "marian", "bart", "blenderbot", "t5", "lora"])
@pytest.mark.filterwarnings("ignore:candidates of T5")
def test_they_are_those_of_copies(kind, form, make_model, make_proposal, make_task, batch, copied):
    model = make_model(kind)
    proposal = make_proposal(model, num=6, **FORMS[form])
    expected = [
        one_nll(copied(model, {} if k is None else proposal.sample(k)).eval(), batch) for k in NUMBERS
    ]  # θ is the last
    found = Candidates(make_task()).nlls(model, proposal, NUMBERS, batch)
    assert found == pytest.approx(expected, abs=1e-5)
    different = len({round(value, 4) for value in expected})
    assert different >= (4 if form == "no noise" else 6)  # without noise, those around zero are θ


def test_the_model_is_as_before_and_dropout_is_off(make_model, make_proposal, make_task, batch):
    model = make_model("gpt2").train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.5
    before = {name: (p.data_ptr(), p.detach().clone()) for name, p in model.named_parameters()}
    proposal, candidates = make_proposal(model, num=3), Candidates(make_task())
    assert candidates.nlls(model, proposal, [0, 1, 2], batch) == candidates.nlls(model, proposal, [0, 1, 2], batch)
    assert model.training
    for name, p in model.named_parameters():
        assert p.data_ptr() == before[name][0]
        assert torch.equal(p, before[name][1])


def test_groups_do_not_depend_on_who_asks(make_model, make_proposal, make_task, batch):
    """Whole groups asked about apart from the others give the same bits."""
    model, candidates, step = make_model("gpt2"), Candidates(make_task()), likelihood.TOGETHER
    proposal = make_proposal(model, num=10)
    whole = candidates.nlls(model, proposal, range(10), batch)
    apart = [candidates.nlls(model, proposal, range(10)[i : i + step], batch) for i in range(0, 10, step)]
    assert len(apart) == 3
    assert whole == [value for group in apart for value in group]
    assert candidates.nlls(model, proposal, [], batch) == []


@pytest.mark.parametrize("budget", [1, 25, 60])
def test_logits_of_a_pass_stay_within_the_budget(budget, make_model, make_proposal, make_task, batch, monkeypatch):
    model = make_model("llama")
    proposal = make_proposal(model, num=6)
    expected = Candidates(make_task()).nlls(model, proposal, NUMBERS, batch)
    monkeypatch.setattr(likelihood, "scoring_budget", lambda model: budget)
    sizes, real = [], likelihood.token_log_likelihoods

    def watched(model, prefixes, targets):
        sizes.append(len(prefixes) * max(len(x) + len(y) for x, y in zip(prefixes, targets, strict=True)))
        return real(model, prefixes, targets)

    monkeypatch.setattr(likelihood, "token_log_likelihoods", watched)
    found = Candidates(make_task()).nlls(model, proposal, NUMBERS, batch)
    assert found == pytest.approx(expected, abs=1e-6)
    longest = max(map(len, batch.examples))
    assert max(sizes) <= max(budget, likelihood.TOGETHER * longest)


def test_out_of_memory_means_fewer_rows_at_once(make_model, make_proposal, make_task, batch, monkeypatch):
    model = make_model("gpt2")
    proposal, real = make_proposal(model, num=6), likelihood.token_log_likelihoods
    expected = Candidates(make_task()).nlls(model, proposal, NUMBERS, batch)

    def short(model, prefixes, targets):
        if len(prefixes) > 3:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return real(model, prefixes, targets)

    monkeypatch.setattr(likelihood, "token_log_likelihoods", short)
    with pytest.warns(UserWarning, match="out of memory"):
        found = Candidates(make_task()).nlls(model, proposal, NUMBERS, batch)
    assert found == pytest.approx(expected, abs=1e-6)


def test_a_model_that_cannot_be_swapped_is_asked_one_candidate_at_a_time(
    make_model, make_proposal, make_task, batch, monkeypatch
):
    model = make_model("gpt2")
    proposal = make_proposal(model, num=6)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        expected = Candidates(make_task()).nlls(model, proposal, NUMBERS, batch)
    monkeypatch.setattr(engine, "swappable", lambda model: "because")
    with pytest.warns(UserWarning, match="one at a time"):
        assert Candidates(make_task()).nlls(model, proposal, NUMBERS, batch) == pytest.approx(expected, abs=1e-6)
