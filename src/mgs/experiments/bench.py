"""How fast an update is, as ratios measured side by side in one run on this machine.

    sequential   θ and K copies of the model, decoded one after another with `generate`: the plain way
    ours         `MGS`, all candidates as one batch
    inference    the unperturbed model decoding as many rows in the same loop: what perturbing costs
    generate     the library's own decoding of as many rows

Weights are random where only speed is measured; every way decodes the same batch, and outputs are compared.
"""

from __future__ import annotations

import copy
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig, PreTrainedModel

from mgs.candidates import Candidates, Task
from mgs.candidates.gpu import OnGPU, Work
from mgs.costs import Cost
from mgs.decoding import Decoder, row_keys
from mgs.decoding.agreement import supports_graph
from mgs.decoding.memory import bytes_per_row
from mgs.errors import unknown
from mgs.experiments.scaling import measure_parts
from mgs.experiments.timing import machine, now, reading_speed, seconds, versions, with_memory
from mgs.methods.method import Key
from mgs.methods.mgs import MGS
from mgs.metrics import texts
from mgs.models import load_model, searched_parameters
from mgs.search import Proposal, ProposalForm, Update, mgs_update
from mgs.types import Batch, Example

#: Models by name: sizes of the real ones, random weights; `small` is the one this package carries.
MODELS: dict[str, Callable[[], PreTrainedModel]] = {
    "small": lambda: load_model("small"),
    "gpt2": lambda: _random(GPT2Config()),
    "llama": lambda: _random(
        LlamaConfig(
            vocab_size=49152,
            hidden_size=576,
            intermediate_size=1536,
            num_hidden_layers=30,
            num_attention_heads=9,
            num_key_value_heads=3,
            tie_word_embeddings=True,
        )
    ),
    "tiny": lambda: _random(GPT2Config(n_layer=2, n_embd=32, n_head=2, vocab_size=300, n_positions=128)),
}
CONTEXT = 10


@dataclass(frozen=True)
class Bench:
    """What is measured, on which model."""

    model: str
    rows: int = 9
    target: int = 104  # 9 rows of 10 + 104 tokens: a batch of 1,024
    new_tokens: int = 128
    candidates: int = 4
    many: tuple[int, ...] = (4, 16, 64, 256, 1024)
    compared: tuple[int, ...] = (64, 256)  # of those, beside inference and `generate`
    repeats: int = 3
    sequential_repeats: int = 1


def run_bench(bench: Bench, say: Callable[[str], object] = print) -> dict[str, Any]:
    """All measurements of one model, as plain values."""
    if bench.model not in MODELS:
        raise unknown("model", bench.model, MODELS)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    model: nn.Module = MODELS[bench.model]()
    model.to(device)
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0  # so that all ways see the same gradient
    say(f"{bench.model}: {sum(p.numel() for p in model.parameters()):,} parameters on {machine(device)}")
    batch = random_batch(bench, model)
    result: dict[str, Any] = {"model": bench.model, "machine": machine(device), "versions": versions()}
    result["settings"] = {k: v for k, v in vars(bench).items() if k != "model"}
    result["parameters"] = sum(p.numel() for p in searched_parameters(model).values())
    result["update"] = measure_update(bench, model, batch, say)
    result["parts"] = measure_update_parts(bench, model, batch, say)
    result["many"] = [measure_many(bench, model, batch, num, say) for num in bench.many]
    return result


