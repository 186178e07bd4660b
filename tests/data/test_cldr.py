import builtins
import random

import pytest

from mgs.data import load_pairs
from mgs.data.cldr import KINDS, Names, _locale, cldr_pairs
from mgs.data.pairs import read_pairs
from mgs.errors import UserError
from mgs.models.subwords import train_joint_bpe

SOME = 400


def test_sentences_are_what_the_two_languages_write():
    pairs = cldr_pairs(num=SOME)
    assert len(pairs) == SOME == len(dict(pairs))
    assert all(source != target for source, target in pairs)
    words = [set(" ".join(side).split()) for side in zip(*pairs, strict=True)]
    assert {"und", "oder", "Jahren", "Montag,", "März"} <= words[0]
    assert {"and", "or", "years", "Monday,", "March"} <= words[1]
    assert not {"und", "oder"} & words[1]
    assert all(" ".join(text.split()) == text for pair in pairs for text in pair)


def test_they_are_the_same_every_time_and_others_with_another_seed():
    drawn = cldr_pairs(num=SOME)
    cldr_pairs.cache_clear()
    assert cldr_pairs(num=SOME) == drawn
    assert not set(cldr_pairs(num=SOME, seed=1)) & set(drawn)


def test_the_other_way_round_it_is_the_same_text():
    assert [pair[::-1] for pair in cldr_pairs(("en", "de"), num=50)] == list(cldr_pairs(num=50))
    assert cldr_pairs(("en", "sv"), num=1)[0][1].count(" eller ") == 1


def test_every_kind_of_thing_has_words_in_both_languages():
    locales = [_locale("de"), _locale("en")]
    names, draw = Names(locales), random.Random(0)
    for kind in KINDS:
        drawn = [kind(draw, names) for _ in range(500)]
        texts = [[thing(locale) for thing in drawn] for locale in locales]
        assert all(text.strip() for side in texts for text in side)
        assert texts[0] != texts[1]
        assert not any("None" in text or "-per-" in text or "graphics-" in text for side in texts for text in side)


def test_no_sentence_is_both_trained_on_and_tested():
    parts = {split: read_pairs("cldr", split) for split in ("train", "valid", "test")}
    sources = {split: {source for source, _ in pairs} for split, pairs in parts.items()}
    assert not sources["train"] & (sources["valid"] | sources["test"])
    assert not sources["valid"] & sources["test"]
    assert sum(map(len, parts.values())) == len(read_pairs("cldr"))
    assert 800 < len(parts["test"]) < 1200


def test_they_load_as_any_pairs_do():
    tokenizer = train_joint_bpe([text for pair in cldr_pairs(num=SOME) for text in pair], 400)
    test = load_pairs("cldr", tokenizer, "test", languages="de-en", max_examples=5)
    assert test.signature == "cldr:de-en@test#5"
    assert tokenizer.decode(test[0].target[:-1]) == read_pairs("cldr", "test")[0][1]


def test_a_missing_language_gets_a_sentence():
    with pytest.raises(UserError, match="knows no language 'xx'"):
        read_pairs("cldr", languages="de-xx")


@pytest.mark.parametrize(("languages", "missing"), [("yi-en", "units"), ("en-vo", "scripts, currencies")])
def test_so_does_one_of_which_cldr_knows_little(languages, missing):
    with pytest.raises(UserError, match=f"no names of {missing}.* for {languages}: give other languages"):
        read_pairs("cldr", languages=languages)


def test_a_missing_package_gets_a_sentence(monkeypatch):
    load = builtins.__import__

    def without_babel(name, *args, **kwargs):
        if name.split(".")[0] == "babel":
            raise ImportError(name)
        return load(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without_babel)
    cldr_pairs.cache_clear()
    with pytest.raises(UserError, match="pip install babel"):
        cldr_pairs(num=1)
