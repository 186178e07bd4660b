"""`mgs reproduce`: which runs of which studies, where, and what is refused."""

import json
from pathlib import Path

import pytest

from mgs.cli import reproduce
from mgs.cli.reproduce import ALL, STUDIES, ReproduceOptions, carry_out, studied
from mgs.experiments.inputs import DataOptions
from mgs.experiments.running import PLUMBING
from mgs.training import METHODS


def test_help_names_every_study(call):
    answer = call("reproduce")
    assert answer.code == 0
    assert all(name in answer.out for name in (*STUDIES, ALL))


def test_mistakes_get_a_sentence(refused):
    assert "did you mean 'completion'" in refused("reproduce", "completions")
    assert "needs a model" in refused("reproduce", "mixing", "--scale", "small", "--data", "x")
    assert "unknown row 'MGS'" in refused("reproduce", "proposal", "--rows", "MGS")
    assert "examples must be at least 1" in refused("reproduce", "proposal", "--examples", "0")


def test_one_run_is_done_in_this_process(call, here, model_folder, text_file):
    flags = ("--model", model_folder, "--data", text_file, "--out", "out", "--only", "mle-0")
    assert call("reproduce", "proposal", *flags).code == 0
    assert set(json.loads((here / "out" / "mle-0" / "record.json").read_text())["figures"]) == {"valid"}


def test_with_all_a_run_is_named_with_its_study(call, here, model_folder, text_file, monkeypatch):
    done, sharing = [], []
    monkeypatch.setattr(reproduce, "share_memory", sharing.append)
    monkeypatch.setattr(
        reproduce, "execute", lambda study, run, out, progress: done.append((study.name, run.name, out))
    )
    call("reproduce", "all", "--data", text_file, "--model", model_folder, "--only", "translation/mle-0", "--out", "o")
    call(
        "reproduce",
        "all",
        "--data",
        text_file,
        "--model",
        model_folder,
        "--only",
        "mixing/pg-lm-0",
        "--out",
        "o",
        "--jobs",
        "3",
    )
    assert done == [("translation", "mle-0", Path("o/translation")), ("mixing", "pg-lm-0", Path("o/completion"))]
    assert sharing == [1, 3]


def test_tasks_and_scales_have_folders_of_their_own():
    options, data = ReproduceOptions(pairs="pairs.tsv", model="m"), DataOptions(data="lines.txt")
    study, out = studied("completion", True, options, data)
    assert (study.data.data, study.runs[0].start, out) == ("lines.txt", "m", Path("reproduced/completion-smoke"))
    study, out = studied("translation", True, options, data)
    assert study.data.data == "pairs.tsv"
    assert study.runs[0].start == "new:iwslt-tiny"
    assert out == Path("reproduced/translation-smoke")
    assert data.data == "lines.txt"


def test_fewer_examples_than_the_scale_s():
    plain, _ = studied("completion", False, ReproduceOptions(scale="small", model="m"), DataOptions(data="x"))
    options = ReproduceOptions(scale="small", model="m", examples=50, watched=20)
    fewer, _ = studied("completion", False, options, DataOptions(data="x"))
    assert [(study.examples, study.watched) for study in (plain, fewer)] == [(500, 200), (50, 20)]


@pytest.mark.parametrize(("deadline", "given"), [(None, None), (0.0, 1e-6)])
def test_a_deadline_that_has_passed_leaves_no_time(deadline, given, monkeypatch, tmp_path, capsys):
    asked = []
    monkeypatch.setattr(
        reproduce, "run_all", lambda study, out, child, jobs, minutes: asked.append(minutes) or ([], study.runs[:1])
    )
    study, _ = studied("proposal", False, ReproduceOptions(), DataOptions())
    carry_out(study, tmp_path, ["proposal"], 1, deadline)
    assert asked == [given]
    assert capsys.readouterr().out == "1 runs are left (mle-0): the same command goes on with them\n"


def test_runs_that_failed_are_said_apart_from_those_that_are_left_and_are_an_exit_code(call, monkeypatch):
    monkeypatch.setattr(reproduce, "run_all", lambda study, *given: (study.runs[:1], study.runs[1:2]))
    answer = call("reproduce", "proposal", "--out", "out")
    assert answer.code == 1
    assert answer.out.startswith("1 runs failed (mle-0): why is said in out/RUN.output.txt\n1 runs are left (")
    monkeypatch.setattr(reproduce, "run_all", lambda study, *given: ([], study.runs))
    assert call("reproduce", "proposal", "--out", "out").code == 0


@pytest.mark.parametrize("scale", ["smoke", "laptop"])
def test_two_scales_need_neither_data_nor_a_model(scale, tmp_path):
    for make in STUDIES.values():
        study = make(scale, DataOptions(), None)
        assert study.data.source in ("docstrings", "cldr")
        for run in study.runs:
            METHODS[run.method][0](output_dir=str(tmp_path), **{**PLUMBING, **run.options})
