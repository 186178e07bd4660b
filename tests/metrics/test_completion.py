import copy
import math

import pytest
import torch

import mgs
from mgs.data import Completions, completions_from_lines
from mgs.decoding import Decoder
from mgs.metrics import (
    COLUMNS,
    decode_texts,
    evaluate_completion,
    human_figures,
    perplexity,
    sequence_figures,
    texts,
)
from mgs.types import Example, Text


@pytest.fixture
def data(word_tokenizer):
    """Three pairs of letters: prefixes of two tokens, targets of 3, 5 and 9 tokens with ⟨eos⟩."""
    lines = ["a b c d", "a b c d e f", "a b c d e f c d e f"]
    return completions_from_lines(lines, word_tokenizer, context=2, name="letters")


def nll_by_hand(model, example, first):
    """−Σ log p of the tokens from `first` on, one sequence at a time."""
    ids = [*example.prefix, *example.target]
    with torch.no_grad():
        log_probs = torch.log_softmax(model(torch.tensor([ids])).logits[0].double(), dim=-1)
    return -sum(log_probs[position - 1, ids[position]].item() for position in range(first, len(ids)))


def test_texts_remember_their_tokens_and_whether_they_ended(word_tokenizer):
    first, second, empty = texts(word_tokenizer, [(1, 2, 0), (3, 4), ()])
    assert (first, first.token_ids, first.ended) == ("a b", (1, 2, 0), True)
    assert (second, second.token_ids, second.ended) == ("c d", (3, 4), False)
    assert (empty, empty.token_ids, empty.ended) == ("", (), False)


@pytest.fixture
def wordless(word_tokenizer, monkeypatch):
    """A tokenizer that cannot turn tokens into words."""

    def refuse(*given, **options):
        raise AssertionError("the tokenizer was asked for words")

    tokenizer = copy.deepcopy(word_tokenizer)
    for name in ("decode", "batch_decode", "convert_ids_to_tokens"):
        monkeypatch.setattr(tokenizer, name, refuse)
    return tokenizer


def test_without_strings_the_tokenizer_is_not_asked(wordless):
    with pytest.raises(AssertionError):
        texts(wordless, [(1, 2, 0)])
    found = texts(wordless, [(1, 2, 0), (3, 4), ()], strings=False)
    assert [(str(t), t.token_ids, t.ended) for t in found] == [
        ("", (1, 2, 0), True),
        ("", (3, 4), False),
        ("", (), False),
    ]
    assert texts(wordless, [], strings=False) == []


def test_continuations_without_strings_have_the_same_tokens(wordless, word_tokenizer, gpt2):
    with_strings = decode_texts(gpt2, word_tokenizer, [(5, 6, 7), (8,)], Decoder(), 5)
    without = decode_texts(gpt2, wordless, [(5, 6, 7), (8,)], Decoder(), 5, strings=False)
    assert [(t.token_ids, t.ended) for t in without] == [(t.token_ids, t.ended) for t in with_strings]
    assert list(without) == ["", ""]


def test_figures_need_no_words(wordless, data):
    assert human_figures(wordless, data)["edit"] == 0.0


def test_the_table_equals_one_counted_by_hand(word_tokenizer, data):
    hypotheses = texts(
        word_tokenizer,
        [
            (3, 4, 0),  # right, too short for a 4-gram
            (3, 4, 5, 5, 5, 5, 5, 5),  # never ends; 3455 4555 5555 5555 5555: five 4-grams, three kinds
            (3, 4, 5, 6, 0),  # ends early; two 4-grams, both new
        ],
    )
    # Edits: none; two substitutions and three tokens too many for (3 4 5 6 0); four of (3 4 5 6 3 4 5 6 0) missing.
    assert sequence_figures(word_tokenizer, data, hypotheses) == {
        "edit": pytest.approx((0 + 5 / 5 + 4 / 9) / 3),
        "nontermination": pytest.approx(1 / 3),
        "repetition": pytest.approx((2 / 5 + 0) / 2),  # the first has no 4-gram and is left out
        "length": pytest.approx((3 + 8 + 5) / 3),
    }


def test_repetition_is_zero_when_no_sequence_has_a_4_gram(word_tokenizer, data):
    figures = sequence_figures(word_tokenizer, data, texts(word_tokenizer, [(1, 0)] * 3))
    assert figures["repetition"] == 0.0


def test_human_figures_are_those_of_the_targets(word_tokenizer, data):
    assert human_figures(word_tokenizer, data) == {
        "edit": 0.0,
        "nontermination": 0.0,
        "repetition": pytest.approx((0 + 1 / 6) / 2),  # none in 3 tokens; 2 in 5; 6 in 9, of which `c d e f` twice
        "length": pytest.approx((3 + 5 + 9) / 3),
    }


def test_lm_columns_are_mean_negative_log_likelihoods(tokenizer, gpt2):
    data = Completions([Example((5, 6, 7), (8, 9, 0)), Example((300, 2), (1, 4, 11, 0))])
    figures = human_figures(tokenizer, data, scorer=gpt2)
    assert figures["lm"] == pytest.approx(sum(nll_by_hand(gpt2, e, len(e.prefix)) for e in data) / 2, rel=1e-4)
    assert figures["lm_with_prefix"] == pytest.approx(sum(nll_by_hand(gpt2, e, 1) for e in data) / 2, rel=1e-4)


