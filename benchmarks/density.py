"""What the density does to the weights: effective sample sizes with `unit`, `exact` and `none` on the small model.

    python benchmarks/density.py

One batch's gradient, K candidates of the paper's mixture, all with the same cost: then only the density speaks. The
same again with the costs of what the candidates decode. A second table shrinks the dimension until `exact` is usable.
"""

from __future__ import annotations

import torch
from transformers import PreTrainedModel

from mgs.candidates import Task, perturbed
from mgs.costs import Cost
from mgs.data import load_completions
from mgs.decoding import Decoder
from mgs.methods.method import gradient_of
from mgs.methods.mle import mle_loss
from mgs.models import load_model, load_tokenizer
from mgs.search import Proposal, ProposalForm, effective_sample_size, importance_weights
from mgs.search.directions import clipped
from mgs.types import Batch, Direction

K = 16
STEPS = 5


def spread(values: list[float]) -> float:
    return max(values) - min(values)


def cost(task: Task, model: PreTrainedModel, direction: Direction, batch: Batch) -> float:
    with perturbed(model, direction):
        return task.mean_cost(model, batch)


def main() -> None:
    torch.manual_seed(0)
    tokenizer, model = load_tokenizer("small"), load_model("small")
    train = load_completions("docstrings", tokenizer, "train", min_length=42, max_length=512)
    task = Task(tokenizer, Decoder(), Cost.of("lm", model), max_new_tokens=60)
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters, K = {K}, means over {STEPS} batches")
    print("density   spread of log q   ESS, equal costs   ESS with decoded LM costs")
    rows: dict[str, list[tuple[float, float, float]]] = {}
    for step in range(STEPS):
        batch = Batch(train.examples[step * 12 : step * 12 + 12])
        model.train()
        gradient = clipped({n: -g for n, g in gradient_of(mle_loss(model, batch), model).items()}, 1.0)
        costs: list[float] | None = None
        for density in ("unit", "exact", "none"):
            proposal = Proposal(ProposalForm(density=density), [gradient], K, 0, step)
            costs = costs or [cost(task, model, proposal.sample(k), batch) for k in range(K)]
            logs = proposal.log_densities()
            rows.setdefault(density, []).append(
                (
                    spread(logs),
                    effective_sample_size(importance_weights([0.0] * K, logs)),
                    effective_sample_size(importance_weights(costs, logs)),
                )
            )
    for density, values in rows.items():
        means = [sum(column) / STEPS for column in zip(*values, strict=True)]
        print(f"{density:<9} {means[0]:>15.3g} {means[1]:>18.2f} {means[2]:>27.2f}")
    print(f"\nexact density, K = {K}, equal costs, gradient of norm 1 in n dimensions, mean over 200 draws")
    for n in (1, 10, 100, 1_000, 10_000):
        sizes = []
        for step in range(200):
            generator = torch.Generator().manual_seed(step)
            g = torch.randn(n, generator=generator)
            proposal = Proposal(ProposalForm(density="exact"), [{"w": g / g.norm()}], K, 1, step)
            sizes.append(effective_sample_size(importance_weights([0.0] * K, proposal.log_densities())))
        print(f"n = {n:>6,}: ESS {sum(sizes) / len(sizes):.2f}")


main()
