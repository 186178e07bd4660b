"""Costs of many candidates at once: the same numbers as one at a time, from fewer questions."""

import math
import random

import pytest
import torch

from mgs.costs import COSTS, Cost
from mgs.costs.cost import TOKEN_COSTS
from mgs.errors import CostError
from mgs.types import Text

PREFIXES = [Text("x", (1,)), Text("y", (2, 3)), Text("z", (4, 5, 6))]
REFERENCES = [Text("one", (7, 8, 0)), Text("two", (9, 0)), Text("three", (7, 7, 7, 7, 0))]
COLUMNS = {"prefixes": PREFIXES, "weight": [1.0, 10.0, 100.0], "unused": [0, 0, 0]}

A, B, C = Text("a", (7, 0)), Text("b", (8, 0)), Text("c", (9, 9, 9, 9, 9), ended=False)
GROUPS = [[A, B, C], [A, B, A], [A, B, C], [C, C, C], [A, C, A]]
#: What the groups after the first hold that it does not, in the order met: (row, hypothesis).
FURTHER = [(2, A), (0, C), (1, C)]


class Recorded:
    """A cost that writes down what it was asked."""

    def __init__(self, function):
        self.function, self.calls = function, []

    def __call__(self, hypotheses, references, weight, prefixes):
        self.calls.append(list(zip(hypotheses, references, weight, prefixes, strict=True)))
        return self.function(hypotheses, references, weight, prefixes)


def one_a_sequence(hypotheses, references, weight, prefixes):
    rows = zip(hypotheses, references, weight, prefixes, strict=True)
    return [w * (len(h) + sum(h.token_ids)) + len(r) + 0.1 * len(p.token_ids) for h, r, w, p in rows]


def one_for_all(hypotheses, references, weight, prefixes):
    return max(one_a_sequence(hypotheses, references, weight, prefixes))


def one_at_a_time(cost, groups, references=REFERENCES, **columns):
    return [cost.mean(group, references, **columns) for group in groups]


@pytest.mark.parametrize("function", [one_a_sequence, one_for_all])
def test_means_are_those_of_the_groups_alone(function):
    cost = Cost.of(function)
    expected = one_at_a_time(cost, GROUPS, **COLUMNS)
    assert cost.means(GROUPS, REFERENCES, **COLUMNS) == expected
    assert len(set(expected)) > 1


def test_a_sequence_is_scored_once_for_its_row_with_what_belongs_to_the_row():
    cost = Recorded(one_a_sequence)
    Cost.of(cost).means(GROUPS, REFERENCES, **COLUMNS)
    first, further = cost.calls
    assert first == list(zip(GROUPS[0], REFERENCES, COLUMNS["weight"], PREFIXES, strict=True))
    assert further == [(text, REFERENCES[row], COLUMNS["weight"][row], PREFIXES[row]) for row, text in FURTHER]


def test_a_corpus_cost_is_asked_about_every_group():
    cost = Recorded(one_for_all)
    Cost.of(cost).means(GROUPS, REFERENCES, **COLUMNS)
    assert [[asked[0] for asked in call] for call in cost.calls] == GROUPS


@pytest.mark.parametrize("groups", [[], GROUPS[:1], [GROUPS[0]] * 4], ids=["none", "one", "all the same"])
def test_nothing_new_is_no_question(groups):
    cost = Recorded(one_a_sequence)
    assert Cost.of(cost).means(groups, REFERENCES, **COLUMNS) == one_at_a_time(
        Cost.of(one_a_sequence), groups, **COLUMNS
    )
    assert len(cost.calls) == min(1, len(groups))


DIFFERENT = {
    "tokens": (Text("", (1, 2, 0)), Text("", (1, 3, 0))),  # without strings, tokens decide
    "strings": (Text("a b"), Text("a c")),
    "ends": (Text("", (1, 2), ended=False), Text("", (1, 2))),
}


@pytest.mark.parametrize("pair", DIFFERENT.values(), ids=DIFFERENT.keys())
def test_texts_are_the_same_only_if_everything_is(pair):
    def told_apart(hypotheses, references):
        return [
            float((str(h), h.token_ids, h.ended) == (str(pair[0]), pair[0].token_ids, pair[0].ended))
            for h in hypotheses
        ]

    assert Cost.of(told_apart).means([[text] for text in pair], REFERENCES[:1]) == [1.0, 0.0]


@pytest.mark.parametrize("name", ["lm", *TOKEN_COSTS])
def test_costs_that_read_tokens_are_the_same_without_strings(name, gpt2):
    draw = random.Random(0)
    references = [Text("", [*draw.choices((1, 2), k=9), 0]) for _ in range(4)]
    prefixes = [Text("", draw.choices(range(1, 6), k=n)) for n in (2, 3, 1, 2)]
    pool = [Text("", draw.choices((1, 2), k=draw.randint(5, 9)), ended=draw.random() < 0.5) for _ in range(6)]
    groups = [draw.choices(pool, k=4) for _ in range(30)]
    cost = Cost.of(name, gpt2)
    expected = one_at_a_time(cost, groups, references, prefixes=prefixes)
    found = cost.means(groups, references, prefixes=prefixes)
    # A model's scores depend in their last digits on what else is in the batch.
    assert found == (pytest.approx(expected, rel=1e-5) if name == "lm" else expected)
    assert len(set(expected)) > 3


