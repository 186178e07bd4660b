import copy
from pathlib import Path

import pytest

from mgs.data import CONTEXT, Completions, as_completions, completions_from_lines, load_completions
from mgs.data.completion import marks_spaces
from mgs.errors import UserError
from mgs.metrics import human_figures
from mgs.models import load_tokenizer
from mgs.types import Example

SHARED = Path(__file__).parents[2].parent / "shared" / "data"


def test_a_line_becomes_a_prefix_of_k_tokens_and_the_rest_with_eos(word_tokenizer):
    (example,) = completions_from_lines(["a b c d e"], word_tokenizer, context=2)
    assert example == Example(prefix=(1, 2), target=(3, 4, 5, 0))


def test_sequences_of_k_tokens_or_fewer_are_discarded_with_eos_counted(word_tokenizer):
    lines = ["a", "a b", "a b c", "a b c d", "e f", "e f g h i"]  # 2, 3, 4, 5, 3 and 6 tokens with ⟨eos⟩
    data = completions_from_lines(lines, word_tokenizer, context=3)
    assert [(e.prefix, e.target) for e in data] == [
        ((1, 2, 3), (0,)),
        ((1, 2, 3), (4, 0)),
        ((5, 6, 7), (8, 9, 0)),
    ]
    assert data.num_discarded == 3


def test_the_default_context_is_that_of_the_paper(word_tokenizer):
    data = completions_from_lines(["a b c d e f g h i j k"], word_tokenizer)
    assert CONTEXT == 10
    assert (data[0].prefix, data[0].target) == ((1, 2, 3, 4, 5, 6, 7, 8, 9, 10), (11, 0))


def test_sequences_longer_than_the_window_are_cut_and_have_no_eos(word_tokenizer):
    data = completions_from_lines(["a b c d e", "a b c", "a b"], word_tokenizer, context=1, max_length=4)
    assert [e.prefix + e.target for e in data] == [(1, 2, 3, 4), (1, 2, 3, 0), (1, 2, 0)]


def test_shorter_sequences_can_be_left_out_and_the_name_says_so(tmp_path, word_tokenizer):
    (tmp_path / "letters").write_text("a b c\na b c d\na b\n")  # 4, 5 and 3 tokens with ⟨eos⟩
    data = load_completions(str(tmp_path / "letters"), word_tokenizer, context=1, min_length=4)
    assert [len(e) for e in data] == [4, 5]
    assert (data.signature, data.num_discarded) == ("letters≥4#2", 1)
    with pytest.raises(UserError, match=r"all 3 sequences .* too short: each needs more than 8 tokens"):
        load_completions(str(tmp_path / "letters"), word_tokenizer, context=1, min_length=9)


def test_byte_level_bpe_gets_a_leading_space(tokenizer, sentences):
    data = completions_from_lines(sentences[:20], tokenizer, context=3)
    for sentence, example in zip(sentences, data, strict=False):
        assert example.target[-1] == tokenizer.eos_token_id
        assert tokenizer.decode(example.prefix + example.target[:-1]) == " " + sentence


def test_other_tokenizers_get_no_leading_space(tokenizer, word_tokenizer):
    assert marks_spaces(tokenizer)
    assert not marks_spaces(word_tokenizer)


def test_a_slice_is_still_completions_and_the_signature_counts(word_tokenizer):
    data = completions_from_lines(["a b c", "d e f", "g h i"], word_tokenizer, context=1, name="letters")
    assert data.signature == "letters#3"
    assert data[1:].signature == "letters#2"
    assert data[1:].examples == data.examples[1:]


def test_loading_names_the_source_and_its_split_and_takes_the_first_examples(tmp_path, word_tokenizer):
    (tmp_path / "letters.train.txt").write_text("a b c\n\n= d =\nd e f\nx\ng h i\n")
    one_file = load_completions(str(tmp_path / "letters.train.txt"), word_tokenizer, context=2, drop_headings=True)
    assert [e.prefix for e in one_file] == [(1, 2), (4, 5), (7, 8)]
    assert (one_file.signature, one_file.num_discarded) == ("letters.train.txt-headings#3", 1)
    folder = load_completions(f"{tmp_path}/", word_tokenizer, "train", context=2, max_examples=2)
    assert folder.signature == f"{tmp_path.name}@train#2"


