"""Tables in the terminal, with the signature of their figures below."""

from __future__ import annotations

from collections.abc import Mapping

from mgs.metrics import COLUMNS, TRANSLATION_COLUMNS
from mgs.report.escape import marked_up, printable

HEADINGS = {
    "bleu": "BLEU",
    "sbleu": "SBLEU",
    "meteor": "METEOR",
    "chrf": "chrF",
    "lm": "LM",
    "lm_with_prefix": "LM+prefix",
    "edit": "Edit",
    "nontermination": "Nonterm",
    "repetition": "Repetition",
    "length": "Length",
    "perplexity": "PPL",
}
DIGITS = {"bleu": 2, "sbleu": 2, "meteor": 2, "edit": 3, "nontermination": 3, "repetition": 3}


def cell(column: str, value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.1e}" if abs(value) >= 1e6 else f"{value:.{DIGITS.get(column, 1)}f}"


def columns_of(rows: Mapping[str, Mapping[str, float]]) -> list[str]:
    """The columns that any row has, in the order of the task's table."""
    present = set().union(*rows.values())
    return [name for name in (TRANSLATION_COLUMNS if "bleu" in present else COLUMNS) if name in present]


def figures_table(rows: Mapping[str, Mapping[str, float]], signature: str, title: str = "") -> None:
    """Print one row a method."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    shown = columns_of(rows)
    table = Table(
        title=printable(title) or None, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0)
    )
    table.add_column("", overflow="fold", min_width=min(17, max(map(len, rows))))  # long names give way to figures
    for name in shown:
        table.add_column(HEADINGS[name], justify="right", no_wrap=True)
    for row, figures in rows.items():
        table.add_row(printable(row), *(cell(name, figures.get(name)) for name in shown))
    console = Console(highlight=False, markup=False, emoji=False)  # names are data
    console.print(table)
    for line in signature.split("\n"):
        console.print(printable(line), style="dim", soft_wrap=True)


def markdown_table(rows: Mapping[str, Mapping[str, float]]) -> str:
    """The same as Markdown."""
    shown = columns_of(rows)
    lines = ["| | " + " | ".join(HEADINGS[name] for name in shown) + " |", "|---|" + "---:|" * len(shown)]
    lines += [
        f"| {marked_up(row)} | " + " | ".join(cell(name, figures.get(name)) for name in shown) + " |"
        for row, figures in rows.items()
    ]
    return "\n".join(lines)
