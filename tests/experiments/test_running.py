"""Studies: runs that are cached, go on, and share what they start from; and what is made of them."""

import json
import shutil
import sys
from dataclasses import replace

import pytest

from mgs.errors import UserError
from mgs.experiments import running
from mgs.experiments.inputs import DataOptions
from mgs.experiments.lock import locked
from mgs.experiments.paper import TRANSLATION as PAPER
from mgs.experiments.study import Run, Study, seeded, slug
from mgs.experiments.translation import translation, translation_grid
from mgs.report.html import contents
from mgs.report.runs import read_runs
from mgs.report.study import latex, markdown, page

WORDS = [("rot", "red"), ("grün", "green"), ("haus", "house"), ("baum", "tree"), ("hund", "dog")]
QUICK = {"max_steps": 2, "eval_steps": 2, "save_steps": 1, "batch_tokens": 200, "eval_max_new_tokens": 6, "patience": 0}


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    file = tmp_path_factory.mktemp("pairs") / "pairs.tsv"
    lines = [f"{a} {b} {c}\t{x} {y} {z}" for a, x in WORDS for b, y in WORDS for c, z in WORDS]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(file)


@pytest.fixture
def study(pairs):
    runs = [
        Run("MLE", "mle", "new:iwslt-tiny", options=QUICK),
        *seeded([Run("MGS-EDIT", "mgs", "@MLE", 0, "edit", QUICK | {"max_new_tokens": 6})], 2),
    ]
    paper = {"MLE": {"test": {"bleu": 34.71}}}
    return Study("words", "Words", DataOptions(task="translation", data=pairs), runs, ("bleu", "edit"), paper=paper)


@pytest.fixture
def done(study, tmp_path):
    """The folder of a study that has been carried out."""
    for run in study.runs:
        running.execute(study, run, tmp_path, progress=False)
    return tmp_path


def test_every_run_has_figures_of_every_split_and_no_checkpoints_are_left(study, done):
    found = running.records(study, done)
    assert {row: len(runs) for row, runs in found.items()} == {"MLE": 1, "MGS-EDIT": 2}
    for record in (record for runs in found.values() for record in runs):
        assert set(record["figures"]) == {"valid", "test"}
        assert record["updates"] == 2
        assert 0 <= record["figures"]["test"]["bleu"] <= 100
    assert not list(done.glob("*/checkpoint-*"))


def test_a_studys_folder_makes_a_page_of_its_runs_side_by_side(study, done):
    data = contents(read_runs([done]))
    assert [voice["name"] for voice in data["voices"]] == ["mle-0", "mgs-edit-0", "mgs-edit-1"]
    assert all(len(example["outputs"]) == 3 for example in data["examples"])
    assert {table["split"] for table in data["tables"]} == {"valid", "test"}
    assert all(table["rows"][1]["cells"][-1]["change"] for table in data["tables"])  # since MLE


@pytest.fixture
def trained(monkeypatch):
    """Names of runs as a trainer is made for them."""
    names, plain = [], running._trainer
    monkeypatch.setattr(running, "_trainer", lambda *given: names.append(given[1].name) or plain(*given))
    return names


def with_noise(study, noise):
    changed = [replace(run, options={**run.options, "noise": noise}) if run.seed == 1 else run for run in study.runs]
    return replace(study, runs=changed)


def test_what_is_done_is_not_done_again_and_not_lost_to_other_settings(study, done, trained):
    before = (done / "mgs-edit-1" / "record.json").read_text()
    for run in study.runs:
        running.execute(study, run, done, progress=False)
    other = with_noise(study, 0.5)
    with pytest.raises(
        UserError, match=r"a finished run of other settings \(noise was None and is 0.5\): give another"
    ):
        running.execute(other, other.named("mgs-edit-1"), done, progress=False)
    assert trained == []
    assert (done / "mgs-edit-1" / "record.json").read_text() == before


