"""How fast decoding is, as ratios measured side by side in one run: our loop against the library's `generate`.

    python benchmarks/decoding.py [--json FILE]

Same model, same prefixes, same cap; outputs are compared before anything is timed. Medians of several rounds.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

from mgs.data import load_completions
from mgs.decoding import Decoder, row_keys
from mgs.models import load_model, load_tokenizer

ROUNDS = 5
ROWS = 64
CAPS = (50, 200)


def seconds(work: Callable[[], object]) -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    began = time.perf_counter()
    work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - began


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    tokenizer, model = load_tokenizer("small"), load_model("small").to(device).eval()
    prefixes = [e.prefix for e in load_completions("docstrings", tokenizer, "valid", max_examples=ROWS)]
    eos = tokenizer.eos_token_id
    keys = row_keys(range(ROWS), 0).to(device)
    results = []
    for decoder in (Decoder(), Decoder(sample=True)):
        for cap in CAPS:
            ways = {
                "generate": lambda d=decoder, c=cap: d.generate(model, prefixes, c, eos, keys),
                "loop": lambda d=decoder, c=cap: d(model, prefixes, c, eos),
            }
            assert ways["loop"]() == ways["generate"](), "the two ways must decode the same tokens"
            times: dict[str, list[float]] = {name: [] for name in ways}
            for _ in range(ROUNDS):  # alternating, so that a slow moment of the machine hits both
                for name, way in ways.items():
                    times[name].append(seconds(way))
            medians = {name: statistics.median(values) for name, values in times.items()}
            ratio = medians["generate"] / medians["loop"]
            results.append(
                {"decoder": str(decoder), "cap": cap, "rows": ROWS, "device": device, "ratio": ratio} | medians
            )
            seconds_each = ", ".join(f"{name} {value:.2f} s" for name, value in medians.items())
            print(f"{decoder!s:<8} cap {cap:<4} {seconds_each}: {ratio:.1f}×")
    if "--json" in sys.argv:
        Path(sys.argv[sys.argv.index("--json") + 1]).write_text(json.dumps(results, indent=2) + "\n")


main()
