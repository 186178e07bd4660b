"""Figures of searches side by side: what is plotted is what was logged."""

import pytest
from matplotlib.axes import Axes

from mgs.experiments.inputs import DataOptions
from mgs.experiments.study import Run, Study
from mgs.report.study_figures import FIGURES

from .test_study_figures import drawn, finish  # noqa: F401

RUNS = [
    Run("MLE", "mle", "m"),
    Run("LM: a", "mgs", "@MLE", 0, "lm"),
    Run("LM: a", "mgs", "@MLE", 1, "lm"),
    Run("edit: a", "mgs", "@MLE", 0, "edit"),
    Run("steps", "mle", "@MLE", 0),
]


@pytest.fixture
def study():
    return Study("search", "Search", DataOptions(data="d"), RUNS, ("lm",), ("valid",))


@pytest.fixture
def said(monkeypatch):
    """What is written into panels, and what legends name."""
    texts = []
    monkeypatch.setattr(Axes, "text", lambda axes, x, y, text, **how: texts.append(text))
    monkeypatch.setattr(
        "matplotlib.figure.Figure.legend", lambda figure, lines, names, **how: texts.append(list(names))
    )
    return texts


def log(*points):
    return [{"step": i, "eval_perplexity": x, "eval_lm": y, "eval_edit": y / 100} for i, (x, y) in enumerate(points)]


def test_the_frontier_has_every_evaluation_the_last_apart_and_the_start_once(study, tmp_path, drawn, said):  # noqa: F811
    finish(study, RUNS[0], tmp_path, log((19, 60)), lm=1.0)
    finish(study, RUNS[1], tmp_path, log((20, 50), (21, 40), (22, 30)), lm=1.0)
    finish(study, RUNS[2], tmp_path, log((20, 50), (23, 41), (24, 31)), lm=1.0)
    finish(study, RUNS[3], tmp_path, log((20, 50), (25, 40)), lm=1.0)
    finish(study, RUNS[4], tmp_path, log((20, 50), (26, 45)), lm=1.0)
    FIGURES["frontier"](study, tmp_path, tmp_path / "f.png")
    lm = [((21, 23), (40, 41)), ((22, 24), (30, 31)), ((26,), (45,)), ((20,), (50,))]
    assert drawn == [*lm, ((25,), (0.4,)), ((26,), (0.45,)), ((20,), (0.5,))]
    assert said == [["a", "steps", "MLE, the start"]]  # one legend for both costs
    assert (tmp_path / "f.png").read_bytes().startswith(b"\x89PNG")


def test_transfer_is_a_point_for_each_seed_and_their_mean(study, tmp_path, drawn, said):  # noqa: F811
    finish(study, RUNS[1], tmp_path, [{"step": 2, "transfer": 0.5}, {"step": 4, "transfer": 0.75}], lm=1.0)
    finish(study, RUNS[2], tmp_path, [{"step": 2, "transfer": 0.25}, {"step": 3, "cost": 1.0}], lm=1.0)
    FIGURES["transfer"](study, tmp_path, tmp_path / "f.png")
    assert drawn == [((2, 4, 2), (0.5, 0.75, 0.25)), ((2, 4), (0.375, 0.75))]
    assert said == ["nothing logged", ["a"]]  # for edit, and for LM
