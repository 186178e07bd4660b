"""A run that was stopped and a run that was not end with the same weights, bit for bit, and the same log."""

import math

import pytest
from transformers import TrainerCallback

from mgs.errors import CostError, UserError
from mgs.training import newest_checkpoint
from mgs.training.checkpoints import checkpoints


class Kill(TrainerCallback):
    """Stop dead before an update, as a power cut would."""

    def __init__(self, before):
        self.before = before

    def on_step_begin(self, args, state, control, **kw):
        if state.global_step == self.before:
            raise KeyboardInterrupt


def both(make_trainer, tmp_path, method, kill_before, **options):
    """The run in one go, and the one that was killed and resumed."""
    straight = make_trainer(method, tmp_path / "straight", **options)
    straight.train()
    killed = make_trainer(method, tmp_path / "killed", callbacks=[Kill(kill_before)], **options)
    with pytest.raises(KeyboardInterrupt):
        killed.train()
    resumed = make_trainer(method, tmp_path / "killed", **options)
    resumed.train(resume_from_checkpoint=True)
    return straight, resumed


def log_of(folder):
    return (folder / "metrics.jsonl").read_text().splitlines()


@pytest.mark.parametrize("method", ["mle", "mgs", "mrt", "pg"])
def test_a_killed_run_resumes_to_the_same_weights_and_log(make_trainer, assert_same_weights, tmp_path, letters, method):
    options = {
        "held_out": letters[50:],
        "max_steps": 6,
        "eval_steps": 3,
        "save_steps": 2,
        "gradient_accumulation_steps": 2,
        "lr_scheduler_type": "linear",
        "keep_best": False,
    }
    # stopped in update 6, whose checkpoint is that of update 4
    straight, resumed = both(make_trainer, tmp_path, method, kill_before=5, **options)
    assert newest_checkpoint(tmp_path / "killed").name == "checkpoint-6"
    assert resumed.state.global_step == straight.state.global_step == 6
    assert_same_weights(straight.model, resumed.model)
    assert log_of(tmp_path / "straight") == log_of(tmp_path / "killed")
    assert len(log_of(tmp_path / "straight")) == 6 * 2 + 2
    assert straight.method.state() == resumed.method.state()


@pytest.mark.parametrize("unit", ["norm", "budget"])
def test_a_resumed_run_still_knows_the_weights_it_started_from(
    make_trainer, entries, assert_same_weights, tmp_path, unit
):
    options = {"max_steps": 4, "save_steps": 2, "eval_strategy": "no", "learning_rate": 0.1, "probe_transfer": 1}
    options |= {"cost": "edit", "likelihood_budget": 0.05, "noise": 4.0, "num_candidates": 8, "halvings": 1}
    options |= {"length_unit": unit}
    straight, resumed = both(make_trainer, tmp_path, "mgs", kill_before=3, **options)
    assert_same_weights(straight.model, resumed.model)
    assert log_of(tmp_path / "straight") == log_of(tmp_path / "killed")
    log = entries(tmp_path / "killed")
    assert log[0]["nll_over_start"] == pytest.approx(0.0, abs=1e-6)
    assert all(abs(entry["nll_over_start"]) > 1e-4 for entry in log[1:])
    assert unit == "budget" or any(0 < entry["refused"] < 8 for entry in log)


def test_the_baseline_of_pg_is_part_of_what_is_resumed(make_trainer, entries, tmp_path):
    straight, resumed = both(
        make_trainer, tmp_path, "pg", kill_before=3, max_steps=4, save_steps=2, mle_share=0.0, eval_strategy="no"
    )
    assert straight.method.state() == resumed.method.state()
    baselines = [entry["baseline"] for entry in entries(tmp_path / "killed")]
    assert len(set(baselines[1:])) == 3
    assert baselines == [entry["baseline"] for entry in entries(tmp_path / "straight")]


