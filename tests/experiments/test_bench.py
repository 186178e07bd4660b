"""The benchmark runs, compares what it says it compares, and its parts predict the whole."""

import pytest

from mgs.experiments.bench import Bench, run_bench
from mgs.experiments.scaling import Machine


@pytest.fixture(scope="module")
def result():
    bench = Bench("tiny", rows=2, target=6, new_tokens=8, candidates=2, many=(2, 4), compared=(4,), repeats=1)
    said = []
    return run_bench(bench, said.append) | {"said": said}


def test_every_way_is_measured(result):
    assert result["update"]["largest_cost_gap"] < 1e-4  # one by one and as one batch decode alike
    for time in ("ours", "ours_with_base", "sequential", "step"):
        assert result["update"][time] > 0 or time == "step"  # two noisy times may come out the wrong way round
    two, four = result["many"]
    assert (two["candidates"], four["candidates"]) == (2, 4)
    assert {"decode", "inference", "generate", "share_of_inference"} <= four.keys()
    assert "decode" not in two
    assert len(result["said"]) == 6


def test_its_parts_are_what_the_model_of_more_gpus_needs(result):
    assert set(result["parts"]) == {"gradient", "dense_again", "rank_1_again"}
    machine = Machine.of(result)
    whole = sum(machine.predict(1, 2, machine.parameters, thin=False).values())
    assert whole == pytest.approx(result["update"]["ours"])
