import math

import numpy as np
import pytest
import torch

from mgs.costs import COST_NAMES, COSTS, Cost, LanguageModelCost, edit
from mgs.costs.cost import TOKEN_COSTS
from mgs.errors import CostError, UserError
from mgs.types import Text

HYPOTHESES = [Text("the cat sat", (1, 2, 3, 0)), Text("a dog", (4, 5), ended=False)]
REFERENCES = [Text("the cat ran", (1, 2, 6, 0)), Text("a dog", (4, 5, 0))]


def test_a_name_gives_the_function_of_that_name():
    cost = Cost.of("edit")
    assert cost.name == "edit"
    assert cost.per_sequence(HYPOTHESES, REFERENCES) == edit(HYPOTHESES, REFERENCES) == [1 / 4, pytest.approx(1 / 3)]
    assert cost.mean(HYPOTHESES, REFERENCES) == pytest.approx((1 / 4 + 1 / 3) / 2)


@pytest.mark.parametrize("name", [name for name in COST_NAMES if name not in ("lm", "bleu")])
def test_every_name_can_be_called(name, small_wordnet):
    values = Cost.of(name).per_sequence(HYPOTHESES, REFERENCES)
    assert len(values) == 2
    assert Cost.of(name).mean(HYPOTHESES, REFERENCES) == sum(values) / 2


def test_corpus_bleu_is_one_value_for_all():
    references = [Text("the cat sat on a mat"), Text("a dog")]
    assert 0 < Cost.of("bleu").mean([Text("the cat sat on the mat"), Text("a dog")], references) < 1
    with pytest.raises(CostError, match="'bleu' gave one value for the whole corpus"):
        Cost.of("bleu").per_sequence(HYPOTHESES, REFERENCES)


def test_a_callable_is_named_after_itself():
    class Length:
        def __call__(self, hypotheses, references):
            return [len(h) for h in hypotheses]

    def shortness(hypotheses, references):
        return [-len(h) for h in hypotheses]

    assert Cost.of(shortness).name == "shortness"
    assert Cost.of(Length()).name == "Length"
    assert Cost.of(Length()).per_sequence(HYPOTHESES, REFERENCES) == [11.0, 5.0]
    ready = Cost("mine", shortness)
    assert Cost.of(ready) is ready


def test_an_unknown_name_gives_the_nearest():
    with pytest.raises(UserError, match=r"unknown cost 'edti': did you mean 'edit'\? \(allowed: lm, edit, repetition"):
        Cost.of("edti")


def test_the_lm_cost_needs_a_scorer():
    with pytest.raises(UserError, match="'lm' needs a scoring model"):
        Cost.of("lm")


COLUMNS = {"prefixes": ["x", "y"], "weight": [2.0, 3.0], "unused": [0, 0]}


def test_columns_reach_the_parameters_of_their_name():
    def weighted(hypotheses, references, weight):
        return [w * len(h) for w, h in zip(weight, hypotheses, strict=True)]

    assert Cost.of(weighted).per_sequence(HYPOTHESES, REFERENCES, **COLUMNS) == [22.0, 15.0]


def test_a_cost_with_keyword_arguments_gets_every_column():
    received = {}

    def curious(hypotheses, references, **columns):
        received.update(columns)
        return 1.0

    Cost.of(curious).mean(HYPOTHESES, REFERENCES, **COLUMNS)
    assert received == COLUMNS


def test_a_default_stays_when_the_column_is_not_there():
    def weighted(hypotheses, references, weight=7.0, unused=None):
        return [weight if unused is None else 0.0] * 2

    assert Cost.of(weighted).per_sequence(HYPOTHESES, REFERENCES, prefixes=["x", "y"]) == [7.0, 7.0]


@pytest.mark.parametrize("takes_all", [False, True])
def test_a_column_may_be_called_like_the_references(takes_all):
    def plain(hypotheses, references):
        return [float(references == REFERENCES)] * 2

    def greedy(hypotheses, references, **columns):
        return [float(references == REFERENCES)] * 2

    cost = Cost.of(greedy if takes_all else plain)
    columns = {"references": ["x", "y"], "hypotheses": ["z", "w"]}
    assert cost.per_sequence(HYPOTHESES, REFERENCES, **columns) == [1.0, 1.0]


CORPUS_VALUES = {
    "float": 0.25,
    "int": 3,
    "numpy": np.float32(0.25),
    "numpy 0-dim": np.array(2.0),
    "torch": torch.tensor(0.5),
}


@pytest.mark.parametrize("value", CORPUS_VALUES.values(), ids=CORPUS_VALUES.keys())
def test_a_corpus_cost_is_its_own_mean(value):
    mean = Cost("corpus", lambda hypotheses, references: value).mean(HYPOTHESES, REFERENCES)
    assert mean == float(value)
    assert type(mean) is float


SEQUENCE_VALUES = {
    "list": [1, 2.5],
    "tuple": (1, 2.5),
    "numpy": np.array([1, 2.5]),
    "torch": torch.tensor([1, 2.5]),
    "torch bf16 with a gradient": torch.tensor([1, 2.5], dtype=torch.bfloat16, requires_grad=True),
    "torch column": torch.tensor([[1], [2.5]]),
    "list of tensors": [torch.tensor(1), torch.tensor(2.5)],
}