def test_what_was_only_begun_with_other_settings_is_begun_again(study, done, trained):
    (done / "mgs-edit-1" / "record.json").unlink()
    (done / "mgs-edit-1" / "checkpoint-9").mkdir()
    other = with_noise(study, 0.5)
    for run in other.runs:
        running.execute(other, run, done, progress=False)
    assert trained == ["mgs-edit-1"]
    assert running.is_done(other, other.named("mgs-edit-1"), done)


def test_one_process_at_a_time_is_at_work_on_a_run(study, done):
    run = study.named("mle-0")
    with locked(done / "mle-0"), pytest.raises(UserError, match=r"another process is at work on .*mle-0: wait"):
        running.execute(study, run, done, progress=False)
    running.execute(study, run, done, progress=False)


def test_other_numbers_of_examples_train_nothing_again_and_mix_with_no_others(study, done, trained, monkeypatch):
    watching = replace(study, watched=3, examples=3)
    run = replace(study.runs[0], row="Watched")
    watching = replace(watching, runs=[run])
    running.execute(watching, run, done, progress=False)
    monkeypatch.setattr("mgs.training.SequenceTrainer.train", lambda *given, **options: pytest.fail("trained again"))
    fewer = replace(watching, examples=2)
    assert running.is_trained(fewer, run, done)
    assert not running.is_done(fewer, run, done)
    running.execute(fewer, run, done, progress=False)
    record = running.records(fewer, done)["Watched"][0]
    assert record["examples"] == {"valid": 2, "test": 2}
    assert all("#2|" in signature for signature in record["signatures"].values())
    assert not running.is_done(watching, run, done)
    # what a record of before says of training that it does not depend on
    (done / "watched-0" / "record.json").write_text(
        json.dumps(record | {"settings": record["settings"] | {"examples": 3}})
    )
    assert running.is_done(fewer, run, done)


def test_another_study_only_evaluates_what_is_trained(study, done, monkeypatch):
    before = json.loads((done / "mle-0" / "record.json").read_text())
    wider = replace(study, splits=("valid", "test", "train"))
    monkeypatch.setattr("mgs.training.SequenceTrainer.train", lambda *given, **options: pytest.fail("trained again"))
    running.execute(wider, wider.named("mle-0"), done, progress=False)
    after = json.loads((done / "mle-0" / "record.json").read_text())
    assert set(after["figures"]) == {"valid", "test", "train"}
    assert after["figures"]["test"] == before["figures"]["test"]


def test_a_run_that_was_stopped_goes_on_from_its_checkpoint(study, done, tmp_path_factory, monkeypatch):
    whole = json.loads((done / "mle-0" / "record.json").read_text())["figures"]
    again = tmp_path_factory.mktemp("again")
    run = study.named("mle-0")
    plain = running.METHODS["mle"][1]

    class Stops(plain):
        def training_step(self, *given, **options):
            if self.state.global_step == 1:
                raise KeyboardInterrupt
            return super().training_step(*given, **options)

    monkeypatch.setitem(running.METHODS, "mle", (running.METHODS["mle"][0], Stops))
    with pytest.raises(KeyboardInterrupt):
        running.execute(study, run, again, progress=False)
    assert (again / "mle-0" / "checkpoint-1").is_dir()
    monkeypatch.setitem(running.METHODS, "mle", (running.METHODS["mle"][0], plain))
    running.execute(study, run, again, progress=False)
    assert json.loads((again / "mle-0" / "record.json").read_text())["figures"] == whole
    last = json.loads((again / "mle-0" / "metrics.jsonl").read_text().splitlines()[-1])
    assert "eval_bleu" in last
    assert last["eval_update_seconds"] > 0  # though what counts them comes last after a resume


