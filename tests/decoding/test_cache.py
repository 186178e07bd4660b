import pytest
import torch
from transformers import DynamicCache, GPT2Config, LlamaConfig, MistralConfig, T5Config
from transformers.cache_utils import DynamicLayer

from mgs.decoding.cache import GrowingLayer, growing_cache, supports_loop


def states(generator, rows, length):
    return torch.randn(2, rows, 3, length, 4, generator=generator).unbind()  # keys, values: rows, heads, length, width


@pytest.mark.parametrize("first", [1, 10, 63, 64, 65, 100])
def test_many_updates_equal_concatenation(first):
    """Across several doublings of the buffer, for prefixes around its first size."""
    generator = torch.Generator().manual_seed(first)
    layer, keys, values = GrowingLayer(), [], []
    for length in [first] + [1] * 200 + [5, 1]:
        k, v = states(generator, 2, length)
        keys.append(k)
        values.append(v)
        returned = layer.update(k, v)
    assert torch.equal(returned[0], torch.cat(keys, dim=-2))
    assert torch.equal(returned[1], torch.cat(values, dim=-2))
    assert layer.get_seq_length() == first + 206


def test_selecting_rows_keeps_theirs_and_goes_on():
    """Against the library's own layer, with rows leaving before, at and after a doubling."""
    generator = torch.Generator().manual_seed(0)
    ours, theirs = GrowingLayer(), DynamicLayer()
    rows = 8
    for step in range(150):
        new = states(generator, rows, 7 if step == 0 else 1)
        for mine, reference in zip(ours.update(*new), theirs.update(*new), strict=True):
            assert torch.equal(mine, reference)
        if step in (3, 56, 57, 58, 120):
            kept = torch.arange(rows)[torch.arange(rows) != 1].flip(0)
            ours.batch_select_indices(kept)
            theirs.batch_select_indices(kept)
            rows -= 1
    assert rows == 3


def test_reordered_and_repeated_rows_go_on_as_in_the_library():
    generator = torch.Generator().manual_seed(0)
    ours, theirs = GrowingLayer(), DynamicLayer()
    for step in range(6):
        new = states(generator, 3 if step < 4 else 6, 2)
        for mine, reference in zip(ours.update(*new), theirs.update(*new), strict=True):
            assert torch.equal(mine, reference)
        for layer in (ours, theirs):
            layer.reorder_cache(torch.arange(len(new[0])).flip(0))
            if step == 3:
                layer.batch_repeat_interleave(2)


def test_most_steps_copy_nothing():
    generator = torch.Generator().manual_seed(0)
    layer = GrowingLayer()
    buffers = {layer.update(*states(generator, 1, 1))[0].data_ptr() for _ in range(300)}
    assert len(buffers) <= 4  # 64, 130, 262, 526 columns


def test_models_that_keep_all_keys_and_values_run_in_the_loop(gpt2, llama):
    assert supports_loop(gpt2)
    assert supports_loop(llama)
    assert isinstance(growing_cache(GPT2Config()), DynamicCache)
    assert len(growing_cache(LlamaConfig(num_hidden_layers=3)).layers) == 3


def test_other_models_do_not():
    class Model(torch.nn.Module):
        def __init__(self, config=None):
            super().__init__()
            if config is not None:
                self.config = config

    assert not supports_loop(Model(MistralConfig(sliding_window=16, num_hidden_layers=2)))
    assert not supports_loop(Model(T5Config()))
    assert not supports_loop(Model())
