"""MGS as a method on a real model: its gradient rebuilt from the log's weights and candidates of our own."""

import copy

import pytest
import torch

from mgs.candidates import Candidates
from mgs.decoding import Decoder
from mgs.methods import MGS, Key
from mgs.methods.parts import parts
from mgs.search import Proposal, ProposalForm, Temperature
from mgs.types import Batch, Example

KEY = Key(3, 14, 1)


def ascent(model, batch, grad, log_p, max_norm=1.0):
    """g = −∇L_MLE clipped, from single log-likelihoods."""
    tokens = sum(len(target) for target in batch.targets)
    g = grad(sum(log_p(model, e.prefix, e.target) for e in batch.examples) / tokens, model)
    length = float(torch.cat([tensor.flatten() for tensor in g.values()]).norm())
    return {name: tensor * min(1.0, max_norm / length) for name, tensor in g.items()}


def moved(model, direction):
    twin = copy.deepcopy(model)
    with torch.no_grad():
        for name, p in twin.named_parameters():
            p.add_(direction[name])
    return twin


@pytest.mark.parametrize("decoder", [Decoder(), Decoder(sample=True)], ids=str)
def test_the_gradient_is_minus_the_weighted_sum_of_candidates(
    gpt2, batch, make_task, grad, log_p, combine, assert_same, cost_of, decoder
):
    form = ProposalForm(noise=8.0, mix=0.5)
    outcome = MGS(make_task(decoder), form, num_candidates=6)(gpt2, batch, KEY)
    proposal = Proposal(form, [ascent(gpt2, batch, grad, log_p)], 6, *KEY)
    candidates = [proposal.sample(k) for k in range(6)]
    assert_same(outcome.gradient, combine([-w for w in outcome.log["weights"]], candidates))
    for candidate, cost in zip(candidates, outcome.log["costs"], strict=True):
        rows = decoder(moved(gpt2, candidate), batch.prefixes, 3, 0, KEY)
        expected = sum(cost_of(row, target) for row, target in zip(rows, batch.targets, strict=True)) / len(batch)
        assert cost == pytest.approx(expected)
    costs = torch.tensor(outcome.log["costs"], dtype=torch.float64)
    density = torch.tensor([proposal.log_density(c) for c in candidates], dtype=torch.float64)
    expected = torch.softmax(-costs - density, 0)
    torch.testing.assert_close(
        torch.tensor(outcome.log["weights"], dtype=torch.float64), expected, rtol=1e-3, atol=1e-4
    )
    assert len(set(outcome.log["costs"])) > 2


def test_the_model_s_weights_are_the_same_bits_in_the_same_place(gpt2, batch, make_task):
    before = {name: (p.data_ptr(), p.detach().clone()) for name, p in gpt2.named_parameters()}
    MGS(make_task(), log_base=True)(gpt2, batch, KEY)
    for name, p in gpt2.named_parameters():
        assert p.data_ptr() == before[name][0]
        assert torch.equal(p, before[name][1])
        assert p.grad is None


def test_the_same_key_gives_the_same_gradient_and_another_key_another(gpt2, batch, make_task):
    method = MGS(make_task())
    first = method(gpt2, batch, KEY)
    torch.manual_seed(99)
    again = method(gpt2, batch, KEY)
    assert all(torch.equal(first.gradient[name], tensor) for name, tensor in again.gradient.items())
    assert first.log == again.log
    for key in (Key(4, 14, 1), Key(3, 15, 1), Key(3, 14, 0)):
        other = method(gpt2, batch, key)
        assert not torch.equal(
            first.gradient["transformer.wte.weight"],
            other.gradient["transformer.wte.weight"],
        )


def test_every_candidate_of_a_step_meets_the_same_sampling_noise(make_gpt2, batch, make_task):
    """Without noise on the parameters all candidates are θ, dropout is off when decoding, so all costs are C(θ)."""
    model = make_gpt2(dropout=0.2)
    form = ProposalForm(components="zero", noise=0.0)
    method = MGS(make_task(Decoder(sample=True)), form, num_candidates=3, log_base=True)
    steps = [method(model, batch, Key(0, step)) for step in range(6)]
    for step in steps:
        assert step.log["costs"] == [step.log["cost"]] * 3
        assert not any(tensor.any() for tensor in step.gradient.values())
    assert len({step.log["cost"] for step in steps}) > 1


