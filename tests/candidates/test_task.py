"""C(θ): what a model decodes and what that costs; of a candidate by itself, against a deep copy."""

import copy

import pytest
import torch

from mgs.candidates import Task, perturbed
from mgs.costs import Cost
from mgs.decoding import Decoder
from mgs.errors import CostError
from mgs.types import Batch, Example

GREEDY, SAMPLE, BEAM = Decoder(), Decoder(sample=True), Decoder(beams=3)


def fingerprint(hypotheses, references):
    """A cost that tells almost any two continuations apart."""
    return [
        sum((i + 1) * 1.37**t for t, i in enumerate(h.token_ids)) - len(r.token_ids)
        for h, r in zip(hypotheses, references, strict=True)
    ]


def task(word_tokenizer, decoder=GREEDY, cost=fingerprint, **options):
    return Task(word_tokenizer, decoder, Cost.of(cost), **options)


def candidate_cost(task, model, direction, batch, noise=(0,)):
    with perturbed(model, direction):
        return task.mean_cost(model, batch, noise)


def materialised(model, direction):
    twin = copy.deepcopy(model)
    parameters = dict(twin.named_parameters())
    with torch.no_grad():
        for name, delta in direction.items():
            parameters[name].add_(delta)
    return twin


@pytest.mark.parametrize("decoder", [GREEDY, SAMPLE, BEAM], ids=str)
def test_the_candidate_s_cost_is_that_of_a_deep_copy(word_tokenizer, gpt2, batch, direction, decoder):
    scores, noise = task(word_tokenizer, decoder), (3, 1)
    found = []
    for seed in range(3):
        delta = direction(gpt2, seed)
        rows = decoder(materialised(gpt2, delta), batch.prefixes, 9, 0, noise)  # 9 = 1.3 × 7
        by_hand = [
            sum((i + 1) * 1.37**t for t, i in enumerate(row)) - len(y)
            for row, y in zip(rows, batch.targets, strict=True)
        ]
        found.append(candidate_cost(scores, gpt2, delta, batch, noise))
        assert found[-1] == pytest.approx(sum(by_hand) / 3, rel=1e-12)
    assert len({*found, scores.mean_cost(gpt2, batch, noise)}) == 4  # the candidates differ from each other and from θ


def test_the_model_is_as_before_after_scoring_a_candidate(word_tokenizer, gpt2, batch, direction):
    before = {name: (p.data_ptr(), p.detach().clone()) for name, p in gpt2.named_parameters()}
    gpt2.train()
    candidate_cost(task(word_tokenizer), gpt2, direction(gpt2), batch)
    assert gpt2.training
    for name, p in gpt2.named_parameters():
        assert p.data_ptr() == before[name][0]
        assert torch.equal(p, before[name][1])


def test_a_cost_that_raises_leaves_the_model_as_it_was(word_tokenizer, gpt2, batch, direction):
    def broken(hypotheses, references):
        raise ZeroDivisionError("no")

    before = {name: p.detach().clone() for name, p in gpt2.named_parameters()}
    with pytest.raises(CostError, match="broken"):
        candidate_cost(task(word_tokenizer, cost=broken), gpt2, direction(gpt2), batch)
    assert all(torch.equal(p, before[name]) for name, p in gpt2.named_parameters())


def test_under_sampling_every_candidate_gets_the_same_noise(word_tokenizer, gpt2, batch, direction):
    scores = task(word_tokenizer, SAMPLE)
    nothing = {name: torch.zeros_like(p) for name, p in gpt2.named_parameters()}
    base = scores.mean_cost(gpt2, batch, (0, 1))
    assert candidate_cost(scores, gpt2, nothing, batch, (0, 1)) == base
    candidate_cost(scores, gpt2, direction(gpt2), batch, (0, 1))
    assert candidate_cost(scores, gpt2, nothing, batch, (0, 1)) == base  # however many came before
    assert len({scores.mean_cost(gpt2, batch, (0, step)) for step in range(5)}) == 5  # and other noise is other noise


@pytest.mark.parametrize(("longest", "cap"), [(1, 1), (2, 2), (7, 9), (10, 13), (100, 130)])
def test_the_cap_is_1_3_times_the_longest_target(word_tokenizer, longest, cap):
    assert task(word_tokenizer).cap(Batch([Example((1,), (2,)), Example((1,), (2,) * longest)])) == cap


def test_a_cap_of_one_s_own_is_kept(word_tokenizer, gpt2, batch):
    limited = task(word_tokenizer, max_new_tokens=2)
    assert limited.cap(batch) == 2
    assert max(len(text.token_ids) for text in limited.decode(gpt2, batch, (0,))) <= 2


def test_what_is_decoded_respects_the_cap_and_says_whether_it_ended(word_tokenizer, gpt2, batch):
    decoded = [text for step in range(8) for text in task(word_tokenizer, SAMPLE).decode(gpt2, batch, (step,))]
    assert max(len(text.token_ids) for text in decoded) <= 9
    assert {text.ended for text in decoded} == {True, False}
    for text in decoded:
        assert text.ended == (text.token_ids[-1] == 0)
        assert text.ended or len(text.token_ids) == 9
        assert str(text).split() == ["?abcdefghijk"[i] for i in text.token_ids if i]


def test_another_decoder_can_be_asked_for(word_tokenizer, gpt2, batch):
    greedy = [text.token_ids for text in task(word_tokenizer, GREEDY).decode(gpt2, batch, (0,))]
    assert [text.token_ids for text in task(word_tokenizer, SAMPLE).decode(gpt2, batch, (0,), GREEDY)] == greedy


def test_a_cost_of_the_whole_corpus_works(word_tokenizer, gpt2, batch, direction):
    def corpus_length(hypotheses, references):
        return sum(len(h.token_ids) ** 1.5 for h in hypotheses) / sum(len(r.token_ids) for r in references)

    corpus = task(word_tokenizer, cost=corpus_length)
    rows = GREEDY(gpt2, batch.prefixes, 9, 0)
    assert corpus.mean_cost(gpt2, batch) == pytest.approx(sum(len(row) ** 1.5 for row in rows) / 15)
    delta = direction(gpt2, 1)
    twin_rows = GREEDY(materialised(gpt2, delta), batch.prefixes, 9, 0)
    assert candidate_cost(corpus, gpt2, delta, batch) == pytest.approx(sum(len(r) ** 1.5 for r in twin_rows) / 15)
    with pytest.raises(CostError, match="whole corpus"):
        corpus.costs(corpus.decode(gpt2, batch, (0,)), batch)


def test_a_cost_is_given_the_prefixes_and_the_columns_that_all_examples_have(word_tokenizer, gpt2, batch):
    seen = {}

    def curious(hypotheses, references, **columns):
        seen.update(columns, references=references)
        return [0.0] * len(hypotheses)

    task(word_tokenizer, cost=curious).mean_cost(gpt2, batch)
    assert seen["topic"] == ["first", "second", "third"]
    assert "rare" not in seen
    assert [text.token_ids for text in seen["prefixes"]] == batch.prefixes
    assert [text.token_ids for text in seen["references"]] == batch.targets
    assert str(seen["prefixes"][0]) == "a b c"


def test_costs_are_one_a_row(word_tokenizer, gpt2, batch):
    scores = task(word_tokenizer, cost="edit")
    assert scores.costs(scores.references(batch), batch) == [0.0, 0.0, 0.0]
    per_row = scores.costs(scores.decode(gpt2, batch, (0,)), batch)
    assert sum(per_row) / 3 == pytest.approx(scores.mean_cost(gpt2, batch))
    assert max(per_row) > 0