@pytest.mark.parametrize("name", [name for name in COSTS if name not in TOKEN_COSTS])
def test_costs_that_read_strings_are_the_same_together_as_alone(name, sentences, small_wordnet):
    draw = random.Random(0)
    references = [Text(sentence) for sentence in draw.sample(sentences, 4)]
    pool = [Text(" ".join(draw.sample(draw.choice(sentences).split(), 4))) for _ in range(6)]
    groups = [draw.choices(pool, k=4) for _ in range(30)]
    cost = Cost.of(name)
    expected = one_at_a_time(cost, groups, references)
    assert cost.means(groups, references) == expected
    assert len(set(expected)) > 3


def test_the_sum_does_not_lose_small_values():
    values = {"a": 1e16, "b": 1.0, "c": -1e16}
    cost = Cost("mine", lambda hypotheses, references: [values[h] for h in hypotheses])
    assert cost.means([[B, B, B], [A, B, C]], REFERENCES) == [1.0, 1 / 3]


def test_a_single_further_value_may_lose_its_dimension():
    cost = Cost(
        "mine", lambda hypotheses, references: torch.tensor([float(len(h.token_ids)) for h in hypotheses]).squeeze()
    )
    assert cost.means([[A, B, C], [A, B, A]], REFERENCES) == [(2 + 2 + 5) / 3, 2.0]


BAD = {
    "raises": (lambda h: 1 / 0, r"'mine' raised ZeroDivisionError.*\(on 3 hypotheses, the first 'a'\)"),
    "NaN": (lambda h: [1.0, math.nan, 1.0], r"'mine' returned nan for sequence 1: 'c': costs must be finite"),
    "too few": (lambda h: [1.0], r"'mine' returned 1 values for 3 hypotheses"),
    "None": (lambda h: None, r"'mine' returned NoneType: return a number or one a sequence"),
    "one for all": (lambda h: 0.5, r"'mine' gave one value a sequence and then one for 3 hypotheses together"),
}


@pytest.mark.parametrize(("second", "message"), BAD.values(), ids=BAD.keys())
def test_the_second_answer_is_checked_like_the_first(second, message):
    def good_at_first(hypotheses, references):
        return [1.0] * 3 if list(hypotheses) == GROUPS[0] else second(hypotheses)

    with pytest.raises(CostError, match=message):
        Cost("mine", good_at_first).means(GROUPS, REFERENCES)


def test_a_bad_first_answer_is_an_error():
    with pytest.raises(CostError, match="'mine' returned nan for sequence 0: 'a'"):
        Cost("mine", lambda hypotheses, references: [math.nan] * 3).means(GROUPS, REFERENCES)


def test_every_group_has_one_hypothesis_a_reference():
    cost = Cost("mine", lambda hypotheses, references: [1.0] * len(hypotheses))
    with pytest.raises(ValueError, match=r"groups of \[2, 3\] hypotheses for 3 references"):
        cost.means([[A, B, C], [A, B]], REFERENCES)


def test_a_cost_that_says_so_is_asked_about_every_group_by_itself():
    cost = Recorded(one_a_sequence)
    cost.by_group = True
    assert Cost.of(cost).means(GROUPS, REFERENCES, **COLUMNS) == one_at_a_time(
        Cost.of(one_a_sequence), GROUPS, **COLUMNS
    )
    assert [[asked[0] for asked in call] for call in cost.calls][1:] == [*GROUPS, *GROUPS][1 : len(GROUPS)]


def test_the_lm_cost_of_a_group_does_not_depend_on_the_others(gpt2, tokenizer):
    chance = random.Random(0)
    rows = [[Text("", chance.choices(range(1, 300), k=chance.randint(1, 30))) for _ in range(5)] for _ in range(6)]
    prefixes = [Text("", chance.choices(range(1, 300), k=4)) for _ in range(5)]
    cost = Cost.of("lm", gpt2)
    together = cost.means(rows, prefixes, prefixes=prefixes)
    assert together == [cost.means([row], prefixes, prefixes=prefixes)[0] for row in rows]
    assert together[3:] == cost.means(rows[3:], prefixes, prefixes=prefixes)


@pytest.mark.parametrize("option", ["shard_data", "halvings"])
def test_where_parts_of_batches_are_asked_about_one_value_for_all_is_refused(option):
    cost = Cost("corpus", one_for_all, by_sequence=option)
    with pytest.raises(CostError, match=f"leave out {option}"):
        cost.means(GROUPS, REFERENCES, **COLUMNS)
    assert cost.mean(GROUPS[0], REFERENCES, **COLUMNS) == Cost.of(one_for_all).mean(GROUPS[0], REFERENCES, **COLUMNS)
