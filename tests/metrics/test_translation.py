"""The translation table: figures that sacrebleu and the costs give, and what a missing WordNet leaves out."""

import pytest
import sacrebleu
import torch

from mgs.costs import edit, meteor, sbleu
from mgs.costs import wordnet as wordnet_module
from mgs.data import translations_from_pairs
from mgs.decoding import Decoder
from mgs.metrics import TRANSLATION_COLUMNS, evaluate_translation, perplexity, texts, translation_figures
from mgs.metrics import translation as module
from mgs.models import new_model
from mgs.models.subwords import train_joint_bpe
from mgs.types import Text

PAIRS = [("das haus ist rot", "the house is red"), ("ein baum", "a tree"), ("zwei grüne bäume dort", "two green trees")]


@pytest.fixture(scope="module")
def tokenizer():
    return train_joint_bpe([side for pair in PAIRS for side in pair], 290)


@pytest.fixture(scope="module")
def data(tokenizer):
    return translations_from_pairs(PAIRS, tokenizer, "three")


@pytest.fixture(scope="module")
def model(tokenizer):
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return new_model("iwslt-tiny", tokenizer).eval()


@pytest.fixture
def wordnet(monkeypatch, tmp_path):
    """Whether there is one: a folder without files, or where the machine has it."""

    def choose(present):
        if not present:
            monkeypatch.setattr(wordnet_module, "PLACES", ())
            monkeypatch.setenv("WNSEARCHDIR", str(tmp_path))
            monkeypatch.delenv("WNHOME", raising=False)
        elif not wordnet_module.has_wordnet():
            pytest.skip("no WordNet on this machine")

    return choose


def test_bleu_is_sacrebleus_of_beam_search_and_the_rest_of_greedy(model, tokenizer, data, wordnet):
    wordnet(False)
    result = evaluate_translation(model, tokenizer, data, max_new_tokens=6, progress=False)
    sources, eos = [e.prefix for e in data], tokenizer.eos_token_id
    references = [target for _, target in PAIRS]
    beam = texts(tokenizer, Decoder(beams=5)(model, sources, 6, eos))
    greedy = texts(tokenizer, Decoder()(model, sources, 6, eos))
    bleu = sacrebleu.BLEU(force=True).corpus_score([str(t) for t in beam], [references])
    assert result.figures["bleu"] == pytest.approx(bleu.score)
    assert result.hypotheses == greedy
    one_by_one = [
        sacrebleu.sentence_bleu(str(t), [r], smooth_method="exp").score for t, r in zip(greedy, references, strict=True)
    ]
    assert result.figures["sbleu"] == pytest.approx(sum(one_by_one) / 3)
    assert result.figures["perplexity"] == perplexity(model, data)
    assert list(result.figures) == [name for name in TRANSLATION_COLUMNS if name != "meteor"]


def test_perfect_translations_score_100(tokenizer, data, wordnet):
    wordnet(True)
    references = texts(tokenizer, [example.target for example in data])
    figures = translation_figures(references, references)
    assert [figures[name] for name in ("sbleu", "meteor", "chrf")] == pytest.approx([100, 100, 100])
    assert (figures["edit"], figures["nontermination"]) == (0, 0)


def test_figures_are_the_costs_turned_round(wordnet):
    wordnet(True)
    hypotheses = [Text("a red house stands here", (5, 6, 9), ended=False), Text("tree", (4, 2))]
    references = [Text("the red house is here", (5, 7, 9, 2)), Text("a tree", (3, 4, 2))]
    figures = translation_figures(hypotheses, references)
    for name, cost in (("sbleu", sbleu), ("meteor", meteor)):
        assert figures[name] == pytest.approx(100 - 50 * sum(cost(hypotheses, references)))
    assert figures["edit"] == pytest.approx(sum(edit(hypotheses, references)) / 2)
    assert (figures["nontermination"], figures["length"]) == (0.5, 2.5)


@pytest.mark.parametrize("present", [True, False])
def test_the_signature_names_each_metric_and_leaves_out_meteor_without_wordnet(
    model, tokenizer, data, wordnet, present
):
    wordnet(present)
    result = evaluate_translation(model, tokenizer, data, max_new_tokens=4, progress=False)
    first, *metrics = result.signature.splitlines()
    assert first.startswith("data:three#3|decoder:greedy|bleu:beam-5|cap:4|mgs:")
    assert [line.split()[0] for line in metrics] == ["bleu", "sbleu", *(["meteor"] if present else []), "chrf"]
    assert "tok:13a" in metrics[0]
    assert ("meteor" in result.figures) == present


def test_beam_search_in_training_is_not_decoded_twice(model, tokenizer, data, monkeypatch):
    decoded = []
    plain = module.decode_texts
    monkeypatch.setattr(module, "decode_texts", lambda *given: decoded.append(str(given[3])) or plain(*given))
    evaluate_translation(model, tokenizer, data, Decoder(beams=5), max_new_tokens=4, progress=False)
    assert decoded == ["beam-5"]


def test_translations_may_be_twice_as_long_as_their_sources(model, tokenizer, data):
    assert module.longest_translation((1,) * 7) == 24
    result = evaluate_translation(model, tokenizer, data, progress=False)
    assert "|cap:2x+10|" in result.signature
    for example, hypothesis in zip(data.examples, result.hypotheses, strict=True):
        assert len(hypothesis.token_ids) <= 2 * len(example.prefix) + 10
