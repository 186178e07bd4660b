"""A world small enough to enumerate: three words and ⟨eos⟩, continuations of at most three tokens."""

import itertools

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from mgs.candidates import Task
from mgs.costs import Cost
from mgs.decoding import Decoder
from mgs.types import Batch, Example

EOS, CAP = 0, 3
VOCABULARY = 4  # of the shared tokenizer's words, ⟨eos⟩, `a`, `b` and `c`


@pytest.fixture
def make_gpt2():
    """A GPT-2 over the four tokens, always with the same weights."""

    def make(dropout=0.0, seed=0):
        config = GPT2Config(
            vocab_size=VOCABULARY,
            n_positions=16,
            n_embd=8,
            n_layer=1,
            n_head=2,
            initializer_range=0.4,
            resid_pdrop=dropout,
            embd_pdrop=dropout,
            attn_pdrop=dropout,
            bos_token_id=EOS,
            eos_token_id=EOS,
            pad_token_id=EOS,
        )
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            return GPT2LMHeadModel(config)

    return make


@pytest.fixture
def gpt2(make_gpt2):
    return make_gpt2()


@pytest.fixture
def batch():
    return Batch(
        [Example((1, 2), (3, 1, 0)), Example((2,), (1, 0)), Example((3, 3, 1), (0,)), Example((1,), (2, 2, 0))]
    )


@pytest.fixture(scope="session")
def outcomes():
    """Every continuation that decoding with the cap can give: those that end, and those that are cut off."""
    tokens = range(1, VOCABULARY)
    ended = [(*body, EOS) for length in range(CAP) for body in itertools.product(tokens, repeat=length)]
    return ended + list(itertools.product(tokens, repeat=CAP))


def price(token_ids, reference):
    """A cost with no structure that could hide a mistake."""
    return 0.3 * len(token_ids) + sum((t + 1) * i for t, i in enumerate(token_ids)) % 5 - 0.2 * len(reference)


@pytest.fixture(scope="session")
def cost_of():
    return price


@pytest.fixture
def make_task(word_tokenizer):
    """A task with that cost, or another."""

    def pricey(hypotheses, references):
        return [price(h.token_ids, r.token_ids) for h, r in zip(hypotheses, references, strict=True)]

    def make(decoder=None, cost=pricey, max_new_tokens=CAP):
        return Task(word_tokenizer, decoder or Decoder(), Cost.of(cost), max_new_tokens)

    return make


@pytest.fixture
def log_p():
    """log p(Y | X) of one pair, token by token and unbatched: the definition."""

    def log_likelihood(model, prefix, target):
        logits = model(input_ids=torch.tensor([[*prefix, *target]])).logits[0]
        log_probs = torch.log_softmax(logits, dim=-1)
        return sum(log_probs[len(prefix) - 1 + t, token] for t, token in enumerate(target))

    return log_likelihood


@pytest.fixture
def grad():
    """∇ of a scalar for each searched parameter, through `backward`."""

    def gradient(loss, model):
        model.zero_grad(set_to_none=True)
        loss.backward()
        found = {
            name: torch.zeros_like(p) if p.grad is None else p.grad.clone()
            for name, p in model.named_parameters()
            if p.requires_grad
        }
        model.zero_grad(set_to_none=True)
        return found

    return gradient


@pytest.fixture
def combine():
    """Σ a_i g_i of gradients."""

    def combined(factors, gradients):
        pairs = list(zip(factors, gradients, strict=True))
        return {name: sum(float(a) * g[name].double() for a, g in pairs).float() for name in pairs[0][1]}

    return combined


@pytest.fixture
def assert_same():
    """Two directions agree, and there is something to agree on."""

    def check(found, expected, atol=2e-6):
        assert found.keys() == expected.keys()
        assert max(float(tensor.abs().max()) for tensor in expected.values()) > 100 * atol
        for name, tensor in expected.items():
            torch.testing.assert_close(
                found[name], tensor, rtol=1e-4, atol=atol, msg=lambda m, name=name: f"{name}: {m}"
            )

    return check
