"""What goes wrong in the middle of a run: numbers that are not finite, costs that hang, disks that are full."""

import json
import math
import resource
import time
from dataclasses import replace

import pytest
import torch

from mgs.errors import CostError, NonFinite, UserError
from mgs.training import newest_checkpoint
from mgs.training.checkpoints import checkpoints, damage


def skipped(folder):
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [(line["step"], line["skipped"], line["why"]) for line in lines if "why" in line]


class Poisoned:
    """A method whose gradient has a value that is not finite in one update."""

    def __init__(self, method, step, value):
        self.method, self.step, self.value = method, step, value
        self.state, self.load_state = method.state, method.load_state

    def __call__(self, model, batch, key):
        outcome = self.method(model, batch, key)
        if key.step == self.step:
            outcome = replace(
                outcome, gradient={n: torch.full_like(g, self.value) for n, g in outcome.gradient.items()}
            )
        return outcome


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("method", ["mle", "pg"])
def test_an_update_that_is_not_finite_is_skipped_and_leaves_everything_as_it_was(
    make_trainer, assert_same_weights, tmp_path, method, value
):
    options = {"eval_strategy": "no", "weight_decay": 0.1, "nonfinite": "skip", "gradient_accumulation_steps": 2}
    two = make_trainer(method, tmp_path / "two", max_steps=2, **options)
    two.train()
    three = make_trainer(method, tmp_path / "three", max_steps=3, **options)
    three.method = Poisoned(three.method, 2, value)
    with pytest.warns(UserWarning, match="1 updates were skipped"):
        three.train()
    assert three.state.global_step == 3
    assert_same_weights(two.model, three.model)
    assert two.method.state() == three.method.state()
    ours, theirs = (trainer.optimizer.state_dict()["state"] for trainer in (two, three))
    assert all(torch.equal(ours[i][name], theirs[i][name]) for i in ours for name in ours[i])
    ((step, count, why),) = skipped(tmp_path / "three")
    assert (step, count) == (3, 1)
    assert "the gradient of update 3 is not finite" in why


def test_by_default_such_an_update_stops_the_run_after_a_checkpoint(make_trainer, assert_same_weights, tmp_path):
    straight = make_trainer("pg", tmp_path / "straight", max_steps=3, eval_strategy="no")
    straight.train()
    stopped = make_trainer("pg", tmp_path / "stopped", max_steps=3, eval_strategy="no")
    stopped.method = Poisoned(stopped.method, 2, math.nan)
    with pytest.raises(NonFinite, match="the gradient of update 3 is not finite"):
        stopped.train()
    assert newest_checkpoint(tmp_path / "stopped").name == "checkpoint-2"
    resumed = make_trainer("pg", tmp_path / "stopped", max_steps=3, eval_strategy="no")
    resumed.train(resume_from_checkpoint=True)
    assert_same_weights(straight.model, resumed.model)


def test_the_search_does_not_decode_around_a_gradient_that_is_not_finite(make_trainer, tmp_path, monkeypatch):
    trainer = make_trainer("mgs", tmp_path, nonfinite="skip", eval_strategy="no", max_steps=2)
    before = {name: tensor.clone() for name, tensor in trainer.model.state_dict().items()}
    gradient = {name: torch.full_like(p, math.nan) for name, p in trainer.model.named_parameters()}
    monkeypatch.setattr("mgs.methods.centres.mle_gradient", lambda *args, **options: (gradient, 1.0))
    monkeypatch.setattr(trainer.method.candidates, "means", None)
    with pytest.warns(UserWarning, match="2 updates were skipped"):
        trainer.train()
    assert all(torch.equal(before[name], tensor) for name, tensor in trainer.model.state_dict().items())
    assert [count for _, count, _ in skipped(tmp_path)] == [1, 2]


class Sometimes:
    """A cost that is not finite in some of its calls."""

    def __init__(self, calls, value=math.nan):
        self.wrong, self.value, self.calls = calls, value, 0

    def __call__(self, hypotheses, references):
        self.calls += 1
        values = [float(len(set(h.token_ids))) for h in hypotheses]
        return [*values[:-1], self.value] if self.calls in self.wrong else values


