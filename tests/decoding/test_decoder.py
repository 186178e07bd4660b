import copy
import math
from collections import Counter

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import GenerationConfig

from mgs.decoding import Decoder, decoder, row_keys, training_length
from mgs.errors import UserError

PREFIXES = [(5, 6, 7), (300, 2), (11, 12, 13, 14, 15, 16), (9,), (120, 121, 122), (40, 41)]
GREEDY, SAMPLE = Decoder(), Decoder(sample=True)
NO_EOS = 399


def library(model, prefixes, max_new_tokens, eos, **options):
    """`generate` on left-padded prefixes, each continuation cut after its ⟨eos⟩."""
    longest = max(map(len, prefixes))
    ids = torch.tensor([[eos] * (longest - len(p)) + list(p) for p in prefixes])
    mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prefixes])
    options = {"do_sample": False, "max_new_tokens": max_new_tokens, "eos_token_id": eos, "pad_token_id": eos} | options
    rows = model.generate(ids, attention_mask=mask, **options)[:, longest:].tolist()
    return [tuple(row[: row.index(eos) + 1] if eos in row else row) for row in rows]


def test_greedy_equals_generate(model, an_eos):
    eos = an_eos(library(model, PREFIXES, 25, NO_EOS))
    assert GREEDY(model, PREFIXES, 25, eos) == library(model, PREFIXES, 25, eos)


@pytest.mark.parametrize("beams", [2, 4])
def test_beam_search_equals_generate(model, beams, an_eos):
    eos = an_eos(GREEDY(model, PREFIXES, 15, NO_EOS))
    expected = library(model, PREFIXES, 15, eos, num_beams=beams)
    assert Decoder(beams=beams)(model, PREFIXES, 15, eos) == expected
    assert expected != GREEDY(model, PREFIXES, 15, eos)  # searching does change something


@pytest.mark.parametrize("options", ["", ",temperature=3.0", ",top_k=3,temperature=4.0", ",top_p=0.8,temperature=3.0"])
def test_sampling_in_the_loop_equals_sampling_through_generate(model, options, an_eos):
    sampler = Decoder.parse("sample" + options)
    eos = an_eos(sampler(model, PREFIXES, 20, NO_EOS, noise=(4, 2)))
    fast = sampler(model, PREFIXES, 20, eos, noise=(4, 2))
    assert fast == sampler.generate(model, PREFIXES, 20, eos, row_keys(range(len(PREFIXES)), 4, 2))
    assert fast != sampler(model, PREFIXES, 20, eos, noise=(4, 3))
    assert fast == sampler(model, PREFIXES, 20, eos, noise=(4, 2))


def test_sampling_from_the_best_token_is_greedy(model):
    assert Decoder(sample=True, top_k=1)(model, PREFIXES, 20, NO_EOS, (9,)) == GREEDY(model, PREFIXES, 20, NO_EOS)


def filtered(logits, temperature, top_k, top_p):
    """The distribution by hand: the best `top_k` tokens, of those the fewest that hold `top_p` of the mass."""
    best = sorted(((value / temperature, token) for token, value in enumerate(logits)), reverse=True)[: top_k or None]
    weights = [math.exp(value - best[0][0]) for value, _ in best]
    kept, mass = [], 0.0
    for weight, (_, token) in zip(weights, best, strict=True):
        if mass >= top_p * sum(weights):
            break
        kept.append((token, weight))
        mass += weight
    return {token: weight / mass for token, weight in kept}


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p"), [(2.0, 5, 1.0), (1.0, 0, 0.6), (3.0, 8, 0.7), (0.5, 0, 0.7)]
)
def test_first_tokens_are_distributed_as_the_model_and_the_options_say(llama, temperature, top_k, top_p):
    prefix, num_draws = (5, 6, 7), 5000
    sampler = Decoder(sample=True, temperature=temperature, top_k=top_k, top_p=top_p)
    counts = Counter(out[0] for out in sampler(llama, [prefix] * num_draws, 1, NO_EOS))
    with torch.no_grad():
        expected = filtered(llama(torch.tensor([prefix])).logits[0, -1].tolist(), temperature, top_k, top_p)
    assert 2 <= len(expected) < 100
    assert set(counts) <= set(expected)
    chi_square = sum((counts[t] - num_draws * p) ** 2 / max(1, num_draws * p) for t, p in expected.items())
    degrees = len(expected) - 1
    assert chi_square < degrees + 4 * math.sqrt(2 * degrees) + 8  # mean and deviation of chi-square, with room


