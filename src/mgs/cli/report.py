"""`mgs report DIR...`: one page to look at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mgs.cli.arguments import Parser
from mgs.errors import UserError
from mgs.report.html import report_page
from mgs.report.runs import read_runs
from mgs.training.config import option


@dataclass
class ReportOptions:
    """The page."""

    output_dir: str | None = option(None, "File to write (default: report.html in the first folder).")
    title: str = option("", "Title of the page (default: the runs' names).")


def report(argv: Sequence[str]) -> None:
    first = next((i for i, argument in enumerate(argv) if argument.startswith("-")), len(argv))
    folders, flags = argv[:first], argv[first:]
    summary = "Write one self-contained HTML page about runs: their folders, or folders of several."
    (options,) = Parser((ReportOptions,), "mgs report DIR...", summary).parse(flags)
    if not folders:
        raise UserError("mgs report needs the folder of a run, or several: mgs report DIR... [--out FILE.html]")
    runs = read_runs(folders)
    file = Path(options.output_dir or Path(folders[0]) / "report.html")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(report_page(runs, options.title), encoding="utf-8")
    print(f"{len(runs)} {'run' if len(runs) == 1 else 'runs'}: {file}")