def test_early_stopping_goes_on_counting_and_the_best_is_still_found(
    make_trainer, assert_same_weights, tmp_path, letters
):
    def never_better(hypotheses, references):
        return 1.0

    options = {"cost": never_better, "held_out": letters[50:], "max_steps": 20, "eval_steps": 1, "patience": 3}
    straight, resumed = both(make_trainer, tmp_path, "mgs", kill_before=3, **options)
    assert straight.state.global_step == resumed.state.global_step == 4  # the best at 1, then three that are not better
    assert straight.state.best_global_step == resumed.state.best_global_step == 1
    assert_same_weights(straight.model, resumed.model)
    assert log_of(tmp_path / "straight") == log_of(tmp_path / "killed")


def test_a_run_that_had_stopped_early_does_not_go_on(make_trainer, assert_same_weights, tmp_path, letters):
    def never_better(hypotheses, references):
        return 1.0

    options = {"cost": never_better, "held_out": letters[50:], "max_steps": 9, "eval_steps": 1, "patience": 2}
    straight = make_trainer("mgs", tmp_path, **options)
    straight.train()
    log = log_of(tmp_path)
    resumed = make_trainer("mgs", tmp_path, **options)  # killed before the model was saved
    resumed.train(resume_from_checkpoint=True)
    assert straight.state.global_step == resumed.state.global_step == 3
    assert_same_weights(straight.model, resumed.model)
    assert log_of(tmp_path) == log


class KillInEvaluation(TrainerCallback):
    def on_evaluate(self, args, state, control, **kw):
        if state.global_step:
            raise KeyboardInterrupt


def test_killed_in_the_last_evaluation_it_is_made_again(make_trainer, assert_same_weights, tmp_path, letters):
    options = {"eval_steps": 3, "eval_on_start": True, "held_out": letters[50:], "max_steps": 3, "save_steps": 2}
    straight = make_trainer("mle", tmp_path / "straight", **options)
    straight.train()
    killed = make_trainer("mle", tmp_path / "killed", callbacks=[KillInEvaluation()], **options)
    with pytest.raises(KeyboardInterrupt):
        killed.train()
    resumed = make_trainer("mle", tmp_path / "killed", **options)
    resumed.train(resume_from_checkpoint=True)
    assert_same_weights(straight.model, resumed.model)
    assert log_of(tmp_path / "straight") == log_of(tmp_path / "killed")
    assert newest_checkpoint(tmp_path / "killed").name == "checkpoint-3"


@pytest.mark.filterwarnings("ignore:.*is passed over")
def test_a_checkpoint_cut_off_by_the_kill_is_passed_over(make_trainer, assert_same_weights, tmp_path):
    options = {"max_steps": 3, "save_steps": 1, "eval_strategy": "no"}
    straight = make_trainer("mgs", tmp_path / "straight", **options)
    straight.train()
    make_trainer("mgs", tmp_path / "cut", **options).train()
    (tmp_path / "cut" / "checkpoint-3" / "trainer_state.json").write_text('{"epoch": 0.9, "glo')
    resumed = make_trainer("mgs", tmp_path / "cut", **options)
    resumed.train(resume_from_checkpoint=True)
    assert_same_weights(straight.model, resumed.model)
    assert log_of(tmp_path / "straight") == log_of(tmp_path / "cut")


@pytest.mark.parametrize("name", ["chekpoint-2", "checkpoint-1", "last"])
def test_going_on_from_where_there_is_no_checkpoint_deletes_none(make_trainer, tmp_path, name):
    make_trainer("mgs", tmp_path, max_steps=4, save_steps=2, eval_strategy="no").train()
    with pytest.raises(UserError, match=r"no whole checkpoint: .* is missing \(in .*: checkpoint-2, checkpoint-4\)"):
        make_trainer("mgs", tmp_path, max_steps=6, eval_strategy="no").train(str(tmp_path / name))
    assert [path.name for path in checkpoints(tmp_path)] == ["checkpoint-2", "checkpoint-4"]


def test_resuming_where_nothing_is_starts(make_trainer, assert_same_weights, tmp_path):
    options = {"max_steps": 2, "eval_strategy": "no"}
    straight = make_trainer("mle", tmp_path / "straight", **options)
    straight.train()
    resumed = make_trainer("mle", tmp_path / "resumed", **options)
    resumed.train(resume_from_checkpoint=True)
    assert_same_weights(straight.model, resumed.model)


