"""The model of more GPUs: at one it is what was measured, and what is not dealt stays."""

import pytest

from mgs.experiments.scaling import Machine

MEASURED = {
    "parameters": 1e8,
    "settings": {"candidates": 4},
    "parts": {"gradient": 0.05, "dense_again": 0.006, "rank_1_again": 0.001},
    "update": {"ours": 0.25},
    "many": [
        {"candidates": 4, "update": 0.33},
        {"candidates": 64, "update": 0.93},
        {"candidates": 256, "update": 2.85},
    ],
}


@pytest.fixture
def machine():
    return Machine.of(MEASURED)


@pytest.mark.parametrize(("candidates", "thin", "seconds"), [(4, False, 0.25), (4, True, 0.33), (256, True, 2.85)])
def test_one_gpu_takes_what_was_measured(machine, candidates, thin, seconds):
    parts = machine.predict(1, candidates, 1e8, thin)
    assert sum(parts.values()) == pytest.approx(seconds)
    assert parts["exchange"] == 0


def test_more_gpus_share_candidates_and_nothing_else(machine):
    one, eight = machine.predict(1, 256, 1e8, True), machine.predict(8, 256, 1e8, True)
    assert eight["dealt"] == pytest.approx(one["dealt"] / 8)
    assert all(eight[part] == one[part] for part in ("start", "gradient", "again"))
    assert one["start"] == pytest.approx(0.24)
    assert machine.predict(1000, 256, 1e8, True)["dealt"] == pytest.approx(one["dealt"] / 256)  # one each at least


def test_all_but_waiting_grows_with_the_model(machine):
    small, large = (machine.predict(8, 64, size, True) for size in (1e8, 7e9))
    for part in ("gradient", "dealt", "again"):
        assert large[part] == pytest.approx(70 * small[part])
    assert large["exchange"] == small["exchange"] > 0
    assert large["start"] == small["start"] > 0
