"""Small models, with weights large enough that their outputs vary, and their candidates as deep copies."""

import copy

import pytest
import torch
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    BlenderbotConfig,
    BlenderbotForConditionalGeneration,
    CohereConfig,
    CohereForCausalLM,
    FalconConfig,
    FalconForCausalLM,
    GemmaConfig,
    GemmaForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MambaConfig,
    MambaForCausalLM,
    MarianConfig,
    MarianMTModel,
    MixtralConfig,
    MixtralForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
)

from mgs.candidates import Task
from mgs.costs import Cost
from mgs.decoding import Decoder, row_keys
from mgs.models import searched_parameters
from mgs.search import Proposal, ProposalForm
from mgs.search.directions import normal
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


# -- models of every kind, and candidates the slow and certain way ---------------------------------------------------

WORDS = 24  # of the shared tokenizer's 27
CAUSAL = {"vocab_size": WORDS, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
TRANSLATING = {
    "vocab_size": WORDS,
    "d_model": 16,
    "encoder_layers": 1,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24,
    "max_position_embeddings": 32,
    "pad_token_id": 23,
    "bos_token_id": 22,
    "eos_token_id": 0,
    "decoder_start_token_id": 23,
    "forced_eos_token_id": None,
}


def _gpt2():
    return GPT2LMHeadModel(GPT2Config(n_embd=16, n_layer=2, n_head=2, n_positions=32, **CAUSAL))


def _llama():
    return LlamaForCausalLM(
        LlamaConfig(
            hidden_size=16,
            intermediate_size=24,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=32,
            tie_word_embeddings=True,
            **CAUSAL,
        )
    )


LAYERS = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 32}


def _gemma():
    sizes = {"intermediate_size": 24, "num_key_value_heads": 2, "head_dim": 4}
    return GemmaForCausalLM(GemmaConfig(**LAYERS, **sizes, **CAUSAL))


def _mixtral():
    """Of experts that see the rows they are sent, no matter whose those are."""
    sizes = {"intermediate_size": 24, "num_key_value_heads": 2, "num_local_experts": 3}
    return MixtralForCausalLM(MixtralConfig(**LAYERS, **sizes, **CAUSAL))


def _t5():
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 2, "num_heads": 2, "vocab_size": WORDS}
    return T5ForConditionalGeneration(T5Config(pad_token_id=23, eos_token_id=0, decoder_start_token_id=23, **sizes))


def _lora():
    """Adapters on GPT-2, as `peft` makes them: the rest is frozen."""
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(
        r=2, target_modules=["c_attn", "c_fc"], fan_in_fan_out=True, task_type="CAUSAL_LM", lora_dropout=0.0
    )
    return peft.get_peft_model(_varied(_gpt2()), config)


MAKERS = {
    "gpt2": _gpt2,
    "llama": _llama,
    "bart": lambda: BartForConditionalGeneration(BartConfig(**TRANSLATING)),
    "marian": lambda: MarianMTModel(MarianConfig(scale_embedding=True, **TRANSLATING)),
    # What these do with parameters apart from rows: norms that add 1 or cast, matrices turned round, positions and
    # biases looked up by indices that all rows share.
    "gemma": _gemma,
    "cohere": lambda: CohereForCausalLM(CohereConfig(intermediate_size=24, num_key_value_heads=2, **LAYERS, **CAUSAL)),
    "falcon": lambda: FalconForCausalLM(FalconConfig(**LAYERS, **CAUSAL)),
    "blenderbot": lambda: BlenderbotForConditionalGeneration(BlenderbotConfig(**TRANSLATING)),
    "t5": _t5,
    "mixtral": _mixtral,
    "mamba": lambda: MambaForCausalLM(MambaConfig(hidden_size=16, num_hidden_layers=1, state_size=4, **CAUSAL)),
    "lora": _lora,
}


@torch.no_grad()
def _varied(model):
    """Weights large enough, and biases and norms varied enough, that different inputs give different outputs."""
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.add_(0.35 * torch.randn_like(parameter))
    return model.eval()


@pytest.fixture
def make_model():
    """A small model of one of these kinds, always with the same weights."""

    def make(kind, seed=1):
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            return _varied(MAKERS[kind]())

    return make


@pytest.fixture
def make_proposal():
    """A proposal around random gradients, whose candidates decode differently."""

    def make(model, num=5, size=0.1, num_gradients=2, seed=0, **form):
        parameters = searched_parameters(model)
        gradients = [
            {n: size * normal(p.shape, p.device, seed, j, n) for n, p in parameters.items()}
            for j in range(num_gradients)
        ]
        return Proposal(ProposalForm(**form), gradients, num, seed, 1)

    return make


@pytest.fixture
def copied():
    """A deep copy with Δ added to one parameter after the other."""

    def make(model, direction):
        twin = copy.deepcopy(model)
        parameters = dict(twin.named_parameters())
        with torch.no_grad():
            for name, delta in direction.items():
                parameters[name].add_(delta)
        return twin

    return make


@pytest.fixture
def one_copy_each(copied):
    """What each candidate decodes on a copy of its own, with the library's `generate`. `None` is θ itself."""

    def decode(model, proposal, prefixes, decoder, room, noise=(0,), eos=0):
        keys = row_keys(range(len(prefixes)), *noise)
        found = {}
        for number in (*range(len(proposal)), None):
            twin = copied(model, {} if number is None else proposal.sample(number)).eval()
            found[number] = decoder.generate(twin, prefixes, room, eos, keys)
        return found

    return decode


@pytest.fixture
def prefixes():
    """Of different lengths."""
    return [(4, 9, 2, 17, 5), (11, 3), (8, 8, 20, 1), (6, 21, 13, 2, 7, 19)]


@pytest.fixture
def make_task(word_tokenizer):
    """A task whose cost tells almost any two continuations apart."""

    def fingerprint(hypotheses, references):
        return [sum((i + 1) * 1.37**t for t, i in enumerate(h.token_ids)) for h in hypotheses]

    def make(decoder=None, cost=fingerprint, max_new_tokens=10):
        return Task(word_tokenizer, decoder or Decoder(), Cost.of(cost), max_new_tokens)

    return make


@pytest.fixture
def batch_of():
    """A batch with these prefixes."""

    def make(prefixes):
        return Batch([Example(tuple(prefix), (1, 2, 0)) for prefix in prefixes])

    return make
