import json
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer, MarianConfig, MarianMTModel, PreTrainedTokenizerFast

from mgs.data import load_sentences
from mgs.data.completion import marks_spaces
from mgs.errors import UserError
from mgs.models import load_tokenizer
from mgs.models.subwords import train_joint_bpe

SHARED = Path(__file__).parents[2].parent / "shared" / "data"
GERMAN = ["Zwei Männer , die Fußball spielen .", "Der Hund läuft über die Straße.", "Ein Mann schläft."]
ENGLISH = ["Two men playing football .", "The dog runs across the street.", "A man isn't asleep, it 's Peter's."]
LINES = [*GERMAN, *ENGLISH] * 3
UNSEEN = [
    "Ein Käse",
    "❤ 漢字 🙂",
    "a\u0301 is two characters",
    "  spaces  around ",
    "tab\tand\x0cfeed",
    "don 't , so ( x ) .",
    "",
]


@pytest.fixture(scope="module")
def bpe():
    return train_joint_bpe(LINES, 400)


@pytest.fixture(scope="module")
def lower_bpe():
    return train_joint_bpe(LINES, 400, lowercase=True)


def encoded(tokenizer, text):
    return tokenizer(text, split_special_tokens=True)["input_ids"]


@pytest.mark.parametrize("text", LINES[:6] + UNSEEN)
def test_decoding_gives_the_text_back(bpe, lower_bpe, text):
    assert bpe.decode(encoded(bpe, text)) == text
    assert lower_bpe.decode(encoded(lower_bpe, text)) == text.lower()


@given(text=st.text(max_size=40))
@settings(max_examples=200, deadline=None)
def test_any_text_is_given_back_and_none_is_unknown(bpe, text):
    text = text.encode("utf-8", "ignore").decode()
    ids = encoded(bpe, text)
    assert bpe.decode(ids) == text
    assert not set(ids) & set(bpe.all_special_ids)


def test_special_tokens_are_four_and_never_added_to_what_is_encoded(bpe):
    assert bpe.convert_ids_to_tokens([0, 1, 2, 3]) == ["<s>", "<pad>", "</s>", "<unk>"]
    assert (bpe.bos_token_id, bpe.pad_token_id, bpe.eos_token_id, bpe.unk_token_id) == (0, 1, 2, 3)
    assert not set(bpe("Der Hund läuft.")["input_ids"]) & {0, 1, 2, 3}
    ids = encoded(bpe, "a </s> b <pad> <unk>")
    assert not set(ids) & {0, 1, 2, 3}
    assert bpe.decode(ids) == "a </s> b <pad> <unk>"
    assert bpe.decode([*bpe("Der Hund")["input_ids"], 2, 1, 1], skip_special_tokens=True) == "Der Hund"


def test_a_word_is_the_same_token_at_the_start_as_inside(bpe):
    assert encoded(bpe, "Hund Hund") == encoded(bpe, "Hund") * 2
    assert not marks_spaces(bpe)  # so nobody puts another space in front


def test_frequent_words_of_both_languages_are_whole(bpe):
    assert len(encoded(bpe, "Hund")) == len(encoded(bpe, "dog")) == 1
    assert len(encoded(bpe, "Zug")) > 1


def test_the_vocabulary_has_the_size_asked_for():
    assert [len(train_joint_bpe(LINES, size)) for size in (261, 300, 350)] == [261, 300, 350]
    assert len(train_joint_bpe(LINES, 10_000)) < 600  # there is no more to merge


def test_lowercasing_merges_words_and_travels_with_the_tokenizer(lower_bpe, bpe, tmp_path):
    assert encoded(lower_bpe, "DER HUND") == encoded(lower_bpe, "der hund")
    assert encoded(bpe, "DER HUND") != encoded(bpe, "der hund")
    lower_bpe.save_pretrained(tmp_path)
    assert AutoTokenizer.from_pretrained(tmp_path).decode(encoded(lower_bpe, "ÜBER Den")) == "über den"


@pytest.mark.parametrize(
    "load", [PreTrainedTokenizerFast.from_pretrained, AutoTokenizer.from_pretrained, load_tokenizer]
)
def test_a_saved_tokenizer_is_loaded_unchanged(lower_bpe, tmp_path, load):
    folder = str(tmp_path)
    MarianMTModel(
        MarianConfig(
            vocab_size=len(lower_bpe),
            d_model=8,
            encoder_layers=1,
            decoder_layers=1,
            encoder_attention_heads=1,
            decoder_attention_heads=1,
            encoder_ffn_dim=8,
            decoder_ffn_dim=8,
            pad_token_id=1,
            eos_token_id=2,
            decoder_start_token_id=1,
            forced_eos_token_id=None,
        )
    ).save_pretrained(folder)  # whose own kind of tokenizer is another
    lower_bpe.save_pretrained(folder)
    again = load(folder)
    assert isinstance(again, PreTrainedTokenizerFast)
    assert again.backend_tokenizer.to_str() == lower_bpe.backend_tokenizer.to_str()
    assert again.special_tokens_map == lower_bpe.special_tokens_map
    for text in LINES[:6] + UNSEEN:
        assert encoded(again, text) == encoded(lower_bpe, text)
        assert again.decode(encoded(again, text)) == text.lower()


def test_training_depends_on_the_lines_alone_and_not_on_their_order(bpe):
    shuffled = random.Random(5).sample(LINES, len(LINES))
    for lines in (LINES, shuffled, iter(LINES)):
        assert train_joint_bpe(lines, 400).backend_tokenizer.to_str() == bpe.backend_tokenizer.to_str()
    others = train_joint_bpe(ENGLISH * 9, 400).backend_tokenizer.to_str()
    assert json.loads(others)["model"]["merges"] != json.loads(bpe.backend_tokenizer.to_str())["model"]["merges"]


def test_too_small_a_vocabulary_and_no_text_are_errors():
    with pytest.raises(UserError, match=r"type for each byte.* at least 260, not 259"):
        train_joint_bpe(LINES, 259)
    for lines in ([], ["", ""]):
        with pytest.raises(UserError, match="no text to train a BPE on"):
            train_joint_bpe(lines, 400)


@pytest.mark.parametrize("corpus", ["multi30k", "iwslt14"])
def test_real_sentences_are_given_back(corpus):
    if not (SHARED / corpus).is_dir():
        pytest.skip(f"{corpus} is not on this machine (../shared/data)")
    lines = [side for pair in load_sentences(str(SHARED / corpus), "valid", languages="de-en") for side in pair]
    tokenizer = train_joint_bpe(lines, 2000, lowercase=True)
    assert len(tokenizer) == 2000
    rows = tokenizer(lines, split_special_tokens=True)["input_ids"]
    assert tokenizer.batch_decode(rows) == [line.lower() for line in lines]