def test_with_several_gradients_each_part_of_the_batch_gives_a_centre(
    gpt2, batch, make_task, grad, log_p, combine, assert_same
):
    form = ProposalForm(components="mle", noise=0.0, density="none", lengths=(0.5,))
    method = MGS(make_task(), form, num_candidates=2, num_gradients=2, temperature=Temperature(0.0))
    halves = [ascent(gpt2, Batch(batch.examples[rows]), grad, log_p) for rows in (slice(0, 2), slice(2, 4))]
    assert_same(method(gpt2, batch, KEY).gradient, combine([-0.25, -0.25], halves))


@pytest.mark.parametrize(
    ("num", "sizes"), [(1, [5]), (2, [2, 3]), (3, [2, 1, 2]), (5, [1, 1, 1, 1, 1]), (9, [1, 1, 1, 1, 1])]
)
def test_a_batch_is_cut_into_parts_in_its_own_order(num, sizes):
    batch = Batch([Example((i,), (0,)) for i in range(5)])
    cut = parts(batch, num)
    assert [len(part) for part in cut] == sizes
    assert [example for part in cut for example in part.examples] == list(batch.examples)


@pytest.mark.parametrize(("score_prefixes", "num"), [(None, 4), (2, 2), (100, 4)])
def test_the_first_prefixes_score_the_candidates(gpt2, batch, make_task, score_prefixes, num):
    seen = []

    def watching(hypotheses, references, prefixes):
        seen.append([text.token_ids for text in prefixes])
        return [float(len(h.token_ids)) for h in hypotheses]

    method = MGS(make_task(cost=watching), num_candidates=3, score_prefixes=score_prefixes)
    outcome = method(gpt2, batch, KEY)
    assert seen[0] == batch.prefixes[:num]  # the first candidate's, and then what others decode besides
    assert {prefix for call in seen for prefix in call} == set(batch.prefixes[:num])
    assert outcome.log["num_scored"] == num


def test_scoring_fewer_prefixes_leaves_the_gradient_to_the_whole_batch(
    gpt2, batch, make_task, grad, log_p, combine, assert_same
):
    form = ProposalForm(components="mle", noise=0.0)
    outcome = MGS(make_task(), form, num_candidates=1, score_prefixes=1)(gpt2, batch, KEY)
    assert_same(outcome.gradient, combine([-1.0], [ascent(gpt2, batch, grad, log_p)]))


@pytest.mark.parametrize(("score_prefixes", "num"), [(1, 1), (3, 3), (4, 3), (100, 3)])
def test_apart_the_prefixes_that_score_give_no_gradient(
    gpt2, batch, make_task, grad, log_p, combine, assert_same, score_prefixes, num
):
    form = ProposalForm(components="mle", noise=0.0)
    method = MGS(make_task(), form, num_candidates=1, score_prefixes=score_prefixes, score_apart=True)
    outcome = method(gpt2, batch, KEY)
    assert outcome.log["num_scored"] == num  # the last row is always left to the gradient
    others = Batch(batch.examples[num:])
    assert_same(outcome.gradient, combine([-1.0], [ascent(gpt2, others, grad, log_p)]))
    there = moved(gpt2, ascent(gpt2, others, grad, log_p))
    assert outcome.log["costs"] == pytest.approx([make_task().mean_cost(there, Batch(batch.examples[:num]))])


def test_a_batch_of_one_row_scores_and_gives_the_gradient(gpt2, batch, make_task):
    one = Batch(batch.examples[:1])
    apart = MGS(make_task(), score_prefixes=1, score_apart=True)(gpt2, one, KEY)
    assert apart.log == MGS(make_task())(gpt2, one, KEY).log


def test_the_base_is_decoded_only_for_the_log(gpt2, batch, make_task, monkeypatch):
    task, decode, decoded = make_task(), Candidates.decode, []

    def watched(self, model, proposal, numbers, *args):
        decoded.append(list(numbers))
        return decode(self, model, proposal, numbers, *args)

    monkeypatch.setattr(Candidates, "decode", watched)
    without = MGS(task)(gpt2, batch, KEY)
    with_base = MGS(task, log_base=True)(gpt2, batch, KEY)
    assert decoded == [[0, 1, 2, 3], [0, 1, 2, 3, None]]
    base = task.mean_cost(gpt2, batch, KEY)
    assert (without.log["cost"], with_base.log["cost"]) == (None, base)
    assert (without.loss, with_base.loss) == (min(without.log["costs"]), base)
    assert all(torch.equal(without.gradient[name], tensor) for name, tensor in with_base.gradient.items())