@pytest.mark.filterwarnings("ignore:.*updates were skipped")
@pytest.mark.parametrize("method", ["mgs", "mrt", "pg"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_cost_that_is_not_finite_is_skipped_or_stops_as_configured(make_trainer, tmp_path, method, value):
    options = {"eval_strategy": "no", "max_steps": 4} | ({"mle_share": 0.0} if method != "mgs" else {})
    wrong = (1,) if method == "mgs" else (1, 3)  # of the search's calls a second may follow a first
    trainer = make_trainer(method, tmp_path / "skip", Sometimes(wrong, value), nonfinite="skip", **options)
    trainer.train()
    assert [count for _, count, _ in skipped(tmp_path / "skip")] == list(range(1, len(wrong) + 1))
    assert skipped(tmp_path / "skip")[0][0] == 1
    assert f"returned {value}" in skipped(tmp_path / "skip")[0][2]
    assert all(tensor.isfinite().all() for tensor in trainer.model.state_dict().values())
    stopping = make_trainer(method, tmp_path / "stop", Sometimes(wrong, value), **options)
    with pytest.raises(CostError, match="costs must be finite"):
        stopping.train()


@pytest.mark.filterwarnings("ignore:.*updates were skipped")
def test_the_count_survives_a_resume(make_trainer, tmp_path):
    options = {"eval_strategy": "no", "nonfinite": "skip", "save_steps": 1, "mle_share": 0.0}
    make_trainer("mrt", tmp_path, Sometimes((1, 2)), max_steps=2, **options).train()
    make_trainer("mrt", tmp_path, Sometimes((1,)), max_steps=4, **options).train(resume_from_checkpoint=True)
    assert [(step, count) for step, count, _ in skipped(tmp_path)] == [(1, 1), (2, 2), (3, 3)]


def hangs(hypotheses, references):
    time.sleep(60)


def insists(hypotheses, references):
    while True:
        try:
            time.sleep(60)
        except Exception:
            continue


@pytest.mark.parametrize("cost", [hangs, insists])
def test_a_cost_that_hangs_stops_the_run_in_time(make_trainer, tmp_path, cost):
    trainer = make_trainer("mgs", tmp_path, cost, cost_timeout=0.05, eval_strategy="no")
    began = time.monotonic()
    with pytest.raises(CostError, match=rf"'{cost.__name__}' did not answer within 0.05 s \(on \d+ hypotheses"):
        trainer.train()
    assert time.monotonic() - began < 10


def test_a_cost_in_time_is_left_alone(make_trainer, tmp_path):
    trainer = make_trainer("mgs", tmp_path, cost_timeout=60, eval_strategy="no", max_steps=1)
    trainer.train()
    assert trainer.state.global_step == 1


@pytest.mark.parametrize("limit", [12_000, 40_000, 600], ids=["weights", "optimizer", "configuration"])
def test_a_full_disk_is_a_sentence_and_the_last_checkpoint_stays(
    make_trainer, finish, assert_same_weights, tmp_path, limit
):
    """Files of this process cannot grow beyond a limit: what each library makes of that is what it makes of ENOSPC."""
    options = {"eval_strategy": "no", "save_steps": 1, "max_steps": 3, "save_total_limit": 1}

    def fills_up():
        trainer = make_trainer("mle", tmp_path / "full", **options)
        write, count = trainer._write_checkpoint, 0

        def limited(target):
            nonlocal count
            count += 1
            if count == 2:
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
            write(target)

        trainer._write_checkpoint = limited
        with pytest.raises(UserError, match=r"checkpoint-2 could not be written \(.*\): earlier checkpoints are as"):
            trainer.train()

    finish(fills_up)
    assert [path.name for path in checkpoints(tmp_path / "full")] == ["checkpoint-1"]
    assert damage(tmp_path / "full" / "checkpoint-1") is None
    assert not list((tmp_path / "full").glob(".*"))
    resumed = make_trainer("mle", tmp_path / "full", **options)
    resumed.train(resume_from_checkpoint=True)
    straight = make_trainer("mle", tmp_path / "straight", **options)
    straight.train()
    assert_same_weights(straight.model, resumed.model)


class Malicious:
    def __init__(self, file):
        self.file = file

    def __reduce__(self):
        return open, (str(self.file), "w")


@pytest.mark.parametrize("name", ["optimizer.pt", "scheduler.pt"])
def test_a_checkpoint_that_would_run_code_is_refused(make_trainer, tmp_path, name):
    options = {"eval_strategy": "no", "max_steps": 1}
    make_trainer("mle", tmp_path / "run", **options).train()
    folder = newest_checkpoint(tmp_path / "run")
    torch.save({"state": Malicious(tmp_path / "touched")}, folder / name)
    sizes = json.loads((folder / "files.json").read_text()) | {name: (folder / name).stat().st_size}
    (folder / "files.json").write_text(json.dumps(sizes))
    trainer = make_trainer("mle", tmp_path / "run", **options)
    with pytest.raises(UserError, match=r"checkpoint-1 cannot be read \(Weights only load failed"):
        trainer.train(resume_from_checkpoint=True)
    assert not (tmp_path / "touched").exists()


def test_no_file_of_a_run_is_a_pickle_but_the_two_that_torch_reads_as_tensors(make_trainer, tmp_path):
    trainer = make_trainer("mgs", tmp_path, eval_strategy="no", max_steps=1)
    trainer.train()
    trainer.save_model()
    assert {path.suffix for path in tmp_path.rglob("*") if path.is_file()} == {".json", ".jsonl", ".safetensors", ".pt"}
    assert {path.name for path in tmp_path.rglob("*.pt")} == {"optimizer.pt", "scheduler.pt"}


def test_a_model_that_cannot_be_saved_or_a_best_one_that_is_gone_is_a_sentence(
    make_trainer, tmp_path, letters, monkeypatch
):
    def full(*args, **kwargs):
        raise RuntimeError("Error while serializing: I/O error: No space left on device")

    def never_better(hypotheses, references):
        return 1.0

    trainer = make_trainer("mgs", tmp_path, never_better, held_out=letters[50:], max_steps=2, eval_steps=1)
    load = trainer._load_best_model

    def damaged():
        (tmp_path / "checkpoint-1" / "model.safetensors").write_bytes(b"{}")
        load()

    trainer._load_best_model = damaged
    with pytest.raises(UserError, match=r"checkpoint-1 cannot be read \(.*--keep_best false"):
        trainer.train()
    monkeypatch.setattr(trainer.model, "save_pretrained", full)
    with pytest.raises(UserError, match=r"model.safetensors could not be written \(.*No space left"):
        trainer.save_model()
    assert not list(tmp_path.glob(".*"))


def test_starting_anew_leaves_nothing_of_an_earlier_run(make_trainer, tmp_path):
    options = {"eval_strategy": "no", "save_steps": 1, "save_total_limit": 1}
    make_trainer("mle", tmp_path, max_steps=3, **options).train()
    with pytest.warns(UserWarning, match=r"starting anew deletes 1 checkpoints in .*, up to checkpoint-3: to go on"):
        make_trainer("mle", tmp_path, max_steps=1, **options).train()
    assert [path.name for path in checkpoints(tmp_path)] == ["checkpoint-1"]
