"""`mgs reproduce NAME`: the runs of a table, and the table; `mgs reproduce all`: of every table."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from mgs.cli.arguments import Parser
from mgs.decoding.memory import share_memory
from mgs.errors import UserError, at_least, unknown
from mgs.experiments.ablations import many, mixing, proposal, temperature
from mgs.experiments.completion import SCALES, completion, examples, sampling
from mgs.experiments.inputs import DataOptions
from mgs.experiments.running import OUTPUT, execute, is_done, records, run_all
from mgs.experiments.search import search
from mgs.experiments.study import Run, Study, slug
from mgs.experiments.translation import translation, translation_grid
from mgs.report.examples import PAGES
from mgs.report.goals import goal_table
from mgs.report.study import latex, markdown, page
from mgs.report.study_figures import FIGURES
from mgs.training.config import option

COMPLETION = {f.__name__: f for f in (completion, sampling, proposal, mixing, temperature, many, search, examples)}
TRANSLATION = {"translation": translation, "translation-grid": translation_grid}
STUDIES: dict[str, Callable[[str, DataOptions, str | None], Study]] = {**COMPLETION, **TRANSLATION}
ALL = "all"


@dataclass
class ReproduceOptions:
    """The experiment."""

    scale: str = option("smoke", f"How large: {', '.join(SCALES)}.")
    model: str | None = option(
        None, "Model to start from, instead of the scale's: a folder, a .gguf file, a hub name; small needs one."
    )
    pairs: str | None = option(None, "With `all`: the sentence pairs, and --data the sequences for completion.")
    output_dir: str | None = option(
        None, "Folder of the runs, one below it for each, and of tables and figures (default: reproduced/TASK-SCALE)."
    )
    examples: int | None = option(
        None, "Examples of each split that figures come from, the first (default: the scale's): fewer take less time."
    )
    watched: int | None = option(
        None, "Validation examples decoded during training (default: the scale's): fewer where that takes long."
    )
    jobs: int = option(1, "Runs at the same time: small models leave most of a GPU idle.")
    minutes: float | None = option(None, "Stop after this long; the same command goes on from there.")
    rows: list[str] = option([], "Only these rows, and what they start from.")
    only: str | None = option(None, "Only this run, in this process; with `all`, STUDY/RUN.")

    def __post_init__(self) -> None:
        at_least(1, jobs=self.jobs, watched=self.watched, examples=self.examples)
        if self.minutes is not None and not 0 < self.minutes < math.inf:
            raise UserError(f"minutes must be a time, more than 0, got {self.minutes}")


def reproduce(argv: Sequence[str]) -> None:
    if not argv or argv[0] in ("-h", "--help"):
        print(f"usage: mgs reproduce NAME [options]\n\nNAME is one of {', '.join((*STUDIES, ALL))}.")
        print("`mgs reproduce NAME --help` shows the options.")
        return
    name = argv[0]
    if name not in (*STUDIES, ALL):
        raise unknown("table or figure", name, (*STUDIES, ALL))
    parser = Parser((ReproduceOptions, DataOptions), f"mgs reproduce {name}", "Run an experiment and make its table.")
    options, data = parser.parse(argv[1:])
    made = [studied(each, name == ALL, options, data) for each in (STUDIES if name == ALL else [name])]
    if options.only:
        which, _, run = options.only.rpartition("/")
        study, out = next(pair for pair in made if pair[0].name == which or not which)
        share_memory(options.jobs)
        execute(study, study.named(run), out, progress=False)
        return
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // options.jobs)))
    deadline = time.monotonic() + 60 * options.minutes if options.minutes else None
    failed = [run for study, out in made for run in carry_out(study, out, argv, options.jobs, deadline)]
    if failed:
        sys.exit(1)


def studied(name: str, one_of_all: bool, options: ReproduceOptions, data: DataOptions) -> tuple[Study, Path]:
    """A study and its folder. Tasks have folders of their own: a row of the same name is another run there."""
    translates, model, mine = name in TRANSLATION, options.model, replace(data)
    if one_of_all and translates:
        model, mine.data = None, options.pairs
    study = chosen(STUDIES[name](options.scale, mine, model), options.rows)
    study = replace(study, watched=options.watched or study.watched, examples=options.examples or study.examples)
    task = "translation" if translates else "completion"
    if options.output_dir is None:
        return study, Path("reproduced") / slug(f"{task}-{options.scale}")
    return study, Path(options.output_dir, *([task] if one_of_all else []))


def carry_out(study: Study, out: Path, argv: Sequence[str], jobs: int, deadline: float | None) -> list[Run]:
    """What is left of a study, until the deadline, and its table so far. Returns what has failed."""

    def child(run: Run) -> list[str]:
        return ["reproduce", *argv, "--only", f"{study.name}/{run.name}"]

    minutes = None if deadline is None else max(1e-6, (deadline - time.monotonic()) / 60)
    failed, left = run_all(study, out, child, jobs, minutes)
    if any(is_done(study, run, out) for run in study.runs):
        show(study, out)
    if failed:
        print(f"{len(failed)} runs failed ({names(failed)}): why is said in {out}/RUN.{OUTPUT}")
    if left:
        print(f"{len(left)} runs are left ({names(left)}): the same command goes on with them")
    return failed


def names(runs: Sequence[Run]) -> str:
    return ", ".join(run.name for run in runs)


def chosen(study: Study, rows: Sequence[str]) -> Study:
    """The study cut down to some rows and those they start from."""
    for row in rows:
        if row not in study.rows:
            raise unknown("row", row, study.rows)
    wanted = {*rows, *(run.start[1:] for run in study.runs if run.row in rows)}
    return replace(study, runs=[run for run in study.runs if not rows or run.row in wanted])


def show(study: Study, out: Path) -> None:
    """The table on the terminal and in files, and the figures."""
    found, goal = records(study, out), goal_table(study, out)
    content = {
        "title": study.title,
        "note": study.note,
        "data": {key: value for key, value in asdict(study.data).items() if value not in (None, False)},
        "rows": found,
        "paper": study.paper,
    }
    written = {
        f"{study.name}.json": json.dumps(content, indent=2, ensure_ascii=False) + "\n",
        f"{study.name}.md": page(study, found, goal),
        f"{study.name}.tex": latex(study, found) + "\n",
        **{f"{study.name}-{name}.md": PAGES[name](study, out) for name in study.figures if name in PAGES},
    }
    for name, text in written.items():
        (out / name).write_text(text, encoding="utf-8")
    drawn = [name for name in study.figures if name in FIGURES]
    files = [f"{study.name}.png" if name == "progress" else f"{study.name}-{slug(name)}.png" for name in drawn]
    for name, file in zip(drawn, files, strict=True):
        FIGURES[name](study, out, out / file)
    tables = "\n\n".join(filter(None, (markdown(study, found), goal)))
    print(f"# {study.title}\n\n{tables}\n\n{out}: {', '.join((*written, *files))}")
