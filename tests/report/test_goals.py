"""When runs reached a goal, out of their logs."""

import pytest

from mgs.experiments.inputs import DataOptions
from mgs.experiments.study import Goal, Run, Study, seeded
from mgs.report.goals import goal_table
from mgs.report.study import page

from .test_study_figures import finish

GOAL = Goal({"nontermination": 0.1}, {"perplexity": 1.1})


def evaluation(step, nontermination, perplexity):
    figures = {"eval_nontermination": nontermination, "eval_perplexity": perplexity}
    return {"step": step, "eval_update_seconds": 1.5 * step, **figures}


@pytest.fixture
def study():
    rows = [
        Run("good", "mgs", "@MLE", 0, "lm"),
        Run("bad", "mgs", "@MLE", 0, "lm"),
        Run("late", "mgs", "@MLE", 0, "lm"),
    ]
    runs = [Run("MLE", "mle", "m"), *seeded(rows, 3)]
    return Study("s", "S", DataOptions(data="d"), runs, ("lm",), ("valid",), goal=GOAL)


def test_the_first_evaluation_that_meets_the_goal_counts_and_so_does_the_last(study, tmp_path):
    start, done, spoilt = evaluation(0, 0.5, 20.0), (0.1, 22.0), (0.0, 22.1)
    logs = {
        "good-0": [start, evaluation(2, *done), evaluation(4, *spoilt)],
        "good-1": [start, {"step": 1, "cost": 3.0}, evaluation(4, *done), evaluation(6, *done)],
        "good-2": [start, evaluation(2, 0.2, 20.0)],
        "bad-0": [start, evaluation(2, *spoilt)],
    }
    for name, log in {"mle-0": [start], **logs}.items():
        finish(study, study.named(name), tmp_path, log, lm=1.0)
    lines = goal_table(study, tmp_path).splitlines()
    assert lines[0] == "Goal: nontermination ≤ 0.1, perplexity ≤ 1.1 × the start's."
    assert lines[4:6] == ["| good | 3 | 2 | 3 | 4.5 | 1 |", "| bad | 1 | 0 | – | – | 0 |"]  # and no `late`
    assert lines[6] == ""


def test_logs_that_say_nothing_of_time_leave_it_out(study, tmp_path):
    log = [evaluation(0, 0.5, 20.0), evaluation(2, 0.0, 20.0)]
    for name in ("mle-0", "good-0"):
        finish(study, study.named(name), tmp_path, log, lm=1.0)
    for entry in log:
        del entry["eval_update_seconds"]
    for name in ("good-1", "bad-0"):
        finish(study, study.named(name), tmp_path, log, lm=1.0)
    lines = goal_table(study, tmp_path).splitlines()
    assert lines[4:6] == ["| good | 2 | 2 | 2 | 3 | 2 |", "| bad | 1 | 1 | 2 | – | 1 |"]


def test_a_study_without_a_goal_has_no_second_table(tmp_path):
    study = Study("s", "S", DataOptions(data="d"), [Run("MLE", "mle", "m")], ("lm",))
    assert goal_table(study, tmp_path) == ""


def test_the_page_has_the_second_table_below_the_first(study):
    record = {"figures": {"valid": {"lm": 1.0}}, "signatures": {"valid": "the signature"}}
    text = page(study, {"MLE": [record]}, "| second |")
    assert text.index("| MLE | 1 |") < text.index("| second |") < text.index("the signature")
    assert page(study, {"MLE": [record]}) == text.replace("| second |\n\n", "")
