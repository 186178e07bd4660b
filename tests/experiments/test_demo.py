import json
from types import SimpleNamespace

import pytest
from transformers import AutoModelForCausalLM

from mgs.cli import demo as command
from mgs.experiments import demo
from mgs.experiments.demo import DemoResult, run_demo, worst_first
from mgs.types import Text

COLUMNS = ["lm", "lm_with_prefix", "edit", "nontermination", "repetition", "length", "perplexity"]
METHODS = ["MLE", "MGS-LM", "MRT-LM (+MLE 0.1)", "PG-LM (+MLE 0.1)", "Human"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory, gpt2, tokenizer, sentences):
    """The demo with two updates a method, a model made here and a file of sentences; its folder, result and words."""
    home = tmp_path_factory.mktemp("demo")
    gpt2.save_pretrained(home / "tiny")
    tokenizer.save_pretrained(home / "tiny")
    (home / "sentences.txt").write_text("\n".join(sentences))
    with pytest.MonkeyPatch.context() as patch:
        for name, (_, _, options) in demo.RECIPES.items():
            small = {"max_steps": 2, "eval_steps": 1, "batch_tokens": 100}
            small |= {"score_prefixes": 3, "guide_prefixes": 4} if name == "MGS-LM" else {}
            for option, value in small.items():
                patch.setitem(options, option, value)
        for option, value in (("max_new_tokens", 8), ("eval_max_new_tokens", 10)):
            patch.setitem(demo.SHARED, option, value)
        for constant, value in (("TEST_PREFIXES", 6), ("WATCHED_PREFIXES", 3), ("CAP", 10), ("MIN_LENGTH", 11)):
            patch.setattr(demo, constant, value)
        said = []
        result = run_demo(home / "out", 0, str(home / "sentences.txt"), str(home / "tiny"), said.append)
    result.save(home / "results.json")
    return SimpleNamespace(home=home, result=result, said=said)


def test_the_results_have_the_documented_shape(finished):
    results = json.loads((finished.home / "results.json").read_text())
    assert {"signature", "rows"} <= results.keys()
    assert [row["method"] for row in results["rows"]] == METHODS
    for row in results["rows"]:
        assert set(row) - {"perplexity"} == {"method", *COLUMNS[:-1]}
        numbers = COLUMNS[:-1] if row["method"] == "Human" else COLUMNS  # people have no perplexity
        assert all(isinstance(row[name], (int, float)) for name in numbers)
    assert results["signature"].startswith("data:sentences.txt@test≥11#6|context:10|decoder:greedy|cap:10|scorer:tiny")


def test_every_method_starts_where_mle_is_and_leaves_a_model(finished):
    for name in METHODS[1:-1]:
        curve = finished.result.curves[name]
        assert [entry["step"] for entry in curve] == [0, 1, 2]
        assert all({"lm", "perplexity"} <= entry.keys() for entry in curve)
        assert curve[0] == finished.result.curves["MGS-LM"][0]
        assert finished.result.settings[name]["max_steps"] == 2
        folder = finished.home / "out" / name.split(" ")[0].lower()
        assert AutoModelForCausalLM.from_pretrained(folder).num_parameters() > 0
    figures = [tuple(row.values()) for row in finished.result.rows.values()]
    assert len(set(figures)) == len(METHODS)


def test_the_human_row_is_that_of_the_references(finished):
    human = finished.result.rows["Human"]
    assert (human["edit"], human["nontermination"]) == (0, 0)
    assert human["length"] == pytest.approx(sum(len(t.token_ids) for t in finished.result.continuations["Human"]) / 6)


def test_it_says_what_it_is_doing(finished):
    assert len(finished.said) == 4
    assert finished.said[0].startswith("MLE: the starting model")


def rows(**mgs):
    mle = {"nontermination": 0.2, "repetition": 0.4, "lm": 70.0, "perplexity": 20.0}
    return DemoResult("signature", {"MLE": mle, "MGS-LM": mle | mgs})


GOOD = {"nontermination": 0.05, "repetition": 0.1, "lm": 40.0, "perplexity": 21.0}


@pytest.mark.parametrize(
    ("missed", "met"),
    [
        ({}, True),
        ({"nontermination": 0.3}, False),  # more than half of MLE's .6
        ({"repetition": 0.3}, False),
        ({"lm": 71.0}, False),
        ({"perplexity": 22.5}, False),  # more than a tenth up
    ],
)
def test_the_verdict_says_when_the_goal_is_missed(missed, met):
    sentence = command.verdict(rows(**GOOD | missed))
    assert ("did NOT" in sentence) is not met
    assert "0.600 →" in sentence


def test_examples_are_chosen_by_a_rule():
    texts = [Text("", range(n)) for n in (3, 9, 1, 9, 5)]
    assert worst_first(texts, 3) == [1, 3, 4]
