"""The way candidates take on a GPU, with plain operations in place of the kernels: all but Triton and capture."""

import sys
from types import ModuleType

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import (
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
    MarianConfig,
    MarianMTModel,
    T5Config,
    T5ForConditionalGeneration,
)

from mgs import kernels
from mgs.candidates import Candidates, Task, forms, fused, perturbed, values
from mgs.candidates.gpu import DenseBuffers, precise
from mgs.candidates.siblings import Member, siblings
from mgs.costs import Cost
from mgs.decoding import Decoder, fixed, graph, row_keys
from mgs.decoding.loop import decode_loop
from mgs.models import score, searched_parameters
from mgs.search import Proposal, ProposalForm
from mgs.types import Batch, Example

PREFIXES = [(5, 9, 33, 7), (8, 21), (90, 4, 61, 17, 3)]
CAP = 18


class Ids:
    eos_token_id = 0

    def batch_decode(self, rows, **options):
        return [""] * len(rows)


def few_rows(rows, high, low, unscale, bias):
    weights = high.float() + low.float() * unscale
    y = rows.view(len(low), -1, rows.shape[-1]) @ weights
    return (y if bias is None else y + bias[:, None]).reshape(len(rows), -1)


def many_rows(rows, first, num_first=None, second=None, rows_each=1, bias=None, a=None, b=None):
    num_first = len(rows) if num_first is None else num_first
    y = torch.cat([rows[:num_first] @ first, rows[num_first:] @ (first if second is None else second)])
    k = torch.arange(len(rows)) // rows_each
    if a is not None:
        y = y + torch.einsum("ni,nri,nro->no", rows, a.float()[k], b.float()[k])
    return y if bias is None else y + bias[k]


def normalise(x, weight, bias, eps, centred):
    mean = x.mean(-1, keepdim=True) if centred else 0.0
    y = (x - mean) * torch.rsqrt((x - mean).square().mean(-1, keepdim=True) + eps)
    k = torch.arange(len(x)) * len(weight) // len(x)
    y = y * weight[k].unsqueeze(1)
    return y if bias is None else y + bias[k].unsqueeze(1)


def rotate(query, key, cos, sin):
    def turn(x):
        half = x.shape[-1] // 2
        turned = torch.cat([-x[..., half:], x[..., :half]], dim=-1)
        return x * cos.unsqueeze(1) + turned * sin.unsqueeze(1)

    return turn(query), turn(key)


@pytest.fixture
def plain_kernels(monkeypatch):
    """Calls of the kernels, answered by plain operations."""
    calls = []

    def noting(function):
        return lambda *args, **kwargs: calls.append(function.__name__) or function(*args, **kwargs)

    monkeypatch.setattr(kernels, "usable", lambda device: True)
    functions = {"linear": (few_rows, many_rows), "norms": (normalise,), "rotary": (rotate,)}
    for name, members in functions.items():
        module = ModuleType(f"mgs.kernels.{name}")
        for member in members:
            setattr(module, member.__name__, noting(member))
        monkeypatch.setitem(sys.modules, module.__name__, module)
    attention = ModuleType("mgs.kernels.attention")
    attention.attend, attention.attend_to = noting(fixed._attend), noting(fixed._attend_to)
    monkeypatch.setitem(sys.modules, attention.__name__, attention)
    monkeypatch.setattr(fused, "_TRIED", {})
    monkeypatch.setattr(forms, "FACTORS", torch.float32)  # so that tokens must be the same, not nearly always
    return calls


def gpt2():
    return GPT2LMHeadModel(GPT2Config(n_embd=32, n_layer=2, n_head=4, n_positions=64, **COMMON))


def llama():
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    return LlamaForCausalLM(LlamaConfig(**sizes, num_key_value_heads=2, max_position_embeddings=64, **COMMON))


def marian():
    sizes = {f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in SIZES.items()}
    tokens = {"vocab_size": 97, "pad_token_id": 2, "eos_token_id": 0, "decoder_start_token_id": 2}
    return MarianMTModel(MarianConfig(d_model=32, max_position_embeddings=64, **sizes, **tokens))