def test_a_rows_noise_does_not_depend_on_the_rest_of_the_batch(gpt2):
    together = SAMPLE(gpt2, PREFIXES, 20, NO_EOS, noise=(1,))
    assert SAMPLE(gpt2, PREFIXES[:2], 20, NO_EOS, noise=(1,)) == together[:2]
    others = [(77,), (78, 79), *PREFIXES[2:]]
    assert SAMPLE(gpt2, others, 20, NO_EOS, noise=(1,))[2:] == together[2:]
    twice = SAMPLE(gpt2, [PREFIXES[0]] * 2, 20, NO_EOS, noise=(1,))
    assert twice[0] != twice[1]


@pytest.mark.parametrize("kind", ["greedy", "sample", "beam-3"])
def test_cutting_a_large_batch_into_pieces_changes_nothing(gpt2, monkeypatch, kind):
    chosen = Decoder.parse(kind)
    whole = chosen(gpt2, PREFIXES, 12, NO_EOS, noise=(8,))
    monkeypatch.setattr(decoder, "ROWS_AT_ONCE", {"cpu": 4})
    assert chosen(gpt2, PREFIXES, 12, NO_EOS, noise=(8,)) == whole


@pytest.mark.parametrize("kind", ["greedy", "sample", "beam-2"])
def test_the_cap_and_the_models_window_are_respected(llama, kind):
    chosen = Decoder.parse(kind)
    assert {len(out) for out in chosen(llama, PREFIXES, 5, NO_EOS)} == {5}
    long = [(7,) * 58, (8, 9), (8,) * 30, (9, 10)]
    together = chosen(llama, long, 500, NO_EOS)
    assert [len(out) for out in together] == [6, 62, 34, 62]  # a window of 64


@pytest.mark.parametrize("kind", ["greedy", "beam-2"])
def test_a_long_prefix_takes_no_room_from_others(model, kind):
    """Learned positions have no place beyond the window; rows that would need one wait for the others."""
    chosen, size = Decoder.parse(kind), model.config.max_position_embeddings
    long = [(7,) * (size - 6), (8, 9) * 4, (8,) * (size - 20), (9, 10)]
    alone = [chosen(model, [prefix], 25, NO_EOS)[0] for prefix in long]
    assert chosen(model, long, 25, NO_EOS) == alone
    assert [len(row) for row in alone] == [6, 25, 20, 25]


@pytest.mark.parametrize("at_once", [1, 2, 64])
def test_a_cap_may_depend_on_the_prefix(gpt2, monkeypatch, at_once):
    monkeypatch.setitem(decoder.ROWS_AT_ONCE, "cpu", at_once)
    prefixes = [[1, 2, 3], [4], [5, 6]]
    whole = Decoder()(gpt2, prefixes, 9, NO_EOS)
    assert Decoder()(gpt2, prefixes, lambda prefix: 3 * len(prefix), NO_EOS) == [whole[0], whole[1][:3], whole[2][:6]]


@pytest.mark.parametrize("beams", [2, 5])
def test_beams_of_a_row_end_at_its_own_cap_whatever_the_others_may_have(model, beams, an_eos):
    chosen = Decoder(beams=beams)
    eos = an_eos(chosen(model, PREFIXES, 15, NO_EOS))
    caps = {prefix: 2 + 5 * (row % 4) for row, prefix in enumerate(PREFIXES)}
    alone = [chosen(model, [prefix], caps[prefix], eos)[0] for prefix in PREFIXES]
    assert chosen(model, PREFIXES, caps.__getitem__, eos) == alone
    longest = chosen(model, PREFIXES, max(caps.values()), eos)
    assert alone != [row[: caps[prefix]] for prefix, row in zip(PREFIXES, longest, strict=True)]


def test_no_room_in_the_window_and_no_new_tokens_are_errors(llama):
    with pytest.raises(UserError, match="prefix of 64 tokens leaves no room in the model's window of 64"):
        GREEDY(llama, [(7,) * 64], 5, NO_EOS)
    with pytest.raises(UserError, match="at least 1, got 0"):
        GREEDY(llama, [(7,)], 0, NO_EOS)