@pytest.mark.parametrize("values", SEQUENCE_VALUES.values(), ids=SEQUENCE_VALUES.keys())
def test_values_a_sequence_may_come_in_any_container(values):
    cost = Cost("mine", lambda hypotheses, references: values)
    assert cost.per_sequence(HYPOTHESES, REFERENCES) == [1.0, 2.5]
    assert cost.mean(HYPOTHESES, REFERENCES) == 1.75


def test_single_sequences_cannot_be_weighted_by_a_corpus_cost():
    with pytest.raises(CostError, match=r"'corpus' gave one value for the whole corpus.*or use MGS"):
        Cost("corpus", lambda hypotheses, references: 0.5).per_sequence(HYPOTHESES, REFERENCES)


def raises(hypotheses, references):
    raise KeyError("nowhere")


def raises_late(hypotheses, references):
    yield 1.0
    raise ZeroDivisionError("half way")


BAD = {
    "raises": (raises, r"'mine' raised KeyError: 'nowhere' \(on 2 hypotheses, the first 'the cat sat'\)"),
    "raises in a generator": (raises_late, r"'mine' raised ZeroDivisionError: half way .*'the cat sat'"),
    "NaN": (lambda h, r: [1.0, math.nan], r"'mine' returned nan for sequence 1: 'a dog'.*finite"),
    "infinity": (lambda h, r: [math.inf, 1.0], r"'mine' returned inf for sequence 0: 'the cat sat'.*finite"),
    "a string a sequence": (lambda h, r: [1.0, "2.0"], r"'mine' returned '2\.0' for sequence 1, not a number: 'a dog'"),
    "None a sequence": (lambda h, r: [None, 1.0], r"'mine' returned None for sequence 0, not a number: 'the cat sat'"),
    "too large": (
        lambda h, r: [10**400, 1.0],
        r"'mine' returned 10+\.\.\.0+ for sequence 0, not a number: 'the cat sat'",
    ),
    "too few": (lambda h, r: [1.0], r"'mine' returned 1 values for 2 hypotheses"),
    "too many": (lambda h, r: [1.0] * 3, r"'mine' returned 3 values for 2 hypotheses"),
    "None": (lambda h, r: None, r"'mine' returned NoneType: return a number or one a sequence"),
    "a dict": (lambda h, r: dict.fromkeys(range(len(h)), 1.0), r"'mine' returned dict: return a number or one a seq"),
    "a set": (lambda h, r: {1.0, 2.0}, r"'mine' returned set: return a number or one a sequence"),
    "a string": (lambda h, r: "12", r"'mine' returned str: return a number or one a sequence"),
    "NaN in an array": (lambda h, r: np.array([1.0, math.nan]), r"'mine' returned nan for sequence 1: 'a dog'.*finite"),
    "words in an array": (lambda h, r: np.array(["1", "2"]), r"'mine' returned '1' for sequence 0, not a number"),
    "NaN for the corpus": (lambda h, r: math.nan, r"'mine' returned nan for the corpus: costs must be finite"),
    "missing column": (lambda h, r, weight: [1.0, 1.0], r"'mine' asks for the column 'weight', .*\(there are: none\)"),
}


@pytest.mark.parametrize(("function", "message"), BAD.values(), ids=BAD.keys())
@pytest.mark.parametrize("method", ["mean", "per_sequence"])
def test_a_bad_cost_is_an_error_that_names_it_and_shows_the_example(function, message, method):
    with pytest.raises(CostError, match=message):
        getattr(Cost("mine", function), method)(HYPOTHESES, REFERENCES)


def test_a_long_example_is_shown_in_part():
    with pytest.raises(CostError) as caught:
        Cost("mine", lambda h, r: [math.nan]).mean([Text("word " * 1000)], REFERENCES[:1])
    assert "word word" in str(caught.value)
    assert len(str(caught.value)) < 200


def test_the_users_own_exception_is_kept_as_the_cause():
    with pytest.raises(CostError) as caught:
        Cost("mine", raises).mean(HYPOTHESES, REFERENCES)
    assert isinstance(caught.value.__cause__, KeyError)


def test_a_hypothesis_without_a_string_is_shown_by_its_tokens():
    with pytest.raises(CostError, match=r"returned nan for sequence 0: '5 6 0': costs must be finite"):
        Cost("mine", lambda h, r: [math.nan]).mean([Text("", (5, 6, 0))], REFERENCES[:1])


@pytest.mark.parametrize("function", COSTS.values(), ids=COSTS.keys())
def test_costs_of_translation_read_strings_and_the_others_of_this_package_do_not(function, small_wordnet):
    reads = function.__name__ in ("sbleu", "bleu", "chrf", "meteor")
    assert Cost.of(function.__name__).reads_text == reads
    assert Cost.of(function).reads_text == reads
    assert (function.__name__ in TOKEN_COSTS) != reads


def test_the_lm_cost_reads_no_strings(gpt2):
    assert not Cost.of("lm", gpt2).reads_text
    assert not Cost("mine", LanguageModelCost(gpt2)).reads_text


def test_a_users_cost_may_read_strings():
    class Curious(LanguageModelCost):
        """One of ours, changed."""

    assert Cost.of(lambda hypotheses, references: 0.0).reads_text
    assert Cost("edit", lambda hypotheses, references: 0.0).reads_text
    assert Cost.of(Curious(torch.nn.Linear(1, 1))).reads_text
