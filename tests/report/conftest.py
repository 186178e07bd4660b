"""Folders of runs as training leaves them, written by hand, with text in them that tries to be more than text."""

import json

import pytest

EVIL = "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\"> & <b>bold</b>"
FIGURES = {
    "lm": 40.0,
    "lm_with_prefix": 100.0,
    "edit": 0.9,
    "nontermination": 0.2,
    "repetition": 0.1,
    "length": 12.5,
    "perplexity": 22.0,
}
START = FIGURES | {"lm": 80.0, "lm_with_prefix": 140.0, "nontermination": 0.4, "length": 50.0, "perplexity": 20.0}
SIGNATURE = "data:docs@valid#30|context:10|decoder:greedy|cap:60|mgs:0.1.0"


def line(step, index, output, ended=True, length=5, repetition=0.0, repeated=()):
    return {
        "step": step,
        "prefix": f"prefix {index}",
        "target": f"human {index}",
        "output": output,
        "ended": ended,
        "length": length,
        "target_length": 7,
        "repetition": repetition,
        "repeated": repeated,
    }


def outputs(final):
    """30 prefixes: the start does not end on the first six, and repeats itself on the first three."""
    before = [
        line(0, i, "🙂 ab ab ab", i >= 6, 60 if i < 6 else 5, 0.5 if i < 3 else 0.0, [[5, 10]] if i < 3 else [])
        for i in range(30)
    ]
    after = [line(4, i, f"{final} {i}" if i % 2 else "🙂 ab ab ab") for i in range(29)]
    return [*before, *after, line(4, 29, EVIL)]


def write_run(folder, method="mgs", final="better", figures=FIGURES, **settings):
    folder.mkdir(parents=True)
    settings = {
        "method": method,
        "cost": "lm",
        "model": "small",
        "data": "docs",
        "decoder": "greedy",
        "seed": 1,
    } | settings
    record = {"settings": settings, "updates": 4, "kept": 4, "seconds": 1.5}
    record |= {"figures": {"valid": figures}, "signatures": {"valid": SIGNATURE}, "human": {"valid": {"length": 30.0}}}
    record["start"] = {"figures": {"valid": START | {"cost": 80.0}}, "signatures": {"valid": SIGNATURE}}
    updates = [
        {"step": step, "micro": 0, "best_cost": 50.0 - step, "effective": 1.0 + step / 4, "guided_weight": 0.5}
        for step in range(1, 5)
    ]
    watched = [
        {"step": 2, "eval_cost": 60.0, "eval_perplexity": 21.0},
        {"step": 4, "eval_cost": 40.0, "eval_perplexity": 22.0},
    ]
    (folder / "record.json").write_text(json.dumps(record))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in (*updates, *watched)) + '{"st')
    (folder / "outputs.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in outputs(final)))
    return folder


@pytest.fixture
def run(tmp_path):
    return write_run(tmp_path / "run")


@pytest.fixture
def runs(tmp_path):
    """Two that differ in a setting, one with a name that tries to be more."""
    first = write_run(tmp_path / "first", temperature="1.0")
    return [first, write_run(tmp_path / "<b>second", final="other", temperature="10.0", figures=FIGURES | {"lm": 30.0})]