def gemma():
    return GemmaForCausalLM(GemmaConfig(num_key_value_heads=2, head_dim=8, intermediate_size=48, **WIDE, **COMMON))


def cohere():
    return CohereForCausalLM(CohereConfig(num_key_value_heads=2, intermediate_size=48, **WIDE, **COMMON))


def falcon():
    return FalconForCausalLM(FalconConfig(**WIDE, **COMMON))


def t5():
    sizes = {"vocab_size": 97, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4}
    return T5ForConditionalGeneration(T5Config(pad_token_id=2, eos_token_id=0, decoder_start_token_id=2, **sizes))


WIDE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 64}


def lora():
    return get_peft_model(gpt2(), LoraConfig(r=4, target_modules=["c_attn"], init_lora_weights=False))


SIZES = {"layers": 2, "ffn_dim": 48, "attention_heads": 4}
COMMON = {"vocab_size": 97, "bos_token_id": 1, "eos_token_id": 0, "pad_token_id": None}
MODELS = pytest.mark.parametrize("make", [gpt2, llama])


def made(make):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = make().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2)
    return model


def proposal_of(model, num=5, **form):
    generator = torch.Generator().manual_seed(1)
    shapes = {name: parameter.shape for name, parameter in searched_parameters(model).items()}
    gradient = {name: 0.004 * torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    return Proposal(ProposalForm(**form), [gradient], num, 0, 1)


def one_by_one(model, proposal, decoder):
    out = {}
    for k in [*range(len(proposal)), None]:
        with perturbed(model, {} if k is None else proposal.sample(k)):
            out[k] = decoder.generate(model, PREFIXES, CAP, 0, row_keys(range(len(PREFIXES)), 7))
    return out


@pytest.mark.parametrize("make", [gpt2, llama, marian, lora])
@pytest.mark.parametrize(
    "form", [{}, {"rank": 1}, {"rank": 2, "lengths": (0.5, 1.0)}], ids=["dense", "thin", "lengths"]
)
def test_likelihoods_are_those_of_perturbed_copies(plain_kernels, make, form):
    model, numbers = made(make), [*range(5), None]
    proposal = proposal_of(model, **form)
    targets = [(4, 7, 0), (11, 2, 90, 5, 6, 0), (0,)]
    expected = []
    for k in numbers:
        with perturbed(model, {} if k is None else proposal.sample(k)):
            expected.append(-sum(score(model, PREFIXES, targets)) / 10)
    batch = Batch([Example(*pair) for pair in zip(PREFIXES, targets, strict=True)])
    engine = Candidates(Task(Ids(), Decoder(), Cost.of("edit"), CAP))
    assert engine.nlls(model, proposal, numbers, batch) == pytest.approx(expected, abs=1e-5)
    assert len({round(value, 4) for value in expected}) > 3
    assert ("many_rows" in plain_kernels) == ("rank" in form)


@pytest.mark.parametrize("make", [gpt2, llama, marian, lora])
@pytest.mark.parametrize(
    "form", [{}, {"rank": 1}, {"rank": 2, "lengths": (0.5, 1.0)}], ids=["dense", "thin", "lengths"]
)
@pytest.mark.parametrize("decoder", ["greedy", "sample,top_k=20"])
def test_candidates_are_those_of_perturbed_copies(plain_kernels, make, form, decoder):
    model, decoder = made(make), Decoder.parse(decoder)
    expected = one_by_one(model, proposal_of(model, **form), decoder)
    engine = Candidates(Task(Ids(), decoder, Cost.of("edit"), CAP))
    batch = Batch([Example(prefix, (1, 0)) for prefix in PREFIXES])
    for _ in range(2):  # the second time in kept buffers and loops
        found = engine.decode(model, proposal_of(model, **form), [*range(5), None], batch, (7,))
        assert found == expected
    assert len({tuple(rows) for rows in found.values()}) > 3
    assert {"_attend", "many_rows" if "rank" in form else "few_rows"} <= set(plain_kernels)
    assert ("normalise" in plain_kernels) == (make is not lora)  # frozen norms are the model's own
    assert ("_attend_to" in plain_kernels) == (make is marian)
    assert ("rotate" in plain_kernels) == (make is llama)
    assert "forward" not in vars(next(iter(model.modules())))


@pytest.fixture
def shrinking(monkeypatch):
    """Loops that look at every second token and shrink whenever they can; the sizes that they shrank to."""
    sizes, go_on = [], graph.FixedLoop._go_on_with
    monkeypatch.setattr(graph, "LOOK_EVERY", 2)
    monkeypatch.setattr(graph, "WORTH_SHRINKING", 1)
    monkeypatch.setattr(
        graph.FixedLoop,
        "_go_on_with",
        lambda loop, model, kept, num: sizes.append(len(kept)) or go_on(loop, model, kept, num),
    )
    return sizes


@pytest.mark.parametrize("make", [gemma, cohere, falcon, t5])
@pytest.mark.parametrize("form", [{}, {"rank": 1}], ids=["dense", "thin"])
@pytest.mark.parametrize("decoder", ["greedy", "sample,top_k=20"])
def test_and_those_of_models_that_use_parameters_apart_from_rows(plain_kernels, make, form, decoder):
    model, decoder = made(make), Decoder.parse(decoder)
    engine = Candidates(Task(Ids(), decoder, Cost.of("edit"), CAP))
    batch = Batch([Example(prefix, (1, 0)) for prefix in PREFIXES])
    for _ in range(2):
        found = engine.decode(model, proposal_of(model, **form), [*range(5), None], batch, (7,))
        assert found == one_by_one(model, proposal_of(model, **form), decoder)
    assert engine._batches(model)


@MODELS
@pytest.mark.parametrize("form", [{}, {"rank": 1}], ids=["dense", "thin"])
def test_rows_that_have_ended_leave_and_nothing_else_changes(plain_kernels, shrinking, monkeypatch, make, form):
    model, eos, keys = made(make), 96, row_keys(range(8), 7)
    ends = dict(zip(keys.tolist(), [2, 99, 1, 5, 14, 3, 2, 99], strict=True))

    def process(logits, keys, position):
        logits = logits.index_fill(1, torch.tensor([eos]), -torch.inf)
        now = torch.tensor([ends[key] == position for key in keys.tolist()])
        return logits.masked_scatter(now[:, None] & (torch.arange(97) == eos), torch.full((int(now.sum()),), 1e9))

    monkeypatch.setattr(Decoder, "process", lambda decoder: process)
    prefixes = [(first, second) for first in (5, 33) for second in (7, 8, 90, 14)]
    tokenizer, expected = Ids(), {}
    tokenizer.eos_token_id = eos
    for k in [0, 1, 2, None]:
        with perturbed(model, {} if k is None else proposal_of(model, 3, **form).sample(k)):
            expected[k] = decode_loop(model, prefixes, 30, eos, keys, process)
    assert len(set(map(tuple, expected.values()))) > 2
    engine = Candidates(Task(tokenizer, Decoder(), Cost.of("edit"), 30))
    batch = Batch([Example(prefix, (1, 0)) for prefix in prefixes])
    for _ in range(2):
        assert engine.decode(model, proposal_of(model, 3, **form), list(expected), batch, (7,)) == expected
    assert shrinking == [16, 8] * 2  # of 32: four rows each, then two


@MODELS
def test_buffers_hold_every_candidate_to_eleven_bits_of_its_direction(make):
    model = made(make)
    parameters, proposal = searched_parameters(model), proposal_of(model)
    buffers = DenseBuffers(model, parameters, proposal.layout, 3)
    buffers.fill(parameters, proposal, [4, None, 0])
    for row, number in enumerate([4, None, 0]):
        for name, parameter in parameters.items():
            delta = torch.zeros_like(parameter) if number is None else proposal.sample(number)[name]
            rest = parameter.detach() - parameter.detach().bfloat16().float()
            lost = (buffers.stand_ins[name].own.one(row) - (parameter.detach() + delta)).abs()
            assert (lost <= 2.0**-11 * (delta + rest).abs() + 1e-7).all()


def test_siblings_are_layers_that_read_the_same_rows():
    families = [[name.split(".")[-2] for name in family] for family in siblings(made(llama))]
    assert families == [["q_proj", "k_proj", "v_proj"], ["gate_proj", "up_proj"]] * 2
    assert siblings(made(gpt2)) == []


def test_siblings_are_found_again_where_layers_have_been_wrapped():
    model = made(llama)
    attention = model.model.layers[0].self_attn
    before = siblings(model)[0]
    attention.q_proj = torch.nn.Sequential(attention.q_proj)
    assert siblings(model)[0] == [before[0].replace("q_proj", "q_proj.0"), *before[1:]]


def test_siblings_are_one_product_and_give_what_each_would(plain_kernels):
    model = made(llama)
    parameters, proposal = searched_parameters(model), proposal_of(model)
    buffers = DenseBuffers(model, parameters, proposal.layout, 2)
    buffers.fill(parameters, proposal, [0, 1])
    members = [
        value.own for name, value in buffers.stand_ins.items() if ".0.self_attn" in name and "o_proj" not in name
    ]
    assert all(isinstance(member, Member) for member in members)
    rows, other = torch.randn(6, 32), torch.randn(6, 32)
    buffers.groups.start(6)
    together = [member.times(rows, buffers.groups, True, None) for member in members]
    assert plain_kernels == ["few_rows"]
    alone = [few_rows(rows, m.high.T, m.low_K.mT, m.unscale, None) for m in members]
    torch.testing.assert_close(together, alone)
    elsewhere = members[1].times(other, buffers.groups, True, None)  # not the rows that the first one saw
    torch.testing.assert_close(
        elsewhere, few_rows(other, members[1].high.T, members[1].low_K.mT, members[1].unscale, None)
    )


@MODELS
def test_a_precise_model_gives_what_it_gives_otherwise(plain_kernels, make):
    model = made(make)
    ids = torch.tensor([PREFIXES[0], PREFIXES[0][::-1]])
    expected = model(input_ids=ids).logits
    with precise(model), torch.no_grad():
        torch.testing.assert_close(model(input_ids=ids).logits, expected, rtol=1e-4, atol=1e-4)
    assert "many_rows" in plain_kernels
    assert torch.equal(model(input_ids=ids).logits, expected)


def test_what_a_module_does_otherwise_than_usual_is_left_to_it(plain_kernels, monkeypatch):
    model = made(llama)
    kind = type(model.model.norm)
    monkeypatch.setattr(kind, "forward", lambda self, x: 2 * x)
    with fused.fused(model):
        assert "forward" not in vars(model.model.norm)


@pytest.mark.parametrize("make", [gpt2, llama, marian])
def test_targets_are_many_rows_of_each_candidate_and_go_through_the_kernel(make, plain_kernels, monkeypatch):
    monkeypatch.setattr(values, "MANY_ROWS", 2)
    model = made(make)
    proposal = proposal_of(model, noise=0.5)
    batch = Batch([Example(prefix, (7, 3, 0)) for prefix in PREFIXES])
    found = Candidates(Task(Ids(), Decoder(), Cost.of("edit"))).nlls(model, proposal, [0, 1, 2, None], batch)
    assert "many_rows" in plain_kernels
    for number, nll in zip([0, 1, 2, None], found, strict=True):
        with perturbed(model, {} if number is None else proposal.sample(number)):
            expected = -sum(score(model, batch.prefixes, batch.targets)) / 9
        assert nll == pytest.approx(expected, abs=1e-5)


@MODELS
@pytest.mark.parametrize("decoder", [Decoder(), Decoder(sample=True)], ids=str)
def test_what_a_task_decodes_with_the_model_itself_goes_through_fewer_kernels_too(make, decoder, plain_kernels):
    model = made(make)
    batch = Batch([Example(prefix, (7, 3, 0)) for prefix in PREFIXES])
    found = Task(Ids(), decoder, Cost.of("edit"), CAP).decode(model, batch, (7,))
    assert [text.token_ids for text in found] == decoder.generate(model, PREFIXES, CAP, 0, row_keys(range(3), 7))
    assert ("rotate" in plain_kernels) == ("normalise" in plain_kernels) == (make is llama)
    assert not any("forward" in module.__dict__ for module in model.modules())
