"""The loop of fixed size, uncaptured: what a GPU captures and replays does the same."""

import copy
from itertools import groupby

import pytest
import torch
import torch.nn.functional as F
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    BloomConfig,
    BloomForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    MarianConfig,
    MarianMTModel,
    MistralConfig,
    MistralForCausalLM,
)

from mgs.decoding import Decoder, agreement, fixed, graph, loop, row_keys
from mgs.decoding.agreement import agrees, supports_graph
from mgs.decoding.fixed import ATTENTION
from mgs.decoding.graph import KEPT_LOOPS, LOOK_EVERY, ROOM_STEP, FixedLoop, Loops
from mgs.decoding.loop import decode_loop

PREFIXES = [(5, 6, 7), (300, 2), (11, 12, 13, 14, 15, 16), (9,), (120, 121, 122), (40, 41)]
OTHERS = [(77,), (78, 79, 80, 81), (1, 2), (90, 91, 92), (250,), (13, 14)]
LONG = [tuple(range(20, 45)), (8,), (60, 61), tuple(range(100, 130)), (7, 7, 7), (310, 311)]
NO_EOS = 399
KEYS = row_keys(range(6), 0)


@pytest.mark.parametrize(
    "kind", ["greedy", "sample", "sample,temperature=3.0,top_k=5", "sample,temperature=3.0,top_p=0.8"]
)
def test_the_loop_equals_generate_token_for_token(model, an_eos, kind):
    """Prefixes of different lengths, rows that end at different times, more tokens than between two looks."""
    decoder, keys = Decoder.parse(kind), row_keys(range(6), 4, 2)
    eos = an_eos(decoder.generate(model, PREFIXES, 30, NO_EOS, keys))
    expected = decoder.generate(model, PREFIXES, 30, eos, keys)
    assert FixedLoop(model, 6, 36, eos, decoder.process())(model, PREFIXES, 30, keys) == expected
    assert Loops().decode(model, PREFIXES, 30, eos, keys, decoder.process(), None) == expected


@pytest.mark.parametrize("kind", ["greedy", "sample,temperature=3.0,top_k=20"])
@pytest.mark.parametrize("poison", [None, float("nan"), 1e4])
def test_a_kept_loop_remembers_nothing_of_the_batches_before(model, an_eos, kind, poison):
    """Prefixes, keys and caps change from run to run. What is left in the cache, poison included, is never read."""
    decoder, loops = Decoder.parse(kind), Loops()
    eos = an_eos(decoder.generate(model, PREFIXES, 25, NO_EOS, row_keys(range(6), 1)))
    runs = [(LONG, 34, 0), (PREFIXES, 25, 1), (OTHERS, 1, 1), (OTHERS, 20, 2), (PREFIXES, 25, 2), (PREFIXES, 25, 1)]
    used = set()
    for prefixes, cap, seed in runs:
        keys = row_keys(range(6), seed)
        expected = decoder.generate(model, prefixes, cap, eos, keys)
        assert loops.decode(model, prefixes, cap, eos, keys, decoder.process(), None) == expected
        (loop,) = loops._kept.values()
        used.add(loop)
        if poison is not None:
            for buffer in (buffer for layer in loop.cache.layers for buffer in layer.buffers):
                buffer.fill_(poison)
    assert len(used) == 1


def ends_at(last, steps):
    """A process under which all rows end at this position; notes the positions it is asked for."""

    def process(logits, keys, position):
        steps.append(int(position))
        scores = torch.zeros_like(logits)
        scores[:, 0 if position == last else 17] = 1
        return scores

    return process


@pytest.mark.parametrize(("last", "looks"), [(0, 0), (2, 1), (LOOK_EVERY, 1), (LOOK_EVERY + 1, 2)])
def test_the_loop_stops_when_it_sees_that_all_rows_have_ended(gpt2, last, looks):
    """It looks before the first step and then now and then."""
    steps = []
    loop = FixedLoop(gpt2, 6, 64, 0, ends_at(last, steps))
    assert loop(gpt2, PREFIXES, 50, KEYS) == [(17,) * last + (0,)] * 6
    assert steps == list(range(1 + looks * LOOK_EVERY))