def measure_update(bench: Bench, model: nn.Module, batch: Batch, say: Callable[[str], object]) -> dict[str, Any]:
    """A whole update with dense candidates: sequential, ours as it is by default, and ours decoding θ as well."""
    task = Task(Ids(), Decoder(), Cost.of("lm", model), bench.new_tokens)  # type: ignore[arg-type]
    form = ProposalForm()
    ways: dict[str, Callable[[int], Any]] = {
        "ours": lambda step: default(model, batch, Key(0, step)),
        "ours_with_base": lambda step: with_base(model, batch, Key(0, step)),
    }
    default = MGS(task, form, bench.candidates)
    with_base = MGS(task, form, bench.candidates, log_base=True)
    out = {name: seconds(way, bench.repeats, warm=2) for name, way in ways.items()}
    sequential = {}
    times = []
    for step in range(bench.sequential_repeats):
        began = now()
        sequential[step] = sequential_update(model, batch, task, form, bench.candidates, Key(0, step))
        times.append(now() - began)
    out["sequential"] = statistics.median(times)
    ours = with_base(model, batch, Key(0, 0)).log["costs"]
    theirs = [cost for cost in sequential[0].costs if cost is not None]
    gap = max(abs(a - b) / max(1.0, abs(b)) for a, b in zip(ours, theirs, strict=True))
    out |= {"speedup": out["sequential"] / out["ours"], "speedup_with_base": out["sequential"] / out["ours_with_base"]}
    out["largest_cost_gap"] = gap
    out |= step_time(bench, model, batch, with_base.candidates, default)
    say(
        f"  update, K = {bench.candidates} dense: sequential {out['sequential']:.3g} s, ours {out['ours']:.3g} s "
        f"({out['speedup']:.1f}×), decoding θ as well {out['ours_with_base']:.3g} s ({out['speedup_with_base']:.1f}×); "
        f"costs agree to {gap:.1g}"
    )
    say(
        f"  a decoding step of K + 1: {out['step']:.3g} s; reading as many fp32 weight sets {out['floor_fp32']:.3g} s "
        f"({out['step'] / out['floor_fp32']:.2f}×), what ours reads {out['floor_read']:.3g} s"
    )
    return out


def measure_update_parts(
    bench: Bench, model: nn.Module, batch: Batch, say: Callable[[str], object]
) -> dict[str, float]:
    """What is not decoding."""
    method = MGS(Task(Ids(), Decoder(), Cost.of("edit"), bench.new_tokens))  # type: ignore[arg-type]
    parts = measure_parts(model, batch, method, lambda work: seconds(work, bench.repeats, warm=1))
    shown = ", ".join(f"{name.replace('_', ' ')} {1000 * value:.3g}" for name, value in parts.items())
    say(f"  parts, in ms (of a candidate, but for the gradient): {shown}")
    return parts


