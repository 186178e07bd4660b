"""A tokenizer of twelve words and a tiny GPT-2 with weights large enough that its output varies."""

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from mgs.types import Batch, Example

WORDS = ("<eos>", *"abcdefghijk")


@pytest.fixture(scope="session")
def words():
    vocabulary = {word: number for number, word in enumerate(WORDS)}
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WordLevel(vocabulary, unk_token="<eos>")), eos_token="<eos>", pad_token="<eos>"
    )


@pytest.fixture
def gpt2():
    """Freshly made for each test, always with the same weights."""
    config = GPT2Config(
        vocab_size=len(WORDS),
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