def test_strings_texts_and_examples_are_the_same_dataset(word_tokenizer):
    lines = ["a b c", "d e f"]
    expected = [Example((1,), (2, 3, 0)), Example((4,), (5, 6, 0))]
    assert as_completions(lines, word_tokenizer, context=1).examples == expected
    assert as_completions([{"text": line} for line in lines], word_tokenizer, context=1).examples == expected
    assert as_completions(iter(expected), word_tokenizer).examples == expected
    ready = Completions(expected)
    assert as_completions(ready, word_tokenizer) is ready


#: Users are `u`, assistants `m`; each message ends with ⟨eos⟩, and a line with one more `z`.
TEMPLATE = """{% for m in messages %}{{ 'u ' if m.role == 'user' else 'm ' }}{{ m.content + ' <eos> ' }}{% endfor %}\
{{ 'm' if add_generation_prompt else 'z' }}"""


@pytest.fixture
def chatting(word_tokenizer):
    tokenizer = copy.deepcopy(word_tokenizer)
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def said(role, content):
    return {"role": role, "content": content}


def test_a_chat_is_split_before_its_last_message_as_the_template_writes_it(chatting):
    question, answer = [said("user", "a b")], [said("assistant", "c d")]
    expected = Example((21, 1, 2, 0, 13), (3, 4, 0), {"weight": 2})  # and no z: what follows ⟨eos⟩ is not generated
    assert list(as_completions([{"messages": question + answer, "weight": 2}], chatting)) == [expected]
    rows = [{"prompt": question, "completion": answer, "weight": 2}]
    assert list(as_completions(rows, chatting)) == [expected]
    (longer,) = as_completions([{"messages": question + answer + question + answer}], chatting)
    assert (longer.prefix, longer.target) == ((21, 1, 2, 0, 13, 3, 4, 0, 21, 1, 2, 0, 13), (3, 4, 0))


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"messages": [said("user", "a")]}, "'messages' must hold two or more in every row"),
        ({"messages": "a"}, "'messages' must hold two or more in every row"),
        ({"prompt": [said("user", "a")], "completion": None}, "the chat template cannot write"),
        ({"messages": [said("user", "a"), {"role": "assistant"}]}, "the chat template cannot write"),
    ],
)
def test_chats_that_cannot_be_written_get_a_sentence(row, problem, chatting):
    with pytest.raises(UserError, match=problem):
        as_completions([row], chatting)


def test_a_template_that_takes_back_what_it_wrote_is_refused(chatting):
    chatting.chat_template = "{{ 'a' if messages | length == 1 else 'b' }} c d"
    with pytest.raises(UserError, match="writes a prompt otherwise where an answer follows"):
        as_completions([{"messages": [said("user", "a"), said("assistant", "b")]}], chatting)


def test_an_answer_that_shares_a_token_with_the_prompt_begins_after_the_prompts_own(tokenizer):
    spaced = copy.deepcopy(tokenizer)
    spaced.chat_template = """{% for m in messages %}{{ m.role + ': ' + m.content + eos_token }}{% endfor %}\
{% if add_generation_prompt %}assistant: {% endif %}"""
    (example,) = as_completions([{"messages": [said("user", "The cat"), said("assistant", "The river")]}], spaced)
    assert spaced.decode(example.prefix).endswith(f"The cat{spaced.eos_token}assistant: ")
    assert spaced.decode(example.target) == f"The river{spaced.eos_token}"
    prompt = spaced.apply_chat_template([said("user", "The cat")], add_generation_prompt=True, return_dict=True)
    assert list(example.prefix) == prompt["input_ids"]


def test_a_dataset_with_text_and_more_says_which_it_is(word_tokenizer):
    with pytest.warns(UserWarning, match="column 'text' is used, and not completion, prompt"):
        data = as_completions([{"text": "a b c", "prompt": "d", "completion": "e"}], word_tokenizer, context=1)
    assert data.examples == [Example((1,), (2, 3, 0))]


