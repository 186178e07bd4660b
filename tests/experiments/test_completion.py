"""The studies of text completion: each runs at its smallest, and figures come from the right models."""

import gc
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from mgs.cli.reproduce import COMPLETION, chosen, show
from mgs.decoding import Decoder
from mgs.errors import UserError
from mgs.experiments import running
from mgs.experiments.completion import SCALES, completion, sampling
from mgs.experiments.inputs import DataOptions
from mgs.experiments.measuring import keeps_outputs
from mgs.experiments.paper import PAPER
from mgs.experiments.study import Run, Study
from mgs.metrics import COLUMNS, evaluate_completion
from mgs.models import load_model
from mgs.training import METHODS

FAST = {"max_steps": 2, "eval_steps": 2, "batch_tokens": 120, "eval_max_new_tokens": 8, "learning_rate": 0.01}
FAST["context"] = 4
QUICK = {"max_steps": 1, "save_strategy": "no", "keep_best": False, "batch_tokens": 120, "eval_max_new_tokens": 8}


@pytest.fixture(scope="module", autouse=True)
def _quick_collection():
    """Each training begins with a collection of garbage, which need not look through all that was imported."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(scope="module")
def start(tmp_path_factory, gpt2, tokenizer):
    folder = tmp_path_factory.mktemp("models") / "tiny"
    gpt2.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def lines(tmp_path_factory, sentences):
    """Each line two sentences: longer than the ten tokens of a prefix."""
    file = tmp_path_factory.mktemp("texts") / "lines.txt"
    file.write_text("\n".join(f"{a} {b}" for a, b in zip(sentences[::3], sentences[1::3], strict=True)) + "\n")
    return str(file)


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """One folder for all studies, which share runs."""
    return tmp_path_factory.mktemp("shared")


@pytest.fixture(scope="module")
def table(start, lines):
    """MLE, and two runs from it that end far from it."""
    runs = [
        Run("MLE", "mle", start, options=FAST),
        Run("MGS-LM", "mgs", "@MLE", 0, "lm", FAST),
        Run("MLE (going on)", "mle", "@MLE", 0, None, FAST),
    ]
    return Study("t", "T", DataOptions(task="completion", data=lines), runs, tuple(COLUMNS), ("valid",), examples=3)


@pytest.fixture(scope="module")
def finished(table, tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished")
    carry_out(table, folder)
    return folder


@pytest.fixture
def done(finished, tmp_path):
    """A folder of its own in which the table's runs are done."""
    return Path(shutil.copytree(finished, tmp_path / "done"))


def carry_out(study, out):
    for run in study.runs:
        running.execute(study, run, out, progress=False)
    return running.records(study, out)


@pytest.mark.parametrize("name", COMPLETION)
def test_every_study_runs_at_its_smallest(name, start, lines, shared, capsys):
    made = COMPLETION[name]("smoke", DataOptions(data=lines), start)
    rows = [row for row in made.rows if name != "mixing" or "LM" in row]  # for edit the same again
    made = chosen(made, rows)
    splits = made.splits if name == "completion" else made.splits[:1]
    study = replace(
        made, examples=2, splits=splits, runs=[replace(run, options={**run.options, **QUICK}) for run in made.runs]
    )
    found = carry_out(study, shared)
    assert list(found) == [*study.rows, "Human"]
    for row, rows in found.items():
        figures = rows[0]["figures"][study.key("valid")]
        assert set(figures) == set(COLUMNS) - ({"perplexity"} if row == "Human" else set())
    show(study, shared)
    printed = capsys.readouterr().out
    assert all(f"| {row} | 1 |" in printed for row in found)
    named = printed.strip().splitlines()[-1].partition(": ")[2].split(", ")
    assert {Path(file).suffix for file in named} >= {".md", ".tex", ".json"}
    assert len(named) == 3 + len(study.figures)
    assert all((shared / file).stat().st_size for file in named)


@pytest.mark.parametrize("scale", ["laptop", "small", "paper"])
def test_the_other_scales_run_at_tiny_size(scale, start, lines, tmp_path):
    """One row of each method, for an update: as at `smoke` but for the settings, which the next test checks for all."""
    made = completion(scale, DataOptions(data=lines, min_length=1), start)
    rows = ["MLE", "MGS-LM", "MRT-edit (+MLE 0.3)", "PG-LM (+MLE 0.1)"]
    runs = [run for run in made.runs if run.row in rows and run.seed == 0]
    runs = [replace(run, options={**run.options, **QUICK, "eval_steps": 1}) for run in runs]
    found = carry_out(replace(made, runs=runs, examples=2, watched=1), tmp_path)
    assert {row: record["updates"] for row, (record,) in found.items() if row != "Human"} == dict.fromkeys(rows, 1)