def cut_off_a_log_line(folder):
    with (folder / "metrics.jsonl").open("a") as log:
        log.write('{"step": 3, "micro": 0, "lo')


class Failing:
    """A cost that raises once, in its n-th call. One of the whole corpus is called once for each candidate."""

    def __init__(self, call=math.inf, error=CostError("the server went away"), corpus=True):
        self.call, self.error, self.corpus, self.calls = call, error, corpus, 0

    def __call__(self, hypotheses, references):
        self.calls += 1
        if self.calls == self.call:
            raise self.error
        values = [abs(len(h.token_ids) - 4) + 0.1 * len(set(h.token_ids)) for h in hypotheses]
        return sum(values) / len(values) if self.corpus else values


# Update 3, second batch of two: MGS scores 4 candidates a batch, MRT and PG all samples of a batch at once.
CALLS = {"mgs": 4 * (2 * 2 + 1) + 3, "mrt": 2 * 2 + 2, "pg": 2 * 2 + 2}


@pytest.mark.parametrize("method", ["mgs", "mrt", "pg"])
def test_a_cost_that_fails_leaves_a_checkpoint_to_resume_from(make_trainer, assert_same_weights, tmp_path, method):
    options = {"max_steps": 4, "gradient_accumulation_steps": 2, "eval_strategy": "no"}
    options |= {"mle_share": 0.0} if method != "mgs" else {}
    corpus = method == "mgs"
    straight = make_trainer(method, tmp_path / "straight", Failing(corpus=corpus), **options)
    straight.train()
    failing = make_trainer(
        method, tmp_path / "failing", Failing(CALLS[method], RuntimeError("no more quota"), corpus), **options
    )
    with pytest.raises(CostError, match="'Failing' raised RuntimeError: no more quota"):
        failing.train()
    assert newest_checkpoint(tmp_path / "failing").name == "checkpoint-2"
    cut_off_a_log_line(tmp_path / "failing")
    mended = make_trainer(method, tmp_path / "failing", Failing(corpus=corpus), **options)
    mended.train(resume_from_checkpoint=True)
    assert_same_weights(straight.model, mended.model)
    assert log_of(tmp_path / "straight") == log_of(tmp_path / "failing")


def test_a_cost_that_fails_in_an_evaluation_leaves_the_update_before_it(
    make_trainer, assert_same_weights, tmp_path, letters
):
    options = {"held_out": letters[50:], "max_steps": 3, "eval_steps": 2, "keep_best": False}
    straight = make_trainer("mgs", tmp_path / "straight", Failing(), **options)
    straight.train()
    failing = make_trainer("mgs", tmp_path / "failing", Failing(2 * 4 + 1), **options)
    with pytest.raises(CostError, match="server went away"):
        failing.train()
    assert newest_checkpoint(tmp_path / "failing").name == "checkpoint-2"
    mended = make_trainer("mgs", tmp_path / "failing", Failing(), **options)
    mended.train(resume_from_checkpoint=True)
    assert_same_weights(straight.model, mended.model)


def test_a_cost_that_fails_at_once_leaves_no_checkpoint(make_trainer, tmp_path):
    trainer = make_trainer("mgs", tmp_path, Failing(1), eval_strategy="no")
    with pytest.raises(CostError, match="server went away"):
        trainer.train()
    assert newest_checkpoint(tmp_path) is None
    assert not list(tmp_path.glob("checkpoint-*"))


def test_the_same_trainer_goes_on_once_its_cost_works_again(make_trainer, assert_same_weights, tmp_path):
    options = {"max_steps": 3, "gradient_accumulation_steps": 2, "eval_strategy": "no"}
    straight = make_trainer("mgs", tmp_path / "straight", Failing(), **options)
    straight.train()
    trainer = make_trainer("mgs", tmp_path / "failing", Failing(4 * 3 + 1), **options)  # fails in its 13th call alone
    with pytest.raises(CostError, match="server went away"):
        trainer.train()
    trainer.train(resume_from_checkpoint=True)
    assert_same_weights(straight.model, trainer.model)
    assert log_of(tmp_path / "straight") == log_of(tmp_path / "failing")