def test_prompt_and_completion_are_split_where_the_user_did(word_tokenizer):
    rows = [{"prompt": "a b", "completion": "c"}, {"prompt": "d", "completion": "", "weight": 2}]
    assert as_completions(rows, word_tokenizer).examples == [
        Example((1, 2), (3, 0)),
        Example((4,), (0,), {"weight": 2}),
    ]


def test_extra_columns_stay_with_their_row_also_when_rows_are_discarded(word_tokenizer):
    rows = [{"text": "a b c", "id": 7}, {"text": "a", "id": 8}, {"text": "d e f", "id": 9}]
    data = as_completions(rows, word_tokenizer, context=2)
    assert [(e.prefix, e.columns) for e in data] == [((1, 2), {"id": 7}), ((4, 5), {"id": 9})]
    assert data.num_discarded == 1


WRONG = {
    "empty": ([], r"dataset is empty"),
    "not iterable": (3, r"cannot read examples from a int"),
    "a path": (
        "data/train.txt",
        r"a list of rows, got 'data/train.txt': mgs.load_completions\(file, tokenizer\) reads",
    ),
    "a dict of splits": ({"train": ["a b c d"]}, r"got a dict of train: give one, dataset\['train'\]"),
    "a dict of columns": ({"text": ["a b c d"]}, r"got a dict of text: datasets.Dataset.from_dict\(dataset\) makes"),
    "rows of two kinds": (["a b c d", {"text": "a b c d"}], r"or a mapping of columns, got dict after a str"),
    "a column with a taken name": (
        [{"text": "a b c d", "prefixes": 1}],
        r"column 'prefixes', by which name .*: rename",
    ),
    "neither strings nor mappings": ([1, 2], r"string or a mapping of columns, got int"),
    "other columns": (
        [{"source": "a", "target": "b"}],
        "and 'completion', or 'messages'; got source, target",
    ),
    "a chat without template": ([{"messages": [{"role": "user", "content": "a"}] * 2}], "need .* with a chat template"),
    "missing value": ([{"text": "a b c d"}, {"text": None}], r"column 'text' must hold a string.*None"),
    "missing column": (
        [{"prompt": "a", "completion": "b"}, {"prompt": "a"}],
        r"column 'completion' must hold a string",
    ),
    "prompt without tokens": ([{"prompt": "", "completion": "b"}], r"prompt without tokens: ''"),
    "all too short": (["a", "b"], r"all 2 sequences .* too short: each needs more than 3 tokens"),
}


@pytest.mark.parametrize(("dataset", "message"), WRONG.values(), ids=WRONG.keys())
def test_a_dataset_that_cannot_be_used_is_an_error_that_says_why(word_tokenizer, dataset, message):
    with pytest.raises(UserError, match=message):
        as_completions(dataset, word_tokenizer, context=3)


def test_a_context_below_one_and_a_tokenizer_without_eos_are_errors(word_tokenizer):
    with pytest.raises(UserError, match="context must be at least 1"):
        completions_from_lines(["a b"], word_tokenizer, context=0)
    endless = type(word_tokenizer)(tokenizer_object=word_tokenizer.backend_tokenizer)
    with pytest.raises(UserError, match=r"no ⟨eos⟩ token: set tokenizer\.eos_token"):
        completions_from_lines(["a b"], endless, context=1)


@pytest.mark.parametrize(("split", "num_pairs", "repetition"), [("valid", 1896, 0.0089), ("test", 2162, 0.0114)])
def test_the_papers_data_are_matched(split, num_pairs, repetition):
    text, bpe = SHARED / "wikitext" / f"wiki.{split}.raw.xz", SHARED / "gpt2-bpe"
    if not text.exists() or not bpe.exists():
        pytest.skip("WikiText and GPT-2's BPE are not on this machine (../shared/data)")
    gpt2_bpe = load_tokenizer(str(bpe))
    data = load_completions(str(text), gpt2_bpe)
    assert len(data) == num_pairs
    assert round(human_figures(gpt2_bpe, data)["repetition"], 4) == repetition


def test_a_special_token_spelt_out_in_a_line_is_text(tokenizer):
    (example,) = completions_from_lines([f"before {tokenizer.eos_token} after it went on"], tokenizer, context=3)
    assert tokenizer.eos_token_id not in (*example.prefix, *example.target[:-1])
    assert example.target[-1] == tokenizer.eos_token_id
