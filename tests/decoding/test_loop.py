import pytest
import torch

from mgs.decoding.loop import DROP_SHARE, decode_loop, ended_at

RAGGED = [(5, 6, 7), (300, 2), (11, 12, 13, 14, 15, 16), (9,), (120, 121, 122), (40, 41)]
EVEN = [(5, 6, 7), (300, 2, 4), (11, 12, 13), (9, 8, 7), (120, 121, 122), (40, 41, 42)]
NO_EOS = 399  # replaced where a test wants rows to end


def library_greedy(model, prefix, max_new_tokens, eos):
    """`generate` for one prefix alone: no padding, nothing that ends earlier or later."""
    ids = torch.tensor([prefix])
    out = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        do_sample=False,
        max_new_tokens=max_new_tokens,
        eos_token_id=eos,
        pad_token_id=eos,
    )
    return tuple(out[0, len(prefix) :].tolist())


@pytest.fixture
def ends(an_eos):
    """A token that ends some rows early, at different times, and others not at all."""
    return lambda model, prefixes, cap: an_eos([library_greedy(model, prefix, cap, NO_EOS) for prefix in prefixes])


@pytest.mark.parametrize("prefixes", [RAGGED, EVEN], ids=["ragged", "even"])
def test_the_loop_equals_generate_token_for_token(model, prefixes, ends):
    eos = ends(model, prefixes, 30)
    expected = [library_greedy(model, prefix, 30, eos) for prefix in prefixes]
    assert len({len(out) for out in expected}) >= 3  # rows do end at different times
    assert decode_loop(model, prefixes, 30, eos) == expected


@pytest.mark.parametrize("share", [1, 2, 10**6], ids=["never", "half", "always"])
def test_when_rows_leave_the_batch_does_not_matter(model, monkeypatch, share, ends):
    eos = ends(model, RAGGED, 30)
    expected = decode_loop(model, RAGGED, 30, eos)
    assert DROP_SHARE == 8
    monkeypatch.setattr("mgs.decoding.loop.DROP_SHARE", share)
    assert decode_loop(model, RAGGED, 30, eos) == expected


def test_many_copies_of_one_prefix_decode_alike(gpt2, ends):
    eos = ends(gpt2, RAGGED, 20)
    outs = decode_loop(gpt2, [RAGGED[0]] * 20 + [RAGGED[2]], 20, eos)
    assert set(outs[:20]) == {library_greedy(gpt2, RAGGED[0], 20, eos)}


def test_the_cap_is_respected(gpt2):
    for cap in (1, 2, 7):
        outs = decode_loop(gpt2, RAGGED, cap, NO_EOS)
        assert {len(out) for out in outs} == {cap}


def test_the_loop_stops_when_all_rows_have_ended(gpt2):
    steps = []

    def all_end_at_the_third(logits, keys, position):
        steps.append(position)
        scores = torch.zeros_like(logits)
        scores[:, 0 if position == 2 else 17] = 1
        return scores

    assert decode_loop(gpt2, RAGGED, 50, 0, process=all_end_at_the_third) == [(17, 17, 0)] * 6
    assert steps == [0, 1, 2]


def ends_in_turn(turns, seen):
    """A process under which the row of key `turns[i]` ends at position i; notes the keys it is handed."""

    def process(logits, keys, position):
        seen.append(keys.tolist())
        scores = torch.zeros_like(logits)
        scores[:, 17] = 1
        scores[keys == turns[position], 0] = 2
        return scores

    return process


def test_without_keys_a_processor_is_handed_the_rows_numbers(gpt2):
    seen = []
    outs = decode_loop(gpt2, RAGGED, 50, 0, process=ends_in_turn(range(6), seen))
    assert outs == [(17,) * row + (0,) for row in range(6)]
    assert seen == [list(range(first, 6)) for first in range(6)]


def test_processed_scores_see_the_keys_of_the_rows_that_are_left(gpt2):
    """Rows end in another order than theirs; the keys handed to the processor are those of the rows still going."""
    turns, seen = [33, 31, 36, 32, 35, 34], []
    outs = decode_loop(gpt2, RAGGED, 50, 0, torch.arange(31, 37), ends_in_turn(turns, seen))
    assert outs == [(17,) * turns.index(key) + (0,) for key in range(31, 37)]
    assert seen == [sorted(turns[position:]) for position in range(6)]


@pytest.mark.parametrize(("share", "sizes"), [(8, [5, 4, 3, 2, 1]), (2, [3, 1]), (1, [])])
def test_whoever_keeps_something_for_each_row_hears_which_stay(gpt2, monkeypatch, share, sizes):
    """Numbers are those in the batch as it was; rows that have ended but not left are still in it."""
    monkeypatch.setattr("mgs.decoding.loop.DROP_SHARE", share)
    mine, heard, seen = torch.arange(31, 37), [], []

    def left(kept):
        nonlocal mine
        mine = mine[kept]
        heard.append(len(kept))

    process = ends_in_turn([33, 31, 36, 32, 35, 34], seen)

    def checked(logits, keys, position):
        assert torch.equal(keys, mine)
        return process(logits, keys, position)

    decode_loop(gpt2, RAGGED, 50, 0, torch.arange(31, 37), checked, left)
    assert heard == sizes
    assert len(seen) == 6


@pytest.mark.parametrize(
    ("tokens", "cut"),
    [([3, 0, 4, 0], (3, 0)), ([0, 0], (0,)), ([3, 4], (3, 4)), ([], ())],
)
def test_a_sequence_ends_at_its_first_eos(tokens, cut):
    assert ended_at(tokens, 0) == cut