def test_a_loop_that_stopped_early_starts_afresh(gpt2):
    loop = FixedLoop(gpt2, 6, 64, 0, ends_at(2, []))
    loop(gpt2, PREFIXES, 50, KEYS)
    loop.process = None
    assert loop(gpt2, OTHERS, 30, KEYS) == Decoder().generate(gpt2, OTHERS, 30, 0, KEYS)


@pytest.mark.parametrize("cap", [1, 2, LOOK_EVERY, LOOK_EVERY + 1, LOOK_EVERY + 2])
def test_the_cap_is_respected(gpt2, cap):
    assert Loops().decode(gpt2, PREFIXES, cap, NO_EOS, KEYS, None, None) == Decoder()(gpt2, PREFIXES, cap, NO_EOS)


def test_rows_beyond_the_window_wait_for_shorter_ones(gpt2):
    """Learned positions have no place there."""
    long = [(7,) * (gpt2.config.n_positions - 6), (8, 9)]
    first, second = Loops().decode(gpt2, long, 25, NO_EOS, KEYS[:2], None, None)
    assert (first[:6], second) == tuple(Decoder()(gpt2, long, 25, NO_EOS))


# -- rows that have ended leave ---------------------------------------------------------------------------------------

#: When each of 12 rows ends; 99 is never.
ENDS = [3, 20, 99, 3, 40, 5, 21, 99, 3, 3, 70, 22]
TWELVE = PREFIXES + OTHERS


def ending(sizes):
    """A process under which row i, known by its key, ends at ENDS[i] and goes on as the model says until then; notes
    how many rows it is asked about."""

    def process(logits, keys, position):
        sizes.append(len(keys))
        ends = torch.tensor(ENDS, device=keys.device)[keys] == position
        return torch.where(ends[:, None], F.one_hot(torch.tensor(NO_EOS), logits.shape[1]) * 1e9, logits)

    return process


def test_where_most_rows_have_ended_a_smaller_loop_goes_on(model, monkeypatch):
    for module in (graph, loop):  # 90 tokens are more than the window, which would stop positions
        monkeypatch.setattr(module, "window", lambda model: None)
    sizes, keys = [], torch.arange(12)
    fixed_loop = FixedLoop(model, 12, 128, NO_EOS, ending(sizes))
    expected = decode_loop(model, TWELVE, 90, NO_EOS, keys, ending([]))
    assert fixed_loop(model, TWELVE, 90, keys) == expected
    assert [len(row) for row in expected] == [min(end + 1, 90) for end in ENDS]
    # seen after 16 steps: 7 rows go on, then 4 (of 6), then 3: too many for half of 6
    assert [(size, len(list(run))) for size, run in groupby(sizes)] == [(12, 33), (6, 57)]
    assert fixed_loop(model, TWELVE, 90, keys) == expected  # once more in the same memory


def test_it_shrinks_as_far_as_it_can_and_only_where_enough_is_to_come(model, monkeypatch):
    monkeypatch.setattr(graph, "WORTH_SHRINKING", 2)
    monkeypatch.setitem(globals(), "ENDS", [2, 99, 2, 2, 2, 2, 99, 2, 2, 30, 2, 2])
    sizes, keys = [], torch.arange(12)
    loop = FixedLoop(model, 12, 128, NO_EOS, ending(sizes))
    expected = decode_loop(model, TWELVE, 90, NO_EOS, keys, ending([]))
    assert loop(model, TWELVE, 90, keys) == expected
    assert [size for size, _ in groupby(sizes)] == [12, 3]
    monkeypatch.setattr(graph, "WORTH_SHRINKING", 90)
    sizes.clear()
    assert loop(model, TWELVE, 90, keys) == expected
    assert set(sizes) == {12}


def test_candidates_keep_as_many_rows_each(model, monkeypatch):
    """Three of four rows: what ends in one candidate stays for another's sake."""
    monkeypatch.setattr(graph, "WORTH_SHRINKING", 2)
    monkeypatch.setitem(globals(), "ENDS", [2, 99, 2, 2, 2, 60, 99, 2, 2, 2, 2, 2])
    sizes, keys = [], torch.arange(12)
    loop = FixedLoop(model, 12, 128, NO_EOS, ending(sizes), groups=3)
    assert loop(model, TWELVE, 90, keys) == decode_loop(model, TWELVE, 90, NO_EOS, keys, ending([]))
    assert [size for size, _ in groupby(sizes)] == [12, 6, 3]
    assert loop.smaller[6].smaller[3].state.out.data_ptr() == loop.state.out.data_ptr()


