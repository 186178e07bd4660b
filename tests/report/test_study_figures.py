"""Figures of studies: what is plotted is what was measured."""

import json

import pytest
from matplotlib.axes import Axes

from mgs.experiments.inputs import DataOptions
from mgs.experiments.running import described
from mgs.experiments.study import Run, Study
from mgs.report.study_figures import FIGURES, by_option

COST = {"MRT-LM": 9.0, "MRT-LM (gold)": 1.0, "MRT-LM (+MLE 0.3)": 7.0, "PG-LM": 6.0, "MRT-edit": 5.0, "MGS-LM": 4.0}


@pytest.fixture
def mixing():
    runs = [
        Run("MRT-LM", "mrt", "m", 0, "lm", {"mle_share": 0.0}),
        Run("MRT-LM (gold)", "mrt", "m", 0, "lm", {"mle_share": 0.0, "gold_candidate": True}),
        Run("MRT-LM (+MLE 0.3)", "mrt", "m", 0, "lm", {"mle_share": 0.3}),
        Run("PG-LM", "pg", "m", 0, "lm", {"mle_share": 0.0}),
        Run("MRT-edit", "mrt", "m", 0, "edit", {"mle_share": 0.0}),
        Run("MGS-LM", "mgs", "m", 0, "lm"),
    ]
    return Study("mixing", "Mixing", DataOptions(data="d"), runs, ("lm",), ("valid",))


@pytest.fixture
def temperature():
    runs = [Run(f"α {a}", "mgs", "m", 0, "lm", {"temperature": a}) for a in ("0.0", "1.0", "100.0", "auto")]
    return Study("temperature", "Temperature", DataOptions(data="d"), runs, ("lm",), ("valid",))


@pytest.fixture
def drawn(monkeypatch):
    """What is plotted as lines."""
    seen = []
    plain = Axes.plot
    monkeypatch.setattr(Axes, "plot", lambda axes, x, y, **how: seen.append((x, y)) or plain(axes, x, y, **how))
    return seen


def finish(study, run, out, log=(), **figures):
    folder = out / run.name
    folder.mkdir()
    record = {"settings": described(study, run), "updates": 4, "update_seconds": 8.0, "seconds": 9.0}
    record |= {"figures": {"valid": figures}, "signatures": {"valid": "s"}}
    (folder / "record.json").write_text(json.dumps(record))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in log))


def test_a_point_is_a_row_that_differs_in_the_option_alone(mixing):
    found = {
        row: [{"figures": {"valid": {"lm": cost}}}, {"figures": {"valid": {"lm": cost + 1}}}]
        for row, cost in COST.items()
    }
    assert by_option(mixing, found, "mle_share", 0.0, "mrt", "lm") == {0.0: 9.5, 0.3: 7.5}
    assert by_option(mixing, found, "mle_share", 0.0, "mrt", "lm", "edit") == {0.0: 5.5}


def test_cost_and_perplexity_over_the_share_of_mle(mixing, tmp_path, drawn):
    for run in mixing.runs:
        finish(mixing, run, tmp_path, lm=COST[run.row], edit=0.5, perplexity=20.0 + COST[run.row])
    FIGURES["mixing share"](mixing, tmp_path, tmp_path / "f.png")
    assert ((0.0, 0.3), (9.0, 7.0)) in drawn
    assert ((0.0, 0.3), (29.0, 27.0)) in drawn
    assert (tmp_path / "f.png").read_bytes().startswith(b"\x89PNG")


def test_costs_that_no_run_is_done_for_have_no_panel(mixing, tmp_path):
    widths = []
    for run in sorted(mixing.runs, key=lambda run: run.cost == "edit"):
        finish(mixing, run, tmp_path, lm=COST[run.row], edit=0.5, perplexity=20.0)
        FIGURES["mixing share"](mixing, tmp_path, tmp_path / "f.png")
        widths.append(int.from_bytes((tmp_path / "f.png").read_bytes()[16:20], "big"))
    assert widths == [750] * 5 + [1500]


def test_cost_over_temperature_is_in_order_and_leaves_auto_to_a_level(temperature, tmp_path, drawn):
    for run, cost in zip(temperature.runs, (5.0, 3.0, 4.0, 2.0), strict=True):
        finish(temperature, run, tmp_path, lm=cost)
    FIGURES["cost over temperature"](temperature, tmp_path, tmp_path / "f.png")
    assert drawn[0] == ((0.0, 1.0, 100.0), (5.0, 3.0, 4.0))


@pytest.mark.parametrize(
    ("figure", "entry"),
    [
        ("training cost", "cost"),
        ("deviation of weights", "weights_std"),
        ("MLE weight", "guided_weight"),
    ],
)
def test_curves_come_from_the_logs(figure, entry, temperature, tmp_path, drawn):
    finish(temperature, temperature.runs[1], tmp_path, [{"step": 1, entry: 0.5}, {"step": 2, entry: 0.25}], lm=1.0)
    FIGURES[figure](temperature, tmp_path, tmp_path / "f.png")
    assert drawn == [((1, 2), (0.5, 0.25))]


def test_time_is_that_of_updates(temperature, tmp_path, drawn):
    finish(
        temperature,
        temperature.runs[1],
        tmp_path,
        [{"step": 2, "eval_cost": 7.0}, {"step": 4, "eval_cost": 6.0}],
        lm=1.0,
    )
    FIGURES["cost over time"](temperature, tmp_path, tmp_path / "f.png")
    assert drawn == [((4.0, 8.0), (7.0, 6.0))]


def test_updates_that_are_not_equally_long_take_the_time_that_was_logged(temperature, tmp_path, drawn):
    log = [{"step": step, "eval_cost": 7.0, "eval_update_seconds": seconds} for step, seconds in ((2, 1.5), (4, 8.25))]
    finish(temperature, temperature.runs[1], tmp_path, log, lm=1.0)
    FIGURES["cost over time"](temperature, tmp_path, tmp_path / "f.png")
    assert drawn == [((1.5, 8.25), (7.0, 7.0))]
