"""`mgs reproduce NAME`: the runs of a table, and the table."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from mgs.cli.arguments import Parser
from mgs.errors import UserError, unknown
from mgs.experiments.inputs import DataOptions
from mgs.experiments.running import execute, records, run_all
from mgs.experiments.study import Run, Study
from mgs.experiments.translation import SCALES, translation, translation_grid
from mgs.report.progress import plot_study
from mgs.report.study import latex, markdown, page
from mgs.training.config import option

STUDIES = {"translation": translation, "translation-grid": translation_grid}


@dataclass
class ReproduceOptions:
    """The experiment."""

    scale: str = option("smoke", f"How large: {', '.join(SCALES)}.")
    output_dir: str = option("reproduced", "Folder of the runs, one below it for each, and of the tables and figures.")
    jobs: int = option(1, "Runs at the same time: small models leave most of a GPU idle.")
    minutes: float | None = option(None, "Stop after this long; the same command goes on from there.")
    rows: list[str] = option([], "Only these rows, and what they start from.")
    only: str | None = option(None, "Only this run, in this process.")


def reproduce(argv: Sequence[str]) -> None:
    if not argv or argv[0] in ("-h", "--help"):
        print(f"usage: mgs reproduce NAME [options]\n\nNAME is one of {', '.join(STUDIES)}.")
        print("`mgs reproduce NAME --help` shows the options.")
        return
    name = argv[0]
    if name not in STUDIES:
        raise unknown("table or figure", name, STUDIES)
    parser = Parser((ReproduceOptions, DataOptions), f"mgs reproduce {name}", "Run an experiment and make its table.")
    options, data = parser.parse(argv[1:])
    if options.jobs < 1:
        raise UserError(f"jobs must be at least 1, got {options.jobs}")
    study = chosen(STUDIES[name](options.scale, data), options.rows)
    out = Path(options.output_dir)
    if options.only:
        execute(study, study.named(options.only), out, progress=False)
        return

    def child(run: Run) -> list[str]:
        return ["reproduce", *argv, "--only", run.name]

    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // options.jobs)))
    left = run_all(study, out, child, options.jobs, options.minutes)
    show(study, out)
    if left:
        print(f"{len(left)} runs are left ({', '.join(run.name for run in left)}): the same command goes on with them")


def chosen(study: Study, rows: Sequence[str]) -> Study:
    """The study cut down to some rows and those they start from."""
    for row in rows:
        if row not in study.rows:
            raise unknown("row", row, study.rows)
    wanted = {*rows, *(run.start[1:] for run in study.runs if run.row in rows)}
    runs = [run for run in study.runs if not rows or run.row in wanted]
    return Study(**{**study.__dict__, "runs": runs})


def show(study: Study, out: Path) -> None:
    """The table on the terminal and in files, and the curves."""
    found = records(study, out)
    content = {
        "title": study.title,
        "data": {key: value for key, value in asdict(study.data).items() if value not in (None, False)},
        "rows": {row: [{k: v for k, v in r.items() if k != "continuations"} for r in found[row]] for row in study.rows},
        "paper": study.paper,
    }
    (out / f"{study.name}.json").write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    (out / f"{study.name}.md").write_text(page(study, found), encoding="utf-8")
    (out / f"{study.name}.tex").write_text(latex(study, found) + "\n", encoding="utf-8")
    plot_study(study, out, out / f"{study.name}.png")
    print(markdown(study, found))
    print(f"\n{out}/{study.name}.md, .tex, .json and .png")
