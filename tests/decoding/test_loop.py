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


def an_eos(model, prefixes, cap):
    """A token that ends some rows early, at different times, and others not at all."""
    outs = [library_greedy(model, prefix, cap, NO_EOS) for prefix in prefixes]
    for token in sorted({token for out in outs for token in out}):
        ends = [out.index(token) if token in out else None for out in outs]
        if None in ends and len(set(ends)) >= 3:
            return token
    raise AssertionError("no token ends rows at different times: choose other weights")


@pytest.mark.parametrize("prefixes", [RAGGED, EVEN], ids=["ragged", "even"])
def test_the_loop_equals_generate_token_for_token(model, prefixes):
    eos = an_eos(model, prefixes, 30)
    expected = [library_greedy(model, prefix, 30, eos) for prefix in prefixes]
    assert len({len(out) for out in expected}) >= 3  # rows do end at different times
    assert decode_loop(model, prefixes, 30, eos) == expected


@pytest.mark.parametrize("share", [1, 2, 10**6], ids=["never", "half", "always"])
def test_when_rows_leave_the_batch_does_not_matter(model, monkeypatch, share):
    eos = an_eos(model, RAGGED, 30)
    expected = decode_loop(model, RAGGED, 30, eos)
    assert DROP_SHARE == 8
    monkeypatch.setattr("mgs.decoding.loop.DROP_SHARE", share)
    assert decode_loop(model, RAGGED, 30, eos) == expected


def test_many_copies_of_one_prefix_decode_alike(gpt2):
    eos = an_eos(gpt2, RAGGED, 20)
    outs = decode_loop(gpt2, [RAGGED[0]] * 20 + [RAGGED[2]], 20, eos)
    assert set(outs[:20]) == {library_greedy(gpt2, RAGGED[0], 20, eos)}


def test_the_cap_is_respected(gpt2):
    for cap in (1, 2, 7):
        outs = decode_loop(gpt2, RAGGED, cap, NO_EOS)
        assert {len(out) for out in outs} == {cap}


def test_the_loop_stops_when_all_rows_have_ended(gpt2):
    steps = []

    def all_end_at_the_third(logits, rows, position):
        steps.append(position)
        scores = torch.zeros_like(logits)
        scores[:, 0 if position == 2 else 17] = 1
        return scores

    assert decode_loop(gpt2, RAGGED, 50, 0, all_end_at_the_third) == [(17, 17, 0)] * 6
    assert steps == [0, 1, 2]


def test_processed_scores_see_the_rows_that_are_left(gpt2):
    """Row r ends after r + 1 tokens; the numbers handed to the processor are those of the batch."""
    seen = []

    def row_ends_at_its_number(logits, rows, position):
        seen.append(rows.tolist())
        scores = torch.zeros_like(logits)
        scores[:, 17] = 1
        scores[rows == position, 0] = 2
        return scores

    assert decode_loop(gpt2, RAGGED, 50, 0, row_ends_at_its_number) == [(17,) * row + (0,) for row in range(6)]
    assert seen == [list(range(first, 6)) for first in range(6)]


@pytest.mark.parametrize(
    ("tokens", "cut"),
    [([3, 0, 4, 0], (3, 0)), ([0, 0], (0,)), ([3, 4], (3, 4)), ([], ())],
)
def test_a_sequence_ends_at_its_first_eos(tokens, cut):
    assert ended_at(tokens, 0) == cut
