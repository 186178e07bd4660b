"""Examples of what models wrote, as Markdown, each chosen by a rule that stands above it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mgs.experiments.measuring import CANDIDATES, CONTINUATIONS
from mgs.experiments.study import Study
from mgs.report.escape import marked_up
from mgs.training.outputs import read_json

NUM, LONGEST = 5, 400  # examples, and characters of each that are shown
RULE = (
    f"Chosen by a rule: of the {{split}} prefixes, the {NUM} whose continuation by {{first}} does not end, the most "
    "repetitive first (by repeated 4-grams, ties in the data's order); where fewer do not end, the most repetitive of "
    f"the others follow. At most {LONGEST} characters are shown; → ∞ means that the decoding cap was reached."
)
CANDIDATE_RULE = (
    "Of the update that would have come next after each run: the first candidate of each component, its cost over the "
    "whole batch, and its continuation of the first prefix on which some end and some do not (or else of the first on "
    "which they differ, or else of the first)."
)


def worst(continuations: Sequence[Mapping[str, Any]], num: int = NUM) -> list[int]:
    """The rule: what does not end first, then by repetition, then as they come."""
    order = range(len(continuations))
    return sorted(order, key=lambda i: (continuations[i]["ended"], -continuations[i]["repetition"], i))[:num]


def continuations(study: Study, out: Path) -> str:
    """The same prefixes continued by the first run of each row."""
    split = study.splits[0]
    found = {}
    for row in study.rows:
        run = next(run for run in study.runs if run.row == row)
        decoded = read_json(out / run.name / CONTINUATIONS).get(study.key(split))
        if decoded:
            found[row] = decoded
    if not found:
        return f"# {study.title}\n\nNothing has been decoded yet.\n"
    first = next(iter(found))
    lines = [f"# {study.title}", "", RULE.format(split=split, first=first), ""]
    for i in worst(found[first]):
        lines += [f"**Prefix:** {shown(found[first][i]['prefix'])}", ""]
        lines += [f"- **{row}:** {written(decoded[i])}" for row, decoded in found.items() if i < len(decoded)] + [""]
    return "\n".join(lines)


def candidates(study: Study, out: Path) -> str:
    lines = ["# Examples of candidates", "", CANDIDATE_RULE, ""]
    for row in study.rows:
        run = next(run for run in study.runs if run.row == row)
        found = read_json(out / run.name / CANDIDATES).get("candidates", [])
        if len(found) > 1:
            i = telling([candidate["continuations"] for candidate in found])
            lines += [f"**{row}.** Prefix: {shown(found[0]['continuations'][i]['prefix'])}", ""]
            lines += [
                f"- **{c['component']}**, cost {c['cost']:.4g}: {written(c['continuations'][i])}" for c in found
            ] + [""]
    return "\n".join(lines)


def telling(candidates: Sequence[Sequence[Mapping[str, Any]]]) -> int:
    """The first prefix on which some end and some do not, or on which they differ, or the first."""

    def differ(what: str) -> list[int]:
        together = enumerate(zip(*candidates, strict=True))
        return [i for i, each in together if len({continuation[what] for continuation in each}) > 1]

    return next(iter([*differ("ended"), *differ("text"), 0]))


def written(continuation: Mapping[str, Any]) -> str:
    text = continuation["text"]
    cut = " …" if len(text) > LONGEST else ""
    return f"{shown(text[:LONGEST])}{cut} {'⟨eos⟩' if continuation['ended'] else '→ ∞'}"


def shown(text: str) -> str:
    """As text: nothing a model wrote becomes HTML, Markdown, a formula or a link, or moves a terminal's cursor."""
    return marked_up(re.sub(r"[\\`*_\[\]#~$]|:(?=//)|(?<=www)\.", r"\\\g<0>", text.strip(), flags=re.IGNORECASE))


#: Name → what writes it.
PAGES = {"continuations": continuations, "candidates": candidates}
