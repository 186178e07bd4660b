"""Examples are chosen by their rule, and what a model wrote stays text."""

import json

import pytest

from mgs.experiments.inputs import DataOptions
from mgs.experiments.study import Run, Study
from mgs.report.examples import candidates, continuations, shown, telling, worst


def entry(text="t", ended=True, repetition=0.0, prefix="p"):
    return {"prefix": prefix, "text": text, "ended": ended, "repetition": repetition, "length": 3}


@pytest.fixture
def study():
    runs = [Run("MLE", "mle", "m"), Run("MGS-LM", "mgs", "@MLE", 0, "lm")]
    return Study("examples", "Examples", DataOptions(data="d"), runs, ("lm",), ("valid",))


def test_what_does_not_end_comes_first_then_what_repeats_most_then_the_datas_order():
    given = [entry(), entry(repetition=0.9), entry(ended=False), entry(ended=False, repetition=0.5), entry()]
    assert worst(given, 4) == [3, 2, 1, 0]


def test_the_same_prefixes_are_shown_for_every_row(study, tmp_path):
    decoded = {"MLE": [entry(f"mle {i}", i != 7, prefix=f"p{i}") for i in range(9)]}
    decoded["MGS-LM"] = [entry(f"mgs {i}") for i in range(9)]
    for run in study.runs:
        (tmp_path / run.name).mkdir()
        (tmp_path / run.name / "continuations.json").write_text(json.dumps({"valid": decoded[run.row]}))
    page = continuations(study, tmp_path)
    first = page.split("**Prefix:** ")[1]
    assert first.split() == ["p7", "-", "**MLE:**", "mle", "7", "→", "∞", "-", "**MGS-LM:**", "mgs", "7", "⟨eos⟩"]
    assert page.count("**Prefix:**") == 5
    assert "whose continuation by MLE does not end" in page


def test_candidates_are_shown_where_they_tell_most(study, tmp_path):
    one = [entry("a"), entry("b"), entry("c", ended=False)]
    other = [entry("a"), entry("x"), entry("c")]
    assert [telling([one[:num], other[:num]]) for num in (3, 2, 1)] == [2, 1, 0]
    assert telling([other, other, one]) == 2  # however many there are
    (tmp_path / "mgs-lm-0").mkdir()
    both = [
        {"component": c, "cost": v, "continuations": e} for c, v, e in (("mle", 137.84, one), ("zero", 51.2, other))
    ]
    (tmp_path / "mgs-lm-0" / "candidates.json").write_text(json.dumps({"candidates": both}))
    page = candidates(study, tmp_path)
    assert "- **mle**, cost 137.8: c → ∞" in page
    assert "- **zero**, cost 51.2: c ⟨eos⟩" in page


def test_nothing_decoded_is_said(study, tmp_path):
    assert "Nothing has been decoded yet" in continuations(study, tmp_path)


def test_what_a_model_wrote_is_neither_markup_nor_control():
    assert shown(" <b>*a*</b> [x](y)|\x1b[1m") == r"&lt;b&gt;\*a\*&lt;/b&gt; \[x\](y)&#124;\x1b\[1m"
    assert shown("$x$ at http://a.b or WWW.a.b: 1:2.") == r"\$x\$ at http\://a.b or WWW\.a.b: 1:2."
