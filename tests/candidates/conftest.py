"""A GPT-2 of twelve words, with weights large enough that its output varies."""

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from mgs.types import Batch, Example

VOCABULARY = 12  # of the shared tokenizer's 27 words, the first twelve: ⟨eos⟩ and `a` to `k`


@pytest.fixture
def gpt2():
    """Freshly made for each test, always with the same weights."""
    config = GPT2Config(
        vocab_size=VOCABULARY,
        n_positions=32,
        n_embd=8,
        n_layer=2,
        n_head=2,
        initializer_range=0.6,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=0,
    )
    with torch.random.fork_rng():
        torch.manual_seed(5)
        return GPT2LMHeadModel(config)


@pytest.fixture
def batch():
    return Batch(
        [
            Example((1, 2, 3), (4, 5, 6, 7, 8, 9, 0), {"topic": "first"}),
            Example((3, 4), (1, 2, 0), {"topic": "second", "rare": 1}),
            Example((7, 7, 8, 9), (10, 11, 3, 2, 0), {"topic": "third"}),
        ]
    )


@pytest.fixture
def direction():
    """A direction over the searched parameters of a model, random and of a given size."""

    def make(model, seed=0, size=0.3):
        generator = torch.Generator().manual_seed(seed)
        return {
            n: size * torch.randn(p.shape, generator=generator) for n, p in model.named_parameters() if p.requires_grad
        }

    return make
