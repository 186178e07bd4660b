from pathlib import Path

import pytest

from mgs.data import BatchStream, Translations, as_completions, load_pairs, load_sentences, translations_from_pairs
from mgs.errors import UserError
from mgs.models.subwords import train_joint_bpe
from mgs.types import Example

SHARED = Path(__file__).parents[2].parent / "shared" / "data"
SIX = [("a b c", "d e"), ("", "f"), ("a", "b c d e f"), ("g h i j k", "l"), ("m n", "o p"), ("x", " ")]


def sides(data):
    return [(example.prefix, example.target) for example in data]


@pytest.fixture
def letters(tmp_path):
    """A tab-separated file of six pairs, two of which have a blank side."""
    path = tmp_path / "letters.tsv"
    path.write_text("".join(f"{left}\t{right}\n" for left, right in SIX))
    return str(path)


def test_both_sides_of_a_pair_end_in_eos(word_tokenizer):
    data = translations_from_pairs([("a b c", "d e"), ("f", "g")], word_tokenizer)
    assert list(data) == [Example((1, 2, 3, 0), (4, 5, 0)), Example((6, 0), (7, 0))]
    assert (data.num_discarded, data.discarded, data.signature) == (0, {}, "pairs#2")


def test_what_is_left_out_is_counted_by_reason(word_tokenizer):
    def tried(**limits):
        data = translations_from_pairs(SIX, word_tokenizer, **limits)
        assert data.num_discarded == sum(data.discarded.values()) == len(SIX) - len(data)
        return [len(e.prefix) + 100 * len(e.target) for e in data], data.discarded

    # With ⟨eos⟩ the sides have 4 and 3, 2 and 6, 6 and 2, 3 and 3 tokens.
    assert tried() == ([304, 602, 206, 303], {"blank": 2})
    assert tried(max_length=6) == tried()
    assert tried(max_length=5) == ([304, 303], {"blank": 2, "too long": 2})
    assert tried(max_length=3) == ([303], {"blank": 2, "too long": 3})
    assert tried(min_length=3) == ([304, 303], {"blank": 2, "too short": 2})
    assert tried(max_ratio=3) == tried()
    assert tried(max_ratio=2.9) == ([304, 303], {"blank": 2, "uneven": 2})
    assert tried(max_ratio=1) == ([303], {"blank": 2, "uneven": 3})
    assert tried(max_length=5, max_ratio=1) == ([303], {"blank": 2, "too long": 2, "uneven": 1})


def test_nothing_left_is_an_error_that_says_why(word_tokenizer):
    with pytest.raises(UserError, match=r"none of the 6 pairs of 'six' .*\(2 blank, 4 too long\): .*max_length"):
        translations_from_pairs(SIX, word_tokenizer, "six", max_length=2)
    with pytest.raises(UserError, match=r"none of the 1 pairs .*\(1 blank\)"):
        translations_from_pairs([("", "")], word_tokenizer)
    with pytest.raises(UserError, match=r"max_ratio is the longer side over the shorter and at least 1, got 0\.5"):
        translations_from_pairs(SIX, word_tokenizer, max_ratio=0.5)


def test_a_tokenizer_without_eos_is_an_error(word_tokenizer):
    endless = type(word_tokenizer)(tokenizer_object=word_tokenizer.backend_tokenizer)
    with pytest.raises(UserError, match=r"no ⟨eos⟩ token"):
        translations_from_pairs(SIX, endless)


def test_loading_takes_the_first_examples_and_names_them(letters, word_tokenizer):
    data = load_pairs(letters, word_tokenizer)
    assert sides(data) == sides(translations_from_pairs(SIX, word_tokenizer))
    assert (data.signature, data.discarded) == ("letters.tsv#4", {"blank": 2})
    first = load_pairs(letters, word_tokenizer, source=1, max_examples=2, max_length=6, min_length=2, max_ratio=2.5)
    assert sides(first) == [((4, 5, 0), (1, 2, 3, 0)), ((15, 16, 0), (13, 14, 0))]
    assert first.signature == "letters.tsv:1-0≥2≤6≤2.5×#2"
    assert first.discarded == {"blank": 2, "uneven": 2}


