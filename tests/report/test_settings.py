"""Settings side by side."""

import json

from mgs.report.runs import read_runs
from mgs.report.settings import side_by_side

from .conftest import write_run

MLE = {"method": "mle", "cost": None, "start": "small", "max_steps": 5, "data": {"data": "docs"}}
MGS = {"method": "mgs", "cost": "lm", "start": MLE, "rank": 1, "temperature": "10.0", "data": {"data": "docs"}}


def settings(folder, **given):
    for name, each in given.items():
        record = json.loads((write_run(folder / name) / "record.json").read_text())
        (folder / name / "record.json").write_text(json.dumps(record | {"settings": each}))
    runs = read_runs([folder / name for name in given])
    return dict(zip([run.name for run in runs], side_by_side(runs), strict=True))


def test_what_a_run_was_not_told_is_what_it_assumed(tmp_path):
    found = settings(tmp_path, told=MGS, other={**MGS, "rank": None, "temperature": None, "learning_rate": 0.1})
    assert (found["told"]["temperature"], found["other"]["temperature"]) == ("10.0", "1.0")
    assert (found["told"]["learning_rate"], found["other"]["learning_rate"]) == (6.25e-5, 0.1)
    assert (found["told"]["rank"], found["other"]["rank"]) == (1, "default")
    assert list(found["told"]) == sorted(found["told"])


def test_an_option_that_a_method_does_not_have_is_left_out(tmp_path):
    found = settings(tmp_path, mgs=MGS, mle=MLE)
    assert "temperature" not in found["mle"]
    assert "cost" not in found["mle"]
    assert found["mgs"]["max_steps"] == -1


def test_a_start_is_one_row_with_the_name_of_its_run_or_what_is_known_of_it(tmp_path):
    found = settings(tmp_path, mle=MLE, mgs=MGS)
    assert (found["mgs"]["start"], found["mle"]["start"]) == ("mle", "small")
    assert not [name for each in found.values() for name in each if name.startswith("start.")]
    assert settings(tmp_path / "alone", mgs=MGS)["mgs"]["start"] == "mle from small"
