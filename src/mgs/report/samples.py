"""The page's outputs: what each run made of each held-out prefix, how long, and how much it changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mgs.report.runs import RunFolder

BINS = 30
Outputs = list[dict[str, Any]]


def voices(runs: Sequence[RunFolder]) -> tuple[list[dict[str, Any]], list[Outputs]]:
    """Those who speak, starts first, and what they said. Runs that start from the same model share its outputs."""
    starts: list[tuple[str, Outputs]] = []
    for run in runs:
        before = [line for line in run.outputs if line.get("step") == 0]
        if before and all(before != other for _, other in starts):
            starts.append((run.name, before))
    shown: list[dict[str, Any]] = [
        {"name": f"start of {name}" if len(starts) > 1 else "start", "run": None} for name, _ in starts
    ]
    said = [before for _, before in starts]
    for index, run in enumerate(runs):
        after = [line for line in run.outputs if line.get("step") != 0]
        if after:
            shown.append({"name": run.name, "run": index})
            said.append(after)
    return shown, said


def examples(said: Sequence[Outputs]) -> list[dict[str, Any]]:
    """Prefix by prefix, what every voice made of it; a prefix with two targets is two."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for voice, lines in enumerate(said):
        for line in lines:
            key = (line["prefix"], line["target"])
            example = found.setdefault(
                key, {"prefix": key[0], "target": key[1], "length": line["target_length"], "outputs": []}
            )
            kept = {name: line[name] for name in ("ended", "length", "repetition", "repeated")}
            example["outputs"].append({"voice": voice, "text": line["output"], **kept})
    for example in found.values():
        example["change"] = round(changed([output["text"] for output in example["outputs"]]), 3)
    return list(found.values())


def changed(texts: Sequence[str]) -> float:
    """The largest distance from the first to another, in words, as a share of the longer.

    >>> changed(["a b c d", "a b c d", "a b c x"])
    0.25
    """
    from rapidfuzz.distance import Levenshtein

    first, *others = [text.split() for text in texts]
    return max((Levenshtein.normalized_distance(first, other) for other in others), default=0.0)


def lengths(said: Sequence[Outputs]) -> dict[str, Any] | None:
    """Histograms with common bins: the share of each voice's outputs, and of human ones, by number of tokens."""
    everyone = [[line["length"] for line in lines] for lines in said]
    people = {(line["prefix"], line["target"]): line["target_length"] for lines in said for line in lines}
    everyone.append(list(people.values()))
    longest = max((max(values) for values in everyone if values), default=0)
    if not longest:
        return None
    width = max(1, -(-longest // BINS))
    num = -(-longest // width)
    lines = []
    for voice, values in enumerate(everyone):
        counts = [0] * num
        for value in values:
            counts[min(num - 1, max(0, value - 1) // width)] += 1
        points = [[width * i, count / len(values)] for i, count in enumerate(counts)] + [[width * num, 0]]
        lines.append({"voice": voice, "points": points})
    unit = f"share of outputs, {width} tokens a step" if width > 1 else "share of outputs"
    return {"title": "Lengths", "note": unit, "x": "tokens", "steps": True, "log": False, "lines": lines}