@pytest.mark.parametrize("kind", ["greedy", "sample", "beam-2"])
@pytest.mark.parametrize("training", [True, False])
def test_dropout_is_off_and_training_mode_is_restored(gpt2, kind, training):
    chosen, copied = Decoder.parse(kind), copy.deepcopy(gpt2).train(training)
    assert chosen(copied, PREFIXES, 10, NO_EOS) == chosen(gpt2, PREFIXES, 10, NO_EOS)
    assert {module.training for module in copied.modules()} == {training}


def test_training_mode_is_restored_after_an_exception(gpt2):
    copied = copy.deepcopy(gpt2).train()
    with pytest.raises(IndexError):
        GREEDY(copied, [(10_000,)], 5, NO_EOS)
    assert copied.training


LEAKING = {
    "repetition_penalty": 3.0,
    "no_repeat_ngram_size": 1,
    "encoder_repetition_penalty": 3.0,
    "encoder_no_repeat_ngram_size": 1,
    "length_penalty": 5.0,
    "min_new_tokens": 9,
    "early_stopping": True,
    "forced_eos_token_id": NO_EOS - 1,
    "suppress_tokens": list(range(1, 300)),
    "begin_suppress_tokens": list(range(1, 300)),
    "bad_words_ids": [[token] for token in range(1, 300)],
    "sequence_bias": [[[token], -1e4] for token in range(1, 300)],
    "guidance_scale": 3.0,
    "exponential_decay_length_penalty": (1, 3.0),
    "max_time": 1e-9,
    "num_return_sequences": 2,
    "return_dict_in_generate": True,
}


@pytest.fixture
def with_settings(gpt2):
    """The model with settings of its own, all at once or one of them."""
    copied = copy.deepcopy(gpt2)

    def make(**settings):
        copied.generation_config = GenerationConfig()
        for name, value in settings.items():
            setattr(copied.generation_config, name, value)
        return copied

    return make


@pytest.mark.parametrize("kind", ["greedy", "sample", "beam-2"])
@pytest.mark.parametrize("setting", [*LEAKING, "all"])
def test_the_models_own_generation_settings_do_not_leak_in(gpt2, with_settings, kind, setting, an_eos):
    """A model may come with penalties of its own: a decoder does what its name says."""
    its_own = with_settings(**(LEAKING if setting == "all" else {setting: LEAKING[setting]}))
    chosen, keys, before = Decoder.parse(kind), row_keys(range(6), 0), its_own.generation_config
    eos = an_eos(chosen(gpt2, PREFIXES, 15, NO_EOS))
    expected = chosen(gpt2, PREFIXES, 15, eos)
    assert chosen(its_own, PREFIXES, 15, eos) == expected
    assert chosen.generate(its_own, PREFIXES, 15, eos, keys) == expected
    assert its_own.generation_config is before  # and they are still there


def test_the_models_own_generation_settings_are_put_back_after_an_exception(with_settings):
    its_own = with_settings(repetition_penalty=3.0)
    before = its_own.generation_config
    with pytest.raises(IndexError):
        Decoder(beams=2)(its_own, [(10_000,)], 5, NO_EOS)
    assert its_own.generation_config is before


def test_the_settings_of_a_model_inside_adapters_do_not_leak_in_either(gpt2, with_settings):
    expected = Decoder(beams=2)(gpt2, PREFIXES, 15, NO_EOS)
    its_own = with_settings(repetition_penalty=3.0)
    before = its_own.generation_config
    adapters = LoraConfig(r=2, target_modules=["c_attn"], fan_in_fan_out=True, task_type="CAUSAL_LM")
    adapted = get_peft_model(its_own, adapters)
    assert Decoder(beams=2)(adapted, PREFIXES, 15, NO_EOS) == expected  # new adapters change nothing
    assert its_own.generation_config is before


def test_rows_take_their_noise_from_the_keys_they_are_given(gpt2):
    keys = row_keys(range(len(PREFIXES)), 1)
    together = SAMPLE.rows(gpt2, PREFIXES, [20] * 6, NO_EOS, keys)
    assert together == SAMPLE(gpt2, PREFIXES, 20, NO_EOS, noise=(1,))
    order = [4, 0, 5, 2]
    others = [PREFIXES[i] for i in order]
    assert SAMPLE.rows(gpt2, others, [20] * 4, NO_EOS, keys[order]) == [together[i] for i in order]