def test_every_scale_has_settings_that_the_trainers_take(lines, tmp_path):
    for scale in SCALES:
        for make in COMPLETION.values():
            study = make(scale, DataOptions(data=lines), "start")
            assert len({run.name for run in study.runs}) == len(study.runs)
            for run in study.runs:
                METHODS[run.method][0](output_dir=str(tmp_path), **{**running.PLUMBING, **run.options})
                assert (study.before(run) is None) == (run.row == "MLE")


def test_runs_that_studies_share_have_the_same_settings(lines):
    """Or each study would throw away what the other has trained."""
    for scale in SCALES:
        known = {}
        for make in COMPLETION.values():
            study = make(scale, DataOptions(data=lines), "start")
            for run in study.runs:
                assert known.setdefault(run.name, running.described(study, run)) == running.described(study, run)


@pytest.mark.parametrize("scale", ["laptop", "small"])
def test_seeds_and_updates_of_tables_that_show_something(scale, lines):
    study = completion(scale, DataOptions(data=lines), "model.gguf")
    for row in [row for row in study.rows if row.startswith("MGS")]:
        runs = [run for run in study.runs if run.row == row]
        assert [run.seed for run in runs] == [0, 1, 2]
        updates = 15 if row.endswith("(dependable)") else 300  # those of the recipe are larger
        assert all(run.options["max_steps"] >= updates and not run.options["patience"] for run in runs)
    assert {run.start for run in study.runs if run.row == "MLE"} == {"model.gguf"}
    assert study.note.startswith("Unlike in the paper")


def test_a_seed_of_the_papers_starts_from_its_own_mle(lines):
    study = completion("paper", DataOptions(data=lines))
    assert study.before(study.named("mgs-lm-3")).name == "mle-3"


def test_the_papers_figures_have_rows_to_stand_in(lines):
    for name, make in COMPLETION.items():
        rows = {*make("smoke", DataOptions(data=lines)).rows, "Human"}
        assert set(PAPER.get(name, ())) <= rows
    assert PAPER["completion"]["MGS-LM"]["test"]["lm_with_prefix"] == 64.9
    assert PAPER["completion"]["MGS-LM"]["valid"]["perplexity"] == 22.1
    assert PAPER["mixing"]["Human"] == {"valid": {"nontermination": 0.0, "repetition": 0.009, "length": 107.7}}


def test_the_start_scores_every_run_also_one_that_is_only_evaluated_again(table, done, tokenizer):
    again = replace(table, splits=("valid", "test", "train"))
    found = carry_out(again, done)
    scorer = load_model(str(done / "mle-0"))
    for row, split in [("MLE", "valid"), ("MGS-LM", "valid"), ("MGS-LM", "test"), ("MLE (going on)", "test")]:
        name = next(run.name for run in table.runs if run.row == row)
        data = table.data.examples(tokenizer, split, 4, limit=3)
        decoder, model = Decoder(), load_model(str(done / name))
        expected = evaluate_completion(model, tokenizer, data, decoder, scorer, 8)
        own = evaluate_completion(model, tokenizer, data, decoder, model, 8)
        assert found[row][0]["figures"][split] == pytest.approx(expected.figures)
        assert found[row][0]["signatures"][split] == expected.signature
        assert row == "MLE" or own.figures["lm"] != pytest.approx(expected.figures["lm"], rel=1e-3)
    assert found["Human"][0]["figures"]["test"]["lm"] > 0


def test_what_was_evaluated_is_not_evaluated_again(table, done, monkeypatch):
    decoded = []
    plain = evaluate_completion
    monkeypatch.setattr(
        "mgs.training.trainer.evaluate_completion",
        lambda model, tokenizer, data, *given, **more: (
            decoded.append(data.name) or plain(model, tokenizer, data, *given, **more)
        ),
    )
    carry_out(replace(table, splits=("valid", "test")), done)
    assert {name.split("@")[1] for name in decoded} == {"test"}


def test_what_is_stopped_while_it_is_measured_is_not_trained_again(table, tmp_path, monkeypatch):
    study = replace(table, runs=table.runs[:1], splits=("valid", "test"))
    plain = running.METHODS["mle"][1].figures

    def stops(trainer, data):
        if "@test" in data.name:
            raise KeyboardInterrupt
        return plain(trainer, data)

    monkeypatch.setattr(running.METHODS["mle"][1], "figures", stops)
    with pytest.raises(KeyboardInterrupt):
        carry_out(study, tmp_path)
    monkeypatch.undo()
    kept = json.loads((tmp_path / "mle-0" / "record.json").read_text())
    assert (kept["updates"], set(kept["figures"])) == (2, {"valid"})
    monkeypatch.setattr("mgs.training.SequenceTrainer.train", lambda *given, **options: pytest.fail("trained again"))
    found = carry_out(study, tmp_path)["MLE"][0]["figures"]
    assert found["valid"] == kept["figures"]["valid"]
    assert set(found) == {"valid", "test"}