def test_perplexity_is_that_of_a_target_token(gpt2):
    gentle = copy.deepcopy(gpt2)
    with torch.no_grad():
        gentle.transformer.ln_f.weight.mul_(0.05)
    data = Completions([Example((5, 6, 7), (8, 9, 0)), Example((300, 2), (1, 4, 11, 12, 0))])
    expected = math.exp(sum(nll_by_hand(gentle, e, len(e.prefix)) for e in data) / 8)
    assert perplexity(gentle, data) == pytest.approx(expected, rel=1e-4)
    assert 1 < expected < 1e6


def test_a_uniform_model_has_the_perplexity_of_its_vocabulary(gpt2):
    uniform = copy.deepcopy(gpt2)
    with torch.no_grad():
        uniform.transformer.ln_f.weight.zero_()
    assert perplexity(uniform, Completions([Example((5,), (8, 9, 0))])) == pytest.approx(400, rel=1e-5)


def test_perplexity_does_not_overflow(gpt2):
    hopeless = copy.deepcopy(gpt2)
    with torch.no_grad():
        hopeless.transformer.ln_f.weight.mul_(1e4)
    assert math.isfinite(perplexity(hopeless, Completions([Example((5,), (8, 9, 0))])))


@pytest.fixture
def sentence_data(sentences, tokenizer):
    return completions_from_lines(
        sentences[:70], tokenizer, context=4, name="sentences"
    )  # more than are decoded at once


def test_an_evaluation_decodes_every_prefix_and_fills_every_column(gpt2, tokenizer, sentence_data):
    evaluation = evaluate_completion(
        gpt2, tokenizer, sentence_data, Decoder(), scorer=gpt2, max_new_tokens=8, progress=False
    )
    expected = decode_texts(gpt2, tokenizer, [e.prefix for e in sentence_data], Decoder(), 8)
    assert [h.token_ids for h in evaluation.hypotheses] == [h.token_ids for h in expected]
    assert list(evaluation.figures) == list(COLUMNS)
    expected_figures = sequence_figures(tokenizer, sentence_data, expected, gpt2)
    assert evaluation.figures == pytest.approx(expected_figures | {"perplexity": perplexity(gpt2, sentence_data)})


def test_without_a_scorer_the_lm_columns_are_left_out(gpt2, tokenizer, sentence_data):
    figures = evaluate_completion(
        gpt2, tokenizer, sentence_data[:3], Decoder(), max_new_tokens=4, progress=False
    ).figures
    assert set(COLUMNS) - set(figures) == {"lm", "lm_with_prefix"}


def test_evaluating_with_the_model_as_its_own_scorer_leaves_it_trainable(gpt2, tokenizer, sentence_data):
    model = copy.deepcopy(gpt2).train()
    evaluate_completion(model, tokenizer, sentence_data[:3], Decoder(), scorer=model, max_new_tokens=4, progress=False)
    assert model.training
    assert all(p.requires_grad for p in model.parameters())


def test_a_sampled_evaluation_is_a_function_of_its_seed(gpt2, tokenizer, sentence_data):
    def sampled(seed):
        decoder = Decoder(sample=True, temperature=3.0)
        evaluation = evaluate_completion(
            gpt2, tokenizer, sentence_data, decoder, max_new_tokens=6, seed=seed, progress=False
        )
        return [h.token_ids for h in evaluation.hypotheses]

    assert sampled(0) == sampled(0)
    assert sampled(0) != sampled(1)


def test_the_signature_says_how_figures_were_obtained(gpt2, tokenizer, sentence_data):
    def signature(decoder, **options):
        options = {"max_new_tokens": 4, "progress": False} | options
        return evaluate_completion(gpt2, tokenizer, sentence_data[:3], Decoder.parse(decoder), **options).signature

    version = f"mgs:{mgs.__version__}"
    assert signature("greedy") == f"data:sentences#3|context:4|decoder:greedy|cap:4|{version}"
    assert signature("greedy", seed=5) == signature("greedy")  # nothing is drawn
    assert "|decoder:beam-2|cap:3|" in signature("beam-2", max_new_tokens=3)
    assert "|decoder:sample,top_k=5|cap:4|seed:5|" in signature("sample,top_k=5", seed=5)
    scorer = copy.deepcopy(gpt2)
    scorer.config._name_or_path = "runs/starting-point/"
    assert "|scorer:starting-point|" in signature("greedy", scorer=scorer)


def test_prefixes_of_different_lengths_have_no_number_in_the_signature(gpt2, tokenizer):
    data = Completions([Example((5, 6), (7, 0)), Example((8,), (9, 0))], name="two")
    result = evaluate_completion(gpt2, tokenizer, data, Decoder(), max_new_tokens=2, progress=False)
    assert result.signature.startswith("data:two#2|context:prompts|decoder:greedy|")


def test_continuations_come_as_texts(gpt2, tokenizer):
    (text,) = decode_texts(gpt2, tokenizer, [(5, 6, 7)], Decoder(), 5)
    assert isinstance(text, Text)
    assert len(text.token_ids) == 5
    assert text == tokenizer.decode(list(text.token_ids))
