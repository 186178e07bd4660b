import math

import pytest

from mgs.costs import Cost, meteor
from mgs.costs.wordnet import folder
from mgs.errors import UserError
from mgs.types import Text


def score(hypothesis, reference):
    return 1 - meteor([Text(hypothesis)], [Text(reference)])[0]


def by_hand(matches, chunks, hypothesis, reference):
    """As Banerjee & Lavie (2005) write it: 10 P R / (R + 9 P), less half the cube of chunks over matches."""
    precision, recall = matches / hypothesis, matches / reference
    return 10 * precision * recall / (recall + 9 * precision) * (1 - 0.5 * (chunks / matches) ** 3)


TABLE = [
    # The paper's own example of chunks: "the president" and "spoke to the audience".
    ("the president spoke to the audience", "the president then spoke to the audience", by_hand(6, 2, 6, 7)),
    # The encyclopedia's examples; its second has six chunks, where three are enough: on the mat, sat, the cat.
    ("the cat was sat on the mat", "the cat sat on the mat", 0.9654),
    ("on the mat sat the cat", "the cat sat on the mat", by_hand(6, 3, 6, 6)),
    ("the cat sat on the mat", "the cat sat on the mat", 1.0),
    ("a", "a", 1.0),
    ("a b", "a c", by_hand(1, 1, 2, 2)),
    ("dogs running", "a dog runs", by_hand(2, 1, 2, 3)),  # stems
    ("big cars", "a large auto", by_hand(2, 1, 2, 3)),  # synonyms, one of them of a base form
    ("Big Cars!", "big cars !", 1.0),  # case and tokens
    ("as one", "a on", 0.0),  # the same stems in Porter's first stemmer
    ("auto", "railcar", 0.0),
    ("", "a", 0.0),
    ("a", "", 0.0),
    ("", "", 0.0),
]


@pytest.mark.parametrize(("hypothesis", "reference", "expected"), TABLE)
def test_scores_counted_by_hand(small_wordnet, hypothesis, reference, expected):
    assert score(hypothesis, reference) == pytest.approx(expected, abs=5e-5)


def test_values_come_in_the_order_of_the_hypotheses(small_wordnet):
    hypotheses = [Text("a b"), Text("b a"), Text("c"), Text("a b")]
    values = meteor(hypotheses, [Text("a b")] * 4)
    assert values == [0.0, 0.5, 1.0, 0.0]
    assert Cost.of("meteor").per_sequence(hypotheses, [Text("a b")] * 4) == values


def test_a_hypothesis_for_each_reference(small_wordnet):
    with pytest.raises(ValueError, match="argument 2 is longer"):
        meteor([Text("a")], [Text("a")] * 2)


def test_another_wordnet_is_read(small_wordnet, tmp_path_factory, monkeypatch):
    assert score("a car", "a bus") < score("a car", "a auto") == 1
    other = tmp_path_factory.mktemp("other")
    for path in small_wordnet.glob("*.*"):
        (other / path.name).write_text(path.read_text().replace("auto n", "bus n"))
    monkeypatch.setenv("WNSEARCHDIR", str(other))
    assert score("a car", "a auto") < score("a car", "a bus") == 1


#: What the jar of METEOR 1.5 gives with -m 'exact stem synonym' -p '0.9 3.0 0.5 0.5' -w '1.0 1.0 1.0' -lower.
JAR = [
    (
        "it is a guide to action which ensures that the military always obeys the commands of the party",
        "it is a guide to action that ensures that the military will forever heed party commands",
        0.779641,
    ),
    ("a big dog runs on the beach", "a large dog is running along the beach", 0.875743),
    ("two kids were buying cars", "two children bought automobiles", 0.914634),
    ("the geese flew away quickly", "the goose flies off rapidly", 1.0),
    ("hello", "goodbye", 0.0),
]


@pytest.mark.parametrize(("hypothesis", "reference", "expected"), JAR)
def test_scores_of_meteor_1_5(hypothesis, reference, expected):
    try:
        folder()
    except UserError as missing:
        pytest.skip(str(missing))
    assert score(hypothesis, reference) == pytest.approx(expected, abs=1e-6)


def test_a_loop_costs_nearly_everything(small_wordnet):
    value = meteor([Text("the cat " * 300)], [Text("the cat sat on the mat")])[0]
    assert 0.9 < value < 1
    assert math.isfinite(value)