def step_time(bench: Bench, model: nn.Module, batch: Batch, engine: Candidates, method: MGS) -> dict[str, float]:
    """Seconds of one decoding step of θ and the candidates, from two lengths; and what reading weights alone takes."""
    gradients, _ = method.centres(model, batch)
    proposal = Proposal(ProposalForm(), gradients, bench.candidates, 0, 0)
    numbers = [*range(bench.candidates), None]
    long, short = bench.new_tokens, max(1, bench.new_tokens // 4)
    times = []
    for cap in (short, long):
        engine.task = replace(engine.task, max_new_tokens=cap)
        times.append(seconds(lambda step: engine.decode(model, proposal, numbers, batch), bench.repeats, warm=1))
    bandwidth = reading_speed(proposal.gradients[0])
    num_read = 2 * (bench.candidates + 2) if supports_graph(model) else 4 * (bench.candidates + 1)
    size = proposal.layout.size
    return {
        "step": (times[1] - times[0]) / (long - short),
        "bandwidth": bandwidth,
        "floor_fp32": 4 * (bench.candidates + 1) * size / bandwidth,
        "floor_read": num_read * size / bandwidth,
    }


def measure_many(
    bench: Bench, model: nn.Module, batch: Batch, num: int, say: Callable[[str], object]
) -> dict[str, Any]:
    """An update with `num` candidates of rank 1; for some, beside inference of as many rows and `generate`."""
    decoder = Decoder()
    task = Task(Ids(), decoder, Cost.of("lm", model), bench.new_tokens)  # type: ignore[arg-type]
    method = MGS(task, ProposalForm(rank=1), num)
    few = 1 if num > 64 else bench.repeats
    out: dict[str, Any] = {"candidates": num, "update": seconds(lambda step: method(model, batch, Key(0, step)), few)}
    out["per_candidate"] = out["update"] / num
    line = f"  K = {num:,} of rank 1: update {out['update']:.3g} s, {1000 * out['per_candidate']:.3g} ms a candidate"
    if num in bench.compared:
        gradients, _ = method.centres(model, batch)
        proposal = Proposal(ProposalForm(rank=1), gradients, num, 0, 0)
        del gradients
        many = Batch(list(batch.examples) * num)
        engine = method.candidates
        engine.task = task = replace(task, cost=Cost.of("edit"))  # the scoring model goes: it is not the engine's
        method.task = task
        groups: list[int] = []
        out["decode"], peak = with_memory(
            lambda: seconds(
                lambda step: engine.decode(model, proposal, range(num), batch, done=groups.append), few, warm=1
            )
        )
        if peak is not None:
            out["copies"] = (peak - kept_by_rows(bench, model, max(groups))) / (4 * proposal.layout.size)
        out["inference"] = seconds(
            lambda step: inference(model, proposal, many, decoder, bench.new_tokens), few, warm=1
        )
        keys = row_keys(range(len(many)), 0).to(next(model.parameters()).device)
        model.eval()
        out["generate"] = seconds(
            lambda step: decoder.generate(model, many.prefixes, bench.new_tokens, Ids.eos_token_id, keys), 1, warm=0
        )
        out["share_of_inference"] = out["inference"] / out["decode"]
        out["inference_over_generate"] = out["generate"] / out["inference"]
        line += (
            f"; decoding {out['decode']:.3g} s, {100 * out['share_of_inference']:.0f}% of inference's speed, which is "
            f"{out['inference_over_generate']:.1f}× generate's"
            + (f"; {out['copies']:.2g} model copies beside the cache" if "copies" in out else "")
        )
    say(line)
    return out


def sequential_update(model: nn.Module, batch: Batch, task: Task, form: ProposalForm, num: int, key: Key) -> Update:
    """One model after another: each a copy, each decoded with `generate`, each scored by itself."""
    gradients, _ = MGS(task, form, num).centres(model, batch)
    proposal = Proposal(form, gradients, num, *key)
    base_cost = _generated_cost(model.eval(), batch, task, key)
    costs = []
    for k in range(num):
        candidate = copy.deepcopy(model)
        direction = proposal.sample(k)
        with torch.no_grad():
            for name, parameter in searched_parameters(candidate).items():
                parameter.add_(direction[name])
        costs.append(_generated_cost(candidate, batch, task, key))
    return mgs_update(proposal, costs, base_cost=base_cost)


def _generated_cost(model: nn.Module, batch: Batch, task: Task, key: Key) -> float:
    keys = row_keys(range(len(batch)), *key).to(next(model.parameters()).device)
    rows = task.decoder.generate(model, batch.prefixes, task.cap(batch), Ids.eos_token_id, keys)
    hypotheses = texts(task.tokenizer, rows, strings=False)
    return task.cost.mean(hypotheses, task.references(batch), **task.columns(batch))


def inference(model: nn.Module, proposal: Proposal, batch: Batch, decoder: Decoder, new_tokens: int) -> None:
    """θ alone on these rows: on a GPU in the same loop and with the same products as candidates, else in the loop."""
    keys = row_keys(range(len(batch)), 0)
    prefixes, caps = batch.prefixes, [new_tokens] * len(batch)
    if not supports_graph(model):
        decoder.rows(model, prefixes, caps, Ids.eos_token_id, keys)
        return
    work = Work(decoder, prefixes, keys, caps, Ids.eos_token_id, len(prefixes))
    OnGPU().decode(model, searched_parameters(model), proposal, [None], True, work)


def kept_by_rows(bench: Bench, model: nn.Module, together: int) -> float:
    """Bytes of keys and values of the candidates that are decoded together."""
    room = -(-(CONTEXT + bench.new_tokens) // 64) * 64
    return bench.rows * together * (bytes_per_row(model, room) - bytes_per_row(model, 0))


def random_batch(bench: Bench, model: nn.Module) -> Batch:
    vocabulary = model.config.get_text_config().vocab_size  # type: ignore[union-attr, operator]
    generator = torch.Generator().manual_seed(1)

    def draw(num: int) -> tuple[int, ...]:
        return tuple(torch.randint(1, vocabulary, (num,), generator=generator).tolist())

    return Batch([Example(draw(CONTEXT), (*draw(bench.target - 1), Ids.eos_token_id)) for _ in range(bench.rows)])


class Ids:
    """Stands in for a tokenizer where nothing is ever shown as text."""

    eos_token_id = pad_token_id = 0

    def batch_decode(self, rows: Sequence[Any], **options: Any) -> list[str]:
        return [""] * len(rows)


def _random(config: Any) -> PreTrainedModel:
    config.bos_token_id = config.eos_token_id = config.pad_token_id = 0
    return AutoModelForCausalLM.from_config(config)
