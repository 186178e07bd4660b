"""What single directions do to the shipped model: task cost over perplexity, step by step.

python benchmarks/directions.py FILE.json [--rows N] [--steps N] [--length S] [--seed N]

Each way takes steps of one length, in unit vectors found anew before every step:

    short targets              the MLE gradient of the sixth of a batch with the shortest targets
    ends                       the guide `ends`, from targets of so many rows
    decoded                    the guide `decoded`, from greedy continuations of so many rows
    short targets and decoded  their sum
    ends and decoded           their sum
"""

from __future__ import annotations

import argparse
import copy
import time
from pathlib import Path

import torch

from mgs.candidates import Task
from mgs.costs import Cost
from mgs.data import BatchStream
from mgs.decoding import Decoder
from mgs.experiments.inputs import DataOptions, ModelOptions
from mgs.methods import Key
from mgs.methods.decoded import decoded_gradient
from mgs.methods.ends import ends_gradient
from mgs.methods.mle import mle_gradient
from mgs.methods.parts import parts
from mgs.metrics import evaluate_completion
from mgs.search.directions import norm
from mgs.training.outputs import write_json
from mgs.types import Batch, Direction

WAYS = {
    "short targets": ("mle",),
    "ends": ("ends",),
    "decoded": ("decoded",),
    "short targets and decoded": ("mle", "decoded"),
    "ends and decoded": ("ends", "decoded"),
}
BATCH_TOKENS, CAP, PARTS = 130_000, 120, 6
SHOWN = ("lm", "edit", "nontermination", "repetition", "length", "perplexity")


def direction(guide: str, task: Task, model: torch.nn.Module, batch: Batch, rows: int, key: Key) -> Direction:
    """A unit vector: down this guide's gradient."""
    some = batch.select(range(min(rows, len(batch))))
    if guide == "mle":
        gradient, _ = mle_gradient(model, parts(batch, PARTS, "length")[0])
    elif guide == "ends":
        gradient, _ = ends_gradient(model, some, task.end)
    else:
        gradient, _ = decoded_gradient(task, model, some, task.decode(model, some, key))
    return {name: tensor / -norm(gradient) for name, tensor in gradient.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--rows", type=int, default=256, help="greedy continuations of a step")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--length", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    data = DataOptions(task="completion", data="docstrings", min_length=42)
    start, tokenizer = ModelOptions("small").load()
    train = data.examples(tokenizer, "train", 10, start)
    valid = data.examples(tokenizer, "valid", 10, start, 200)
    task = Task(tokenizer, Decoder(), Cost.of("lm", start), CAP)
    batches = BatchStream(train, BATCH_TOKENS, given.seed, num_batches=given.steps)

    def measured(model: torch.nn.Module) -> dict[str, float]:
        figures = evaluate_completion(model, tokenizer, valid, Decoder(), start, 200, progress=False).figures
        return {name: figures[name] for name in SHOWN}

    found: dict[str, list[dict[str, float]]] = {}
    first = measured(start)
    for way, guides in WAYS.items():
        model = copy.deepcopy(start).eval()
        found[way] = [first]
        for step, batch in enumerate(batches):
            began = time.process_time()
            vectors = [direction(guide, task, model, batch, given.rows, Key(given.seed, step)) for guide in guides]
            with torch.no_grad():
                for name, parameter in model.named_parameters():
                    for vector in vectors:
                        if name in vector:
                            parameter.add_(vector[name], alpha=given.length)
            seconds = time.process_time() - began
            found[way].append(measured(model))
            up = found[way][-1]["perplexity"] / first["perplexity"] - 1
            told = ", ".join(f"{name} {found[way][-1][name]:.3f}" for name in SHOWN)
            print(f"{way}, step {step + 1} ({seconds:.0f} s): perplexity {up:+.1%}; {told}", flush=True)
    write_json(
        given.out, {"settings": {name: getattr(given, name) for name in ("rows", "steps", "length", "seed")}} | found
    )


if __name__ == "__main__":
    main()
