"""Models with an encoder: the prefix is a source, padded on the right, and the output begins by itself."""

import pytest
import torch
from transformers import BartConfig, BartForConditionalGeneration, MarianConfig, MarianMTModel

from mgs.decoding import Decoder, decoder, gumbel, row_keys
from mgs.decoding.decoder import caps_of

EOS, START, WINDOW = 0, 1, 24
SOURCES = [(5, 6, 7, 8, EOS), (9, EOS), (10, 11, 12, 13, 14, 15, 16, EOS), (30, 31, EOS)]
NO_EOS = 59
KEYS = row_keys(range(4), 3)


@pytest.fixture(scope="module", params=["marian", "bart"])
def translator(request):
    """Two layers of each, with random weights whose outputs differ from source to source."""
    config, make, seed = {
        "marian": (MarianConfig, MarianMTModel, 4),
        "bart": (BartConfig, BartForConditionalGeneration, 0),
    }[request.param]
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return make(
            config(
                vocab_size=60,
                d_model=16,
                encoder_layers=2,
                decoder_layers=2,
                encoder_attention_heads=2,
                decoder_attention_heads=2,
                encoder_ffn_dim=32,
                decoder_ffn_dim=32,
                max_position_embeddings=WINDOW,
                bos_token_id=2,
                eos_token_id=EOS,
                pad_token_id=START,
                decoder_start_token_id=START,
                init_std=0.3,
                scale_embedding=False,
            )
        ).eval()


@torch.no_grad()
def by_hand(model, source, cap, eos, key=None, temperature=1.0):
    """One source alone, nothing padded, nothing cached: the best token, or the best with the noise of its row."""
    out = []
    while len(out) < cap and eos not in out:
        ids = torch.tensor([[START, *out]])
        logits = model(input_ids=torch.tensor([source]), decoder_input_ids=ids, use_cache=False).logits[:, -1]
        if key is not None:
            logits = torch.log_softmax(logits / temperature, dim=-1) + gumbel(key.view(1), len(out), logits.shape[-1])
        out.append(int(logits.argmax()))
    return tuple(out)


def alone(chosen, model, cap, eos):
    """Each source as a batch of its own."""
    rows = zip(SOURCES, KEYS.split(1), strict=True)
    return [out for source, key in rows for out in chosen.rows(model, [source], [cap], eos, key)]


def test_greedy_search_is_that_of_each_source_alone(translator, an_eos):
    eos = an_eos([by_hand(translator, source, 12, NO_EOS) for source in SOURCES])
    expected = [by_hand(translator, source, 12, eos) for source in SOURCES]
    assert len(set(expected)) == 4  # the source does matter
    assert Decoder()(translator, SOURCES, 12, eos) == expected


@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_sampling_is_that_of_each_source_alone(translator, an_eos, temperature):
    sampler = Decoder(sample=True, temperature=temperature)
    rows = list(zip(SOURCES, KEYS, strict=True))
    eos = an_eos([by_hand(translator, source, 12, NO_EOS, key, temperature) for source, key in rows])
    expected = [by_hand(translator, source, 12, eos, key, temperature) for source, key in rows]
    assert sampler(translator, SOURCES, 12, eos, noise=(3,)) == expected
    assert sampler(translator, SOURCES, 12, eos, noise=(4,)) != expected


def test_sampling_from_the_best_token_is_greedy(translator):
    greedy = Decoder()(translator, SOURCES, 12, NO_EOS)
    assert Decoder(sample=True, top_k=1)(translator, SOURCES, 12, NO_EOS) == greedy


def test_beam_search_equals_generate_for_each_source_alone(translator, monkeypatch, an_eos):
    eos = an_eos(Decoder(beams=3)(translator, SOURCES, 12, NO_EOS))
    monkeypatch.setattr(translator.generation_config, "forced_eos_token_id", None)
    expected = []
    for source in SOURCES:
        ids = translator.generate(
            torch.tensor([source]), num_beams=3, do_sample=False, max_new_tokens=12, eos_token_id=eos, pad_token_id=eos
        )
        row = ids[0, 1:].tolist()
        expected.append(tuple(row[: row.index(eos) + 1] if eos in row else row))
    assert Decoder(beams=3)(translator, SOURCES, 12, eos) == expected


@pytest.mark.parametrize("kind", ["greedy", "sample", "sample,top_k=5", "sample,top_p=0.8", "beam-3"])
def test_sources_of_different_lengths_do_not_leak_into_each_other(translator, monkeypatch, kind):
    chosen = Decoder.parse(kind)
    expected = alone(chosen, translator, 12, NO_EOS)
    assert chosen.rows(translator, SOURCES, [12] * 4, NO_EOS, KEYS) == expected
    assert chosen.rows(translator, SOURCES[::-1], [12] * 4, NO_EOS, KEYS.flip(0)) == expected[::-1]
    monkeypatch.setattr(decoder, "ROWS_AT_ONCE", {"cpu": 3 * chosen.beams})
    assert chosen(translator, SOURCES, 12, NO_EOS, noise=(3,)) == expected


@pytest.mark.parametrize("kind", ["greedy", "sample", "beam-2", "beam-5"])
def test_a_cap_may_depend_on_the_source(translator, kind, an_eos):
    chosen, caps = Decoder.parse(kind), [5, 2, 12, 3]
    for eos in (NO_EOS, an_eos(chosen(translator, SOURCES, 12, NO_EOS))):
        rows = zip(SOURCES, caps, KEYS.split(1), strict=True)
        expected = [chosen.rows(translator, [source], [cap], eos, key)[0] for source, cap, key in rows]
        assert chosen.rows(translator, SOURCES, caps, eos, KEYS) == expected


@pytest.mark.parametrize("kind", ["greedy", "sample", "beam-3"])
def test_a_row_cut_at_the_cap_does_not_look_as_if_it_had_ended(translator, kind):
    """Such models come with an ⟨eos⟩ that the library forces upon the last token."""
    own = translator.generation_config.forced_eos_token_id
    assert own is not None
    outs = Decoder.parse(kind)(translator, SOURCES, 6, NO_EOS)
    longer = Decoder.parse(kind)(translator, SOURCES, 7, NO_EOS)
    assert {len(out) for out in outs} == {6}
    assert not {out[-1] for out in outs} & {own, NO_EOS}
    if kind != "beam-3":
        assert outs == [out[:6] for out in longer]
    assert translator.generation_config.forced_eos_token_id == own


def test_the_window_is_the_outputs_own(translator):
    """A source takes nothing of the room of the output, which may fill the window."""
    long = [(7,) * WINDOW, (8, 9, EOS)]
    assert caps_of(translator, long, 10) == [10] * len(long)
    assert caps_of(translator, long, 500) == [WINDOW] * len(long)
    assert {len(out) for out in Decoder()(translator, long, 500, NO_EOS)} == {WINDOW}


def test_training_mode_is_restored(translator):
    """And dropout is off while decoding."""
    expected = Decoder()(translator, SOURCES, 12, NO_EOS)
    translator.train()
    try:
        assert Decoder()(translator, SOURCES, 12, NO_EOS) == expected
        assert {module.training for module in translator.modules()} == {True}
    finally:
        translator.eval()