def test_runs_in_processes_of_their_own_wait_for_what_they_start_from(study, done, monkeypatch):
    """The processes here only put a finished run in place."""
    finished = done.rename(done.with_name("finished"))
    started = []
    monkeypatch.setattr(running, "_start", lambda command, folder: started.append(command[-1]) or Placed(command[-1]))

    class Placed:
        def __init__(self, name):
            shutil.copytree(finished / name, done / name)

        def poll(self):
            return 0

    said = []
    assert running.run_all(study, done, lambda run: [run.name], jobs=3, say=said.append) == ([], [])
    assert started == ["mle-0", "mgs-edit-0", "mgs-edit-1"]
    assert said[0] == "0 of 3 runs are done already"


def test_a_run_that_fails_is_named_with_its_last_words_and_what_hangs_on_it_is_left(study, tmp_path, monkeypatch):
    said = []
    monkeypatch.setattr(sys, "executable", shutil.which("false") or "/bin/false")
    failed, left = running.run_all(study, tmp_path, lambda run: ["nothing"], say=said.append)
    assert [run.name for run in failed] == ["mle-0"]
    assert [run.name for run in left] == ["mgs-edit-0", "mgs-edit-1"]
    assert said[-1] == "mle-0: failed: it said nothing"
    with pytest.raises(UserError, match="no run of 'words'"):
        running.records(study, tmp_path)


def test_the_table_has_means_deviations_and_the_papers_figures(study):
    def record(bleu, edit):
        return {
            "figures": {split: {"bleu": bleu, "edit": edit} for split in ("valid", "test")},
            "signatures": {"t": "s"},
        }

    records = {"MLE": [record(30.0, 0.5)], "MGS-EDIT": [record(31.0, 0.4), record(32.0, 0.3)]}
    lines = markdown(study, records).splitlines()
    assert lines[0] == "| | runs | BLEU valid | Edit valid | BLEU test | Edit test |"
    assert lines[2] == "| MLE | 1 | 30.00 | 0.500 | 30.00 [34.71] | 0.500 |"
    assert lines[3] == "| MGS-EDIT | 2 | 31.50 ± 0.71 | 0.350 ± 0.071 | 31.50 ± 0.71 | 0.350 ± 0.071 |"
    assert r"MGS-EDIT & 31.50\,$\pm$\,0.71 &" in latex(study, records)
    assert "[the paper's figure, on its data]" in page(study, records)


def test_columns_of_latex_have_their_own_names(study):
    figures = {"lm": 1.0, "lm_with_prefix": 2.0, "edit": 0.5, "perplexity": 3.0}
    shown = latex(replace(study, columns=tuple(figures), splits=("valid",)), {"MLE": [{"figures": {"valid": figures}}]})
    assert r" & \textsc{LM} & \textsc{LM + prefix} & \textsc{Edit} & \textsc{PPL} \\" in shown


def test_the_translation_table_is_the_papers_and_more(pairs):
    made = translation("small", DataOptions(data=pairs))
    assert set(PAPER) < set(made.rows)
    assert {"MRT-SBLEU", "PG-SBLEU"} < set(made.rows)
    assert sum(run.row == "MGS-METEOR" for run in made.runs) == 3
    assert PAPER["MGS-EDIT"]["test"] == pytest.approx({"bleu": 34.73, "sbleu": 35.95, "meteor": 62.04, "edit": 0.4945})
    grid = translation_grid("small", DataOptions(data=pairs))
    assert len(grid.runs) == 1 + 3 * 4
    assert len({run.name for run in grid.runs}) == len(grid.runs)


@pytest.mark.parametrize(("scale", "problem"), [("huge", "unknown scale 'huge'"), ("small", "needs Multi30k")])
def test_scales_that_cannot_be_run_get_a_sentence(scale, problem):
    with pytest.raises(UserError, match=problem):
        translation(scale, DataOptions())


def test_names_of_folders():
    assert slug("noise 0.01, α 10.0") == "noise-0.01-10.0"
    assert Run("MGS-SBLEU (train)", "mgs", "x", 3).name == "mgs-sbleu-train-3"
