"""Tables in Markdown from what is kept under `results/`: `python scripts/fill_tables.py [--check] FILE...`

What stands between these two lines is written anew from the JSON of a study, the path relative to the project:

    <!-- table results/NAME.json | SPLIT | COLUMN, COLUMN, ... | ROW, ROW, ... -->
    <!-- end of table -->

Rows are named as in the study, all of them where none is named. `--check` writes nothing and fails if a table is not
what its results say.
"""

from __future__ import annotations

import json
import re
import statistics
import sys
from pathlib import Path

from mgs.report.study import values
from mgs.report.tables import HEADINGS, cell

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"(<!-- table (?P<what>.+?) -->\n).*?(<!-- end of table -->)", re.DOTALL)


def filled(text: str) -> str:
    return BLOCK.sub(lambda found: f"{found[1]}\n{table(found['what'])}\n\n{found[3]}", text)


def table(what: str) -> str:
    """Mean ± deviation over seeds; the best of each column is for the reader to find."""
    file, split, columns, *named = [part.strip() for part in what.split("|")]
    found = json.loads((ROOT / file).read_text(encoding="utf-8"))["rows"]
    heads = [column.strip() for column in columns.split(",")]
    rows = [row.strip() for row in named[0].split(",")] if named else list(found)
    lines = ["| | seeds | " + " | ".join(HEADINGS[head] for head in heads) + " |", "|---|" + "---:|" * (1 + len(heads))]
    for row in rows:
        cells = [_cell(head, values(found[row], split, head)) for head in heads]
        lines.append(f"| {row} | {len(found[row])} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(column: str, figures: list[float]) -> str:
    if not figures:
        return "–"
    mean = cell(column, statistics.fmean(figures))
    return mean if len(figures) == 1 else f"{mean} ± {cell(column, statistics.stdev(figures))}"


def main(arguments: list[str]) -> None:
    check, files = "--check" in arguments, [Path(name) for name in arguments if name != "--check"]
    if not files:
        sys.exit(__doc__)
    for file in files:
        text = file.read_text(encoding="utf-8")
        if check and filled(text) != text:
            sys.exit(f"{file} has a table that is not what results say: run python scripts/fill_tables.py {file}")
        if not check:
            file.write_text(filled(text), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