def test_which_rows_are_kept(gpt2):
    loop = FixedLoop(gpt2, 12, 64, 0, None, groups=3)
    ended = torch.tensor([1, 0, 1, 1, 0, 1, 0, 1, 1, 1, 1, 1], dtype=torch.bool)
    assert loop._kept(ended).tolist() == [0, 1, 4, 6, 8, 9]
    ended[4] = True
    assert loop._kept(ended).tolist() == [1, 6, 8]
    ended[5:8] = False
    assert loop._kept(ended) is None


@pytest.fixture
def counted(monkeypatch):
    """Loops that decode nothing, and a way to ask for a batch that says which loop (by number) did it."""

    class Counted:
        made = 0

        def __init__(self, *args):
            Counted.made += 1
            self.number = Counted.made

        def __call__(self, model, prefixes, max_new_tokens, keys_B):
            return self.number

    monkeypatch.setattr(graph, "FixedLoop", Counted)
    loops = Loops()

    def decode(binding, rows=2, length=3, cap=10, eos=0):
        return loops.decode(None, [(1,) * length] * rows, cap, eos, KEYS[:rows], None, binding)

    decode.loops = loops
    return decode


def test_a_loop_is_kept_for_the_same_binding_and_size(counted):
    assert counted("θ") == counted("θ") == 1
    assert counted("θ", length=5, cap=ROOM_STEP - 5) == 1  # other prefixes and another cap, in the same room
    assert counted("another θ") == 2
    assert counted("θ", rows=3) == 3
    assert counted("θ", eos=4) == 4
    assert counted("θ") == 1


def test_a_batch_that_needs_more_room_gets_another_loop(counted):
    assert counted("θ", length=5, cap=ROOM_STEP - 4) == 1
    assert counted("θ", length=5, cap=ROOM_STEP - 5) == 2
    assert counted("θ", length=5, cap=2 * ROOM_STEP - 5) == 1


def test_only_the_loops_used_last_are_kept(counted):
    for number in range(KEPT_LOOPS):
        assert counted(number) == number + 1
    assert counted(0) == 1  # now 1 is the one not used for longest
    assert counted("new") == KEPT_LOOPS + 1
    assert len(counted.loops._kept) == KEPT_LOOPS
    assert [counted(number) for number in (0, *range(2, KEPT_LOOPS))] == [1, *range(3, KEPT_LOOPS + 1)]
    assert counted(1) == KEPT_LOOPS + 2


def test_loops_can_be_given_up(counted):
    counted("θ")
    counted.loops.clear()
    assert counted("θ") == 2


class Fault(Exception):
    pass


@pytest.mark.parametrize("when", [0, 1, 3], ids=["prefixes", "first step", "later"])
def test_a_failure_leaves_everything_as_it_was(model, when):
    before, loops, failing = model.config._attn_implementation, Loops(), []

    def process(logits, keys, position):
        if failing and position == when:
            raise Fault
        return logits

    def decode():
        return loops.decode(model, PREFIXES, 10, NO_EOS, KEYS, process, None)

    expected = decode()
    (loop,) = loops._kept.values()
    assert model.config._attn_implementation == before != ATTENTION
    failing.append(True)
    with pytest.raises(Fault):
        decode()
    assert model.config._attn_implementation == before
    assert fixed._STATE is None
    assert not loop.state.stepping
    assert not loops._kept  # what failed half-way, possibly while being captured, is not used again
    failing.clear()
    assert decode() == Decoder()(model, PREFIXES, 10, NO_EOS) == expected
    assert loop not in loops._kept.values()


def test_a_loop_may_run_inside_another(gpt2, llama):
    """The one outside goes on with its own cache."""
    inner = Loops()

    def process(logits, keys, position):
        inner.decode(llama, OTHERS, 3, NO_EOS, KEYS, None, None)
        return logits

    assert Loops().decode(gpt2, PREFIXES, 5, NO_EOS, KEYS, process, None) == Decoder()(gpt2, PREFIXES, 5, NO_EOS)
    assert fixed._STATE is None