def test_names_of_two_files_and_of_a_folder_are_without_their_path(tmp_path, word_tokenizer):
    for split in ("train", "val"):
        (tmp_path / f"{split}.de").write_text("A B\n")
        (tmp_path / f"{split}.en").write_text("C\n")
    options = {"languages": "de-en", "lowercase": True}
    files = load_pairs(f"{tmp_path}/train.de,{tmp_path}/train.en", word_tokenizer, lowercase=True)
    folder = load_pairs(f"{tmp_path}/", word_tokenizer, "valid", **options)
    assert files.signature == "train.de,train.en+lowercase#1"
    assert folder.signature == f"{tmp_path.name}:de-en@valid+lowercase#1"
    assert sides(files) == sides(folder) == [((1, 2, 0), (3, 0))]


def test_lowercasing_and_unescaping_are_on_request(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("Das ist &quot; GUT &quot; .\tThat &apos;s GOOD &amp; &#91; fine &#93; .\n")
    assert load_sentences(str(path)) == [("Das ist &quot; GUT &quot; .", "That &apos;s GOOD &amp; &#91; fine &#93; .")]
    assert load_sentences(str(path), lowercase=True, unescape=True) == [
        ('das ist " gut " .', "that 's good & [ fine ] .")
    ]


def test_a_slice_is_still_translations_and_trainers_take_them_as_they_are(word_tokenizer):
    data = translations_from_pairs(SIX, word_tokenizer, "six")
    part = data[1:3]
    assert isinstance(part, Translations)
    assert (part.examples, part.discarded, part.signature) == (data.examples[1:3], {"blank": 2}, "six#2")
    assert as_completions(data, word_tokenizer) is data


def test_mean_lengths_count_eos(word_tokenizer):
    data = translations_from_pairs([("a b c", "d"), ("f", "g h")], word_tokenizer)
    assert data.mean_lengths == (3.0, 2.5)


def test_a_special_token_spelt_out_in_a_sentence_is_text():
    tokenizer = train_joint_bpe(["ein Satz", "a sentence"] * 2, 300)
    (example,) = translations_from_pairs([("ein </s> <pad> Satz", "a <unk> </s>")], tokenizer)
    assert not set(example.prefix[:-1] + example.target[:-1]) & set(tokenizer.all_special_ids)
    assert example.prefix[-1] == example.target[-1] == tokenizer.eos_token_id
    assert tokenizer.decode(example.target[:-1]) == "a <unk> </s>"


REAL = {
    "multi30k": {"train": 29_000, "valid": 1014, "test": 1000},
    "iwslt14": {"train": 8622, "valid": 7283, "test": 6750},
}


@pytest.mark.parametrize("corpus", REAL)
def test_real_folders_are_read_whole_and_given_back(corpus):
    if not (SHARED / corpus).is_dir():
        pytest.skip(f"{corpus} is not on this machine (../shared/data)")
    folder, options = str(SHARED / corpus), {"languages": "de-en", "unescape": True}
    pairs = {split: load_sentences(folder, split, **options) for split in REAL[corpus]}
    assert {split: len(rows) for split, rows in pairs.items()} == REAL[corpus]
    tokenizer = train_joint_bpe((side for pair in pairs["valid"] for side in pair), 2000, lowercase=True)
    data = load_pairs(folder, tokenizer, "test", **options)
    assert (len(data), data.num_discarded) == (REAL[corpus]["test"], 0)
    decoded = tokenizer.batch_decode([example.target[:-1] for example in data])
    assert decoded == [english.lower() for _, english in pairs["test"]]
    stream = BatchStream(data, 4096, by_length=True, by_side=True)
    assert max(len(batch) * (max(map(len, batch.prefixes)) + batch.max_target) for batch in stream) <= 4096


def test_a_real_tab_separated_file_is_split_without_shared_sources():
    path = SHARED / "tatoeba" / "deu.txt.xz"
    if not path.exists():
        pytest.skip("Tatoeba's pairs are not on this machine (../shared/data)")
    parts = [load_sentences(str(path), split, source=1) for split in ("train", "valid", "test")]
    assert sum(map(len, parts)) == 169_813
    german, english = parts[0][0]
    assert (german, english) == ("Hallo!", "Hi.")
    assert not {pair[0] for pair in parts[0]} & {pair[0] for pair in parts[2]}
