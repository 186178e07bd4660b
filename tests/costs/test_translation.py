import logging
import math

import pytest
import sacrebleu

from mgs.costs import bleu, chrf, sbleu, signature
from mgs.errors import UserError
from mgs.types import Text

HYPOTHESES = [
    "the cat sat on the mat .",
    "A man rides a bike.",
    "no overlap here",
    "",
    "a b c",
    "Zwei Männer, drei Äpfel!",
]
REFERENCES = [
    "the cat sat on a mat .",
    "A man is riding a bike.",
    "all different",
    "x",
    "a b c",
    "Zwei Männer: drei Äpfel!",
]


def texts(strings):
    return [Text(string, (1, 2, 0)) for string in strings]


def test_corpus_bleu_is_sacrebleus():
    expected = sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES]).score
    assert 10 < expected < 90
    assert bleu(texts(HYPOTHESES), texts(REFERENCES)) == pytest.approx(1 - expected / 100, abs=1e-12)
    assert type(bleu(texts(HYPOTHESES), texts(REFERENCES))) is float


@pytest.mark.parametrize(("cost", "theirs"), [(sbleu, sacrebleu.sentence_bleu), (chrf, sacrebleu.sentence_chrf)])
def test_costs_of_sentences_are_sacrebleus(cost, theirs):
    expected = [1 - theirs(h, [r]).score / 100 for h, r in zip(HYPOTHESES, REFERENCES, strict=True)]
    assert cost(texts(HYPOTHESES), texts(REFERENCES)) == pytest.approx(expected, abs=1e-12)
    assert len({round(value, 6) for value in expected}) >= 4


def test_sentence_bleu_by_hand():
    # 5 of 6 words, 3 of 5 pairs, 1 of 4 triples, no quadruple of 3: the first zero counts as half. Equal lengths.
    expected = (5 / 6 * 3 / 5 * 1 / 4 * 0.5 / 3) ** 0.25
    assert sbleu(texts(["a b c d e f"]), texts(["a b c x e f"])) == [pytest.approx(1 - expected)]
    # Two words have no more than pairs. Half as long as the reference: e^(1 − 2).
    assert sbleu(texts(["a b"]), texts(["a b c d"])) == [pytest.approx(1 - math.exp(-1))]


def test_corpus_bleu_sums_counts_and_is_no_mean():
    # 4 of 4 and 3 of 5 words: 7 of 9, and so on. The mean of the sentences is another number.
    hypotheses, references = texts(["a b c d", "v w x y z"]), texts(["a b c d", "v w x 1 2"])
    expected = (7 / 9 * 5 / 7 * 3 / 5 * 1 / 3) ** 0.25
    assert bleu(hypotheses, references) == pytest.approx(1 - expected)
    assert sum(sbleu(hypotheses, references)) / 2 != pytest.approx(1 - expected, abs=0.01)


def test_chrf_by_hand():
    # Letters: 2 of 3 each way; pairs: 1 of 2; triples: 0 of 1. F is the same at equal precision and recall.
    assert chrf(texts(["abc"]), texts(["abd"])) == [pytest.approx(1 - (2 / 3 + 1 / 2 + 0) / 3)]


@pytest.mark.parametrize("cost", [sbleu, chrf])
def test_a_perfect_sentence_costs_nothing_and_a_missing_one_everything(cost):
    assert cost(texts(["one two three four five", "", "x"]), texts(["one two three four five", "a b", ""])) == [0, 1, 1]


def test_a_corpus_of_nothing_has_a_cost():
    assert bleu(texts(["", ""]), texts(["", ""])) == 1
    assert bleu(texts(["a b c d e"] * 3), texts(["a b c d e"] * 3)) == 0


@pytest.mark.parametrize("cost", [sbleu, chrf, bleu])
def test_a_hypothesis_for_each_reference(cost):
    with pytest.raises(ValueError, match="argument 2 is longer"):
        cost(texts(["a"]), texts(["a", "b"]))


def test_tokenized_text_is_no_reason_to_warn(caplog):
    with caplog.at_level(logging.WARNING):
        bleu(texts(["a b ."] * 200), texts(["a b ."] * 200))
        sbleu(texts(["a ."]), texts(["a ."]))
        signature("bleu")
    assert not caplog.records


SIGNATURES = {
    "sbleu": "nrefs:1|case:mixed|eff:yes|tok:13a|smooth:exp|version:",
    "bleu": "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:",
    "chrf": "nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:",
}


@pytest.mark.parametrize(("name", "expected"), SIGNATURES.items())
def test_the_signature_is_sacrebleus(name, expected):
    assert signature(name) == expected + sacrebleu.__version__


def test_meteor_has_a_signature_and_edit_has_none():
    assert signature("meteor") == "nrefs:1|case:lc|tok:13a|match:exact+porter2+wordnet|alpha:0.9|beta:3.0|gamma:0.5"
    with pytest.raises(UserError, match="unknown translation cost 'edit'"):
        signature("edit")