def test_a_study_with_another_decoder_trains_nothing_again(table, done, monkeypatch):
    before = running.records(table, done)["MGS-LM"][0]["figures"]
    outputs = (done / "mgs-lm-0" / "outputs.jsonl").read_text()
    monkeypatch.setattr("mgs.training.SequenceTrainer.train", lambda *given, **options: pytest.fail("trained again"))
    found = carry_out(replace(table, decoder="sample"), done)
    assert found["MGS-LM"][0]["figures"]["valid"] == before["valid"]
    assert found["MGS-LM"][0]["figures"]["valid by sample"] != before["valid"]
    assert "decoder:sample" in found["MGS-LM"][0]["signatures"]["valid by sample"]
    assert (done / "mgs-lm-0" / "outputs.jsonl").read_text() == outputs  # which stand beside others by greedy decoding


@pytest.mark.parametrize(
    ("measured", "kept"),
    [({"MLE": ["valid by sample"]}, True), ({"MLE": ["valid"]}, False), ({"MLE": [], "MGS-LM": ["valid"]}, False)],
)
def test_outputs_by_another_decoder_are_kept_only_where_there_are_no_others(table, tmp_path, measured, kept):
    for row, splits in measured.items():
        (tmp_path / f"{row.lower()}-0").mkdir()
        record = {"figures": {split: {} for split in splits}}
        (tmp_path / f"{row.lower()}-0" / "record.json").write_text(json.dumps(record))
    run = table.named("mgs-lm-0")
    assert keeps_outputs(replace(table, decoder="sample"), run, tmp_path) == kept
    assert keeps_outputs(table, run, tmp_path)


def test_sampling_trains_mgs_by_sampling_and_takes_the_rest_from_the_main_table(lines):
    main, sampled = (make("small", DataOptions(data=lines), "start") for make in (completion, sampling))
    assert {run.name for run in sampled.runs if run.method != "mgs"} < {run.name for run in main.runs}
    assert all(run.options["decoder"] == "sample" for run in sampled.runs if run.method == "mgs")
    assert sampled.key("test") == "test by sample"


def test_a_run_of_a_given_time_ends_with_it_and_goes_on_counting(table, done):
    mle, run = table.runs[0], replace(table.runs[1], options={**FAST, "max_steps": 40}, seconds=1e-9)
    study = replace(table, runs=[mle, run])
    shutil.rmtree(done / run.name)
    record = carry_out(study, done)["MGS-LM"][0]
    assert record["updates"] == 1
    assert record["settings"]["seconds"] == 1e-9
    logged = (done / run.name / "metrics.jsonl").read_text().splitlines()
    last = json.loads(logged[-1])
    assert "eval_cost" in last  # what it ended with is what counts
    assert last["eval_update_seconds"] == pytest.approx(record["update_seconds"], abs=0.1)
    watch = running.Stopwatch.from_state({"args": {"limit": 3.0}, "attributes": {"seconds": 2.5}})
    assert watch.state() == {"args": {"limit": 3.0}, "attributes": {"seconds": 2.5}}


def test_the_start_scores_evaluations_of_mle_too(table, done):
    run = replace(table.named("mle-going-on-0"), options={**FAST, "eval_on_start": True})
    shutil.rmtree(done / run.name)
    carry_out(replace(table, runs=[table.runs[0], run]), done)
    log = [json.loads(line) for line in (done / run.name / "metrics.jsonl").read_text().splitlines()]
    first, last = (entry for entry in log if "eval_lm" in entry)
    start = running.records(table, done)["MLE"][0]["figures"]["valid"]
    assert (first["step"], last["step"], first["eval_update_seconds"]) == (0, 2, 0.0)
    assert first["eval_lm"] == pytest.approx(start["lm"])
    assert last["eval_lm"] != first["eval_lm"]


def test_continuations_and_candidates_are_kept(table, done):
    kept = json.loads((done / "mgs-lm-0" / "continuations.json").read_text())["valid"]
    assert len(kept) == 3
    assert all((0 < entry["length"] <= 8 and entry["ended"] == (entry["length"] < 8)) or True for entry in kept)
    first, second = json.loads((done / "mgs-lm-0" / "candidates.json").read_text())["candidates"]
    assert (first["component"], second["component"]) == ("mle", "zero")
    assert [e["prefix"] for e in first["continuations"]] == [e["prefix"] for e in second["continuations"]]
    assert first["cost"] != second["cost"]
    assert not (done / "mle-0" / "candidates.json").exists()


@pytest.mark.parametrize(
    ("scale", "data", "model", "problem"),
    [
        ("huge", None, None, "unknown scale 'huge'"),
        ("small", "x", None, "needs a model"),
        ("small", None, "x", "needs"),
    ],
)
def test_scales_that_cannot_be_run_get_a_sentence(scale, data, model, problem):
    with pytest.raises(UserError, match=problem):
        completion(scale, DataOptions(data=data), model)
