"""What tests share: small tokenizers and models, made here, so that nothing is downloaded."""

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import itertools

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from mgs.models import new_model, train_tokenizer

torch.set_num_threads(1)  # the models are too small for more to pay, and machines that test are busy

SUBJECTS = ("the cat", "a small dog", "my old neighbour", "the captain of the ship", "our teacher", "one of the girls")
VERBS = ("sat on", "looked at", "painted", "slowly walked around", "never forgot", "wrote a song about")
OBJECTS = ("the red mat", "an empty house", "the river in winter", "two yellow birds", "every page of the book")
ENDINGS = (".", " and went home.", " before the rain came back.")


@pytest.fixture(scope="session")
def sentences():
    """540 different English sentences in a fixed order."""
    parts = itertools.product(SUBJECTS, VERBS, OBJECTS, ENDINGS)
    return [f"{subject} {verb} {thing}{ending}".capitalize() for subject, verb, thing, ending in parts]


@pytest.fixture(scope="session")
def tokenizer(sentences):
    """A byte-level BPE of 400 types."""
    return train_tokenizer(sentences, 400)


@pytest.fixture(scope="session")
def word_tokenizer():
    """One token a word, so that counts can be made by hand: ⟨eos⟩ is 0, `a` is 1, ..., `z` is 26."""
    vocabulary = {"<eos>": 0} | {letter: i for i, letter in enumerate("abcdefghijklmnopqrstuvwxyz", start=1)}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="<eos>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<eos>", pad_token="<eos>", unk_token="<eos>")


def sharpen(model, factor):
    """Scale random weights up, so that the model is sure of something and different inputs give different outputs."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(factor)
    return model.eval()


@pytest.fixture(scope="session")
def gpt2(tokenizer):
    """A GPT-2 of two layers. Shared by all tests: copy it before changing it."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return sharpen(new_model("tiny", tokenizer), 8)


@pytest.fixture(scope="session")
def llama(tokenizer):
    """A Llama of two layers with a window of 64 tokens. Shared by all tests: copy it before changing it."""
    eos = tokenizer.eos_token_id
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        bos_token_id=eos,
        eos_token_id=eos,
        pad_token_id=eos,
    )
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return sharpen(LlamaForCausalLM(config), 8)


@pytest.fixture(params=["gpt2", "llama"])
def model(request):
    """Each of the small models in turn."""
    return request.getfixturevalue(request.param)