def test_the_gradient_is_clipped(gpt2, batch, make_task, grad, log_p):
    free = ascent(gpt2, batch, grad, log_p, max_norm=1e9)
    length = float(torch.cat([tensor.flatten() for tensor in free.values()]).norm())
    assert length > 0.2
    for max_norm, expected in ((0.1, 0.1), (1e9, length)):
        log = MGS(make_task(), max_gradient_norm=max_norm)(gpt2, batch, KEY).log
        assert log["gradient_norm"] == pytest.approx(expected, rel=1e-4)


def test_the_gradient_is_computed_with_dropout(make_gpt2, batch, make_task):
    model = make_gpt2(dropout=0.3).eval()
    norms = {MGS(make_task(), max_gradient_norm=1e9)(model.eval(), batch, KEY).log["gradient_norm"] for _ in range(4)}
    assert len(norms) == 4


def test_the_log_adds_the_batch_to_what_an_update_reports(gpt2, batch, make_task):
    log = MGS(make_task())(gpt2, batch, KEY).log
    assert log["max_target"] == 3
    assert log["target_lengths"] == [3, 2, 1, 3]
    assert log["mle_loss"] > 0
    assert {
        "costs",
        "weights",
        "effective",
        "temperature",
        "components",
        "winner",
        "update_norm",
        "variance",
    } <= log.keys()


def test_the_log_tells_the_parts_apart(gpt2, batch, make_task, grad, log_p):
    batch = Batch([*batch.examples, Example((1, 3), (1,) * 12 + (0,))])
    method = MGS(make_task(), num_gradients=2, split="length", max_gradient_norm=0.1)
    log = method(gpt2, batch, KEY).log
    cut = [Batch([batch.examples[i] for i in rows]) for rows in ((2, 1), (0, 3, 4))]
    free = [ascent(gpt2, part, grad, log_p, max_norm=1e9) for part in cut]
    a, b = (torch.cat([tensor.flatten() for tensor in g.values()]) for g in free)
    assert [part["norm"] for part in log["parts"]] == pytest.approx([float(a.norm()), float(b.norm())], rel=1e-4)
    cosine = float(torch.cosine_similarity(a, b, dim=0))
    assert [part["alignment"] for part in log["parts"]] == pytest.approx([cosine] * 2, abs=1e-5)
    assert [part["mean_target"] for part in log["parts"]] == [1.5, 19 / 3]
    assert [part["guide"] for part in log["parts"]] == log["guides"] == ["mle", "mle"]
    assert sum(part["loss"] for part in log["parts"]) / 2 == pytest.approx(log["mle_loss"])


def test_only_searched_parameters_are_searched(gpt2, batch, make_task):
    gpt2.transformer.wte.weight.requires_grad_(False)
    gradient = MGS(make_task())(gpt2, batch, KEY).gradient
    assert gradient.keys() == {name for name, p in gpt2.named_parameters() if p.requires_grad}


def test_search_lowers_a_cost_that_likelihood_does_not_know(make_gpt2, batch, make_task):
    """The share of `b` in greedy continuations. The control is the same search with weights that ignore the cost."""

    def no_b(hypotheses, references):
        return [1 - sum(i == 2 for i in h.token_ids) / 3 for h in hypotheses]

    task, final = make_task(cost=no_b), {}
    assert task.mean_cost(make_gpt2(), batch) > 0.8  # where doing nothing would leave it
    for alpha in (20.0, 0.0):
        model = make_gpt2()
        method = MGS(task, ProposalForm(noise=20.0), num_candidates=8, temperature=Temperature(alpha))
        for step in range(15):
            descent = method(model, batch, Key(0, step)).gradient
            with torch.no_grad():
                for name, p in model.named_parameters():
                    p.sub_(descent[name])
        final[alpha] = task.mean_cost(model, batch)
    assert final[20.0] < 0.2
    assert final[0.0] > 0.5


def test_mgs_remembers_nothing(make_task):
    assert MGS(make_task()).state() == {}
    assert MGS(make_task()).name == "mgs"