def test_whoever_asks_hears_of_the_rows_that_leave(model, an_eos):
    keys = row_keys(range(len(PREFIXES)), 0)
    eos = an_eos(GREEDY(model, PREFIXES, 25, NO_EOS))
    heard = []
    outs = GREEDY.rows(model, PREFIXES, [25] * 6, eos, keys, left=lambda kept: heard.append(len(kept)))
    ends = sorted({len(out) for out in outs if out[-1] == eos})
    assert heard == [sum(out[-1] != eos or len(out) > end for out in outs) for end in ends]


@pytest.mark.parametrize("kind", ["greedy", "sample,top_k=5,temperature=3.0"])
def test_where_the_captured_loop_can_run_it_does(model, monkeypatch, kind):
    """It runs on GPUs; here it is told that it can, and does the same without capturing anything."""
    sizes = []

    class Watched(decoder.Loops):
        def decode(self, model, prefixes, *args):
            sizes.append(len(prefixes))
            return super().decode(model, prefixes, *args)

    chosen, copied = Decoder.parse(kind), copy.deepcopy(model).train()
    expected = chosen(model, PREFIXES, 20, NO_EOS, noise=(3,))
    monkeypatch.setattr(decoder, "supports_graph", lambda model: True)
    monkeypatch.setattr(decoder, "Loops", Watched)
    monkeypatch.setattr(decoder, "ROWS_AT_ONCE", {"cpu": 4})
    assert chosen(copied, PREFIXES, 20, NO_EOS, noise=(3,)) == expected
    assert sizes == [4, 2]
    assert copied.training


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("greedy", Decoder()),
        ("beam-5", Decoder(beams=5)),
        ("sample", Decoder(sample=True)),
        ("sample,top_k=40", Decoder(sample=True, top_k=40)),
        ("sample,temperature=0.7,top_k=40,top_p=0.9", Decoder(sample=True, temperature=0.7, top_k=40, top_p=0.9)),
    ],
)
def test_a_decoder_and_its_name_are_the_same(text, value):
    assert Decoder.parse(text) == value
    assert str(value) == text


def test_spaces_and_the_order_of_options_do_not_matter():
    assert str(Decoder.parse(" sample, top_p=0.9, top_k=4 ")) == "sample,top_k=4,top_p=0.9"
    assert Decoder.parse("beam-1") == Decoder.parse("greedy")


WRONG = {
    "greddy": r"unknown decoder 'greddy': did you mean 'greedy'\? \(allowed: greedy, beam-N, sample\)",
    "beam": r"unknown decoder 'beam': did you mean 'beam-N'",
    "beam-x": r"unknown decoder 'beam-x'",
    "beam-²": r"unknown decoder 'beam-²'",
    "beam-0": r"beams ≥ 1",
    "beam-5,top_k=4": r"decoder 'beam-5' takes no options, got 'top_k=4'",
    "greedy,top_k=4": r"decoder 'greedy' takes no options, got 'top_k=4'",
    "sample,topk=4": r"unknown option of decoder 'sample' 'topk': did you mean 'top_k'",
    "sample,top_k=many": r"option top_k needs a number, got 'many'",
    "sample,top_k=-1": r"top_k ≥ 0",
    "sample,top_p=0": r"0 < top_p ≤ 1",
    "sample,top_p=1.5": r"0 < top_p ≤ 1",
    "sample,temperature=0": r"temperature > 0",
    "sample,temperature=nan": r"temperature > 0",
}


@pytest.mark.parametrize(("text", "message"), WRONG.items(), ids=WRONG.keys())
def test_a_decoder_that_does_not_exist_is_an_error_that_says_what_does(text, message):
    with pytest.raises(UserError, match=message):
        Decoder.parse(text)


def test_beam_search_does_not_sample():
    with pytest.raises(UserError, match="beam search does not sample"):
        Decoder(beams=3, sample=True)


@pytest.mark.parametrize(("longest", "cap"), [(10, 13), (1, 1), (0, 1), (101, 131)])
def test_the_cap_in_training_is_a_third_more_than_the_longest_target(longest, cap):
    assert training_length(longest) == cap
