import json
from types import SimpleNamespace

import pytest
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from mgs.costs.wordnet import has_wordnet
from mgs.experiments import translation_demo as demo
from mgs.experiments.demo import DemoResult
from mgs.experiments.translation_demo import run_translation_demo, verdict

METHODS = ["MLE", "MLE, as many updates", "MLE, as long", "MGS-SBLEU", "MRT-SBLEU (+MLE 0.1)", "PG-SBLEU (+MLE 0.1)"]
FOLDERS = ["mle", "mle-as-many-updates", "mle-as-long", "mgs-sbleu", "mrt-sbleu", "pg-sbleu"]
WORDS = [("rot", "red"), ("grün", "green"), ("haus", "house"), ("baum", "tree"), ("kalt", "cold"), ("neu", "new")]
PAIRS = [(f"{a} {b} {c}", f"{x} {y} {z}") for a, x in WORDS for b, y in WORDS for c, z in WORDS]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The demo with two updates a method on a file of pairs; its folder, result and words."""
    home = tmp_path_factory.mktemp("translation_demo")
    (home / "pairs.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in PAIRS), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        for options in (demo.FROM_SCRATCH, *(options for _, options in demo.RECIPES.values())):
            patch.setitem(options, "max_steps", 2)
            patch.setitem(options, "eval_steps", 1)
        for option, value in (("batch_tokens", 100), ("max_new_tokens", 6), ("eval_max_new_tokens", 8)):
            patch.setitem(demo.SHARED, option, value)
        for constant, value in (("TEST_PAIRS", 4), ("WATCHED_PAIRS", 2), ("CAP", 8), ("VOCABULARY", 300)):
            patch.setattr(demo, constant, value)
        said = []
        result = run_translation_demo(home / "out", 0, str(home / "pairs.tsv"), said.append)
    result.save(home / "results.json")
    return SimpleNamespace(home=home, result=result, said=said)


def test_the_results_have_the_documented_shape(finished):
    results = json.loads((finished.home / "results.json").read_text(encoding="utf-8"))
    assert [row["method"] for row in results["rows"]] == METHODS
    for row in results["rows"]:
        assert {"bleu", "sbleu", "edit", "length", "perplexity"} <= row.keys()
        assert ("meteor" in row) == has_wordnet()
    assert results["signature"].startswith("data:pairs.tsv@test#4|decoder:greedy|bleu:beam-5|cap:8|mgs:")
    assert set(results["settings"]) == set(results["curves"]) == set(results["seconds"]) == set(METHODS)


def test_every_method_starts_from_the_same_model_and_leaves_its_own(finished):
    models = [AutoModelForSeq2SeqLM.from_pretrained(finished.home / "out" / name) for name in FOLDERS]
    weights = [model.model.encoder.embed_tokens.weight.sum().item() for model in models]
    assert len(set(weights)) == len(METHODS) - 1  # the two controls differ in their number of updates, the same here
    assert weights[1] == weights[2]
    assert len(AutoTokenizer.from_pretrained(finished.home / "out" / "mgs-sbleu")) == models[3].config.vocab_size
    for name in METHODS:
        assert [entry["step"] for entry in finished.result.curves[name]] == [1, 2]
        assert len(finished.result.continuations[name]) == 4
    assert "cost" in finished.result.curves["MGS-SBLEU"][0]


def test_sources_and_human_translations_are_the_test_pairs(finished):
    shown = list(zip(finished.result.prefixes, finished.result.continuations["Human"], strict=True))
    assert set(shown) <= set(PAIRS)
    assert len(finished.said) == len(METHODS)


@pytest.mark.parametrize(
    ("figures", "faults"),
    [
        ((50, 52, 58, 60), ()),
        ((50, 52, 58, 55), ("as much time, 58.0",)),
        ((50, 52, 58, 51), ("as many updates, 52.0", "as much time")),
        ((50, 49, 48, 49.5), ("its start, 50.0",)),
    ],
)
def test_the_verdict_names_what_was_not_beaten(figures, faults):
    rows = {name: {"sbleu": float(value)} for name, value in zip(METHODS[:4], figures, strict=True)}
    sentence = verdict(DemoResult("", rows))
    assert sentence.count("MLE on") + sentence.count("its start") == len(faults)
    assert all(fault in sentence for fault in faults)
    assert ("did NOT" in sentence) == bool(faults)