def test_outside_a_loop_the_attention_refuses(gpt2):
    query = torch.zeros(1, 2, 1, 4)
    with pytest.raises(NotImplementedError, match="plain transformer"):
        fixed.cached_attention(gpt2, query, query, query, None)
    copied = copy.deepcopy(gpt2)
    copied.config._attn_implementation = ATTENTION
    with pytest.raises(NotImplementedError, match="plain transformer"):
        copied(torch.tensor([[1, 2]]))


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("length", [0, 4, 8])
def test_attention_reads_from_a_rows_beginning_to_its_new_token(kv_heads, length):
    """Row by row, over the positions that are there alone; all others hold what nobody may read."""
    generator = torch.Generator().manual_seed(length)
    starts = torch.tensor([0, length // 2, length], dtype=torch.int32)
    query = torch.randn(3, 4, 1, 8, generator=generator)
    new = torch.randn(2, 3, kv_heads, 1, 8, generator=generator)
    cache = torch.full((2, 3, kv_heads, 9, 8), float("nan"))
    for row, start in enumerate(starts.tolist()):
        cache[:, row, :, start:length] = torch.randn(2, kv_heads, length - start, 8, generator=generator)
    after = cache.clone()
    after[..., length : length + 1, :] = new
    out = fixed._attend(query, *new, *cache, starts, torch.tensor(length, dtype=torch.int32), 0.3)
    for row, start in enumerate(starts.tolist()):
        keys, values = after[:, row, :, start : length + 1].repeat_interleave(4 // kv_heads, dim=1)
        expected = F.scaled_dot_product_attention(query[row], keys, values, scale=0.3)
        torch.testing.assert_close(out[row], expected.transpose(0, 1))
    torch.testing.assert_close(cache, after, rtol=0, atol=0, equal_nan=True)


SMALL = {
    "vocab_size": 50,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 4,
    "max_position_embeddings": 64,
    "initializer_range": 0.5,
}


def capped():
    """Its attention cuts scores off softly."""
    return Gemma2ForCausalLM(Gemma2Config(**SMALL))


def sliding():
    """Its attention reads the last three tokens."""
    return MistralForCausalLM(MistralConfig(**SMALL, sliding_window=3))


def own_attention(**options):
    """Its attention is its own, with biases by distance: it never calls the one of the loop."""
    return BloomForCausalLM(
        BloomConfig(vocab_size=50, hidden_size=16, n_layer=2, n_head=2, initializer_range=0.5, **options)
    )


@pytest.mark.parametrize("training", [True, False])
def test_the_loop_agrees_with_models_it_can_do(model, training):
    copied = copy.deepcopy(model).train(training)
    before = copied.config._attn_implementation
    assert agrees(copied)
    assert {module.training for module in copied.modules()} == {training}
    assert copied.config._attn_implementation == before


@pytest.mark.parametrize("make", [capped, sliding, own_attention])
def test_the_loop_does_not_agree_with_models_it_cannot_do(make):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        made = make().train()
    before = made.config._attn_implementation
    assert not agrees(made)
    assert made.training
    assert made.config._attn_implementation == before
    assert fixed._STATE is None


@pytest.mark.parametrize("token", [0, 1, 17])
def test_a_model_is_put_to_the_test_whatever_token_it_likes_best(token):
    """Also one that it would end with: a first token comes from the prefix alone and says nothing about the cache."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        made = own_attention(tie_word_embeddings=False)
    with torch.no_grad():
        made.transformer.ln_f.bias.fill_(5.0)
        made.lm_head.weight[token] = 5.0
    assert not agrees(made)


def forgets_padding(query, new_keys, new_values, keys, values, starts, length, scaling):
    return ATTEND(query, new_keys, new_values, keys, values, torch.zeros_like(starts), length, scaling)


def forgets_the_new_token(query, new_keys, new_values, keys, values, starts, length, scaling):
    return ATTEND(query, new_keys * 0, new_values * 0, keys, values, starts, length, scaling)


def forgets_the_scale(query, new_keys, new_values, keys, values, starts, length, scaling):
    return ATTEND(query, new_keys, new_values, keys, values, starts, length, 1.0)


def fails(*args):
    raise RuntimeError("no kernel for this")


ATTEND = fixed._attend


@pytest.mark.parametrize("wrong", [forgets_padding, forgets_the_new_token, forgets_the_scale, fails])
def test_a_wrong_attention_is_noticed(model, monkeypatch, wrong):
    before = model.config._attn_implementation
    monkeypatch.setattr(fixed, "_attend", wrong)
    assert not agrees(model)
    assert model.config._attn_implementation == before
    assert fixed._STATE is None


def test_without_a_gpu_there_is_nothing_to_capture(model):
    assert not supports_graph(model)


def test_with_one_a_model_is_tried_once(gpt2, monkeypatch):
    tried = []
    monkeypatch.setattr(fixed.kernels, "usable", lambda device: True)
    monkeypatch.setattr(agreement, "agrees", lambda model: bool(tried.append(model)) or model is good)
    good, bad, other = copy.deepcopy(gpt2), copy.deepcopy(gpt2), sliding()
    assert [supports_graph(model) for model in (good, bad, other) * 2] == [True, False, False] * 2
    assert tried == [good, bad]  # the cache alone says that the other cannot


@pytest.mark.skipif(
    not (torch.cuda.is_available() and fixed.kernels.usable(torch.device("cuda"))), reason="no GPU with Triton"
)
@pytest.mark.parametrize("kind", ["greedy", "sample,temperature=3.0,top_k=20", "sample,temperature=3.0,top_p=0.8"])
def test_on_a_gpu_what_is_captured_and_replayed_decodes_the_same(model, kind):
    decoder, loops, moved = Decoder.parse(kind), Loops(), copy.deepcopy(model).to("cuda")
    assert supports_graph(moved)
    for prefixes, cap, seed in [(PREFIXES, 25, 1), (LONG, 34, 0), (OTHERS, 1, 1), (OTHERS, 20, 2), (PREFIXES, 25, 1)]:
        keys = row_keys(range(6), seed).to("cuda")
        expected = decoder.generate(moved, prefixes, cap, NO_EOS, keys)
        assert loops.decode(moved, prefixes, cap, NO_EOS, keys, decoder.process(), None) == expected
    (loop,) = loops._kept.values()
    assert loop.graph is not None


@pytest.mark.skipif(
    not (torch.cuda.is_available() and fixed.kernels.usable(torch.device("cuda"))), reason="no GPU with Triton"
)
def test_on_a_gpu_smaller_loops_are_captured_too(model):
    moved, keys = copy.deepcopy(model).to("cuda"), torch.arange(12, device="cuda")
    ends = torch.tensor(ENDS, device="cuda")

    def process(logits, keys, position):
        last = torch.arange(logits.shape[1], device="cuda") == NO_EOS
        return torch.where((ends[keys] == position)[:, None] & last, 1e9, logits)

    loop = FixedLoop(moved, 12, 128, NO_EOS, process)
    expected = decode_loop(moved, TWELVE, 90, NO_EOS, keys, process)
    for _ in range(2):
        assert loop(moved, TWELVE, 90, keys) == expected
    assert loop.smaller[6].graph is not None


def translator(kind, **more):
    """A tiny encoder-decoder model whose weights are large enough for its outputs to vary."""
    sides = {"layers": 2, "ffn_dim": 24, "attention_heads": 2}
    sizes = {f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in sides.items()}
    tokens = {"vocab_size": 60, "pad_token_id": 2, "eos_token_id": 0, "decoder_start_token_id": 2}
    with torch.random.fork_rng():
        torch.manual_seed(1)
        config, model = {"marian": (MarianConfig, MarianMTModel), "bart": (BartConfig, BartForConditionalGeneration)}[
            kind
        ]
        made = model(config(d_model=16, max_position_embeddings=80, **sizes, **tokens, **more)).eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.mul_(12)  # so that what is decoded depends on the source
    return made


@pytest.mark.parametrize("kind", ["marian", "bart"])
@pytest.mark.parametrize("decoder", [Decoder(), Decoder(sample=True, temperature=3.0)], ids=str)
def test_an_encoder_decoder_model_is_decoded_as_by_generate_also_in_a_kept_loop(kind, decoder):
    model, loops = translator(kind), Loops()
    assert agrees(model)
    for shift, cap in ((0, 12), (5, 12), (0, 7)):  # other sources, of other lengths, in the same buffers
        sources = [tuple(range(3 + shift, 4 + shift + num)) for num in (5, 1, 9 - shift)]
        keys = row_keys(range(3), shift)
        found = loops.decode(model, sources, cap, 0, keys, decoder.process(), str(decoder))
        assert found == decoder.generate(model, sources, cap, 0, keys)
    assert len(loops._kept) == 1
    assert len(set(found)) > 1
