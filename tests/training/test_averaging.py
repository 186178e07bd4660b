"""The average against one made by hand from the weights after each update; what is trained does not know of it."""

import copy

import pytest
import torch
from safetensors.torch import load_file
from transformers import TrainerCallback

from mgs.training import newest_checkpoint

DECAY = 0.8


class Watch(TrainerCallback):
    """Keeps the weights after each update; may stop dead before one."""

    def __init__(self, kill_before=None):
        self.seen, self.kill_before = [], kill_before

    def on_step_begin(self, args, state, control, model=None, **kw):
        if state.global_step == self.kill_before:
            raise KeyboardInterrupt

    def on_step_end(self, args, state, control, model=None, **kw):
        self.seen.append(copy.deepcopy(model.state_dict()))


def averages(iterates, decay=DECAY):
    """One after each update, in float64."""
    found = [{name: tensor.double() for name, tensor in iterates[0].items()}]
    for theta in iterates[1:]:
        found.append({name: decay * found[-1][name] + (1 - decay) * theta[name].double() for name in theta})
    return found


def assert_close(found, expected):
    for name, tensor in found.items():
        torch.testing.assert_close(tensor.double(), expected[name], rtol=0, atol=1e-6)


@pytest.mark.parametrize("method", ["mgs", "mle"])
def test_the_model_is_the_average_and_training_is_as_without(
    make_trainer, assert_same_weights, tmp_path, letters, method
):
    plain, watched = Watch(), Watch()
    options = {"max_steps": 5, "save_steps": 3, "eval_steps": 2, "keep_best": False, "held_out": letters[50:]}
    make_trainer(method, tmp_path / "plain", callbacks=[plain], **options).train()
    trainer = make_trainer(method, tmp_path / "averaged", callbacks=[watched], ema=DECAY, **options)
    trainer.train()
    for one, other in zip(plain.seen, watched.seen, strict=True):
        assert all(torch.equal(one[name], other[name]) for name in one)
    expected = averages(watched.seen)
    assert_close(trainer.model.state_dict(), expected[-1])
    assert not torch.allclose(watched.seen[-1]["lm_head.weight"].double(), expected[-1]["lm_head.weight"], atol=1e-3)
    checkpoint = tmp_path / "averaged" / "checkpoint-3"
    assert_close(load_file(checkpoint / "model.safetensors"), expected[2])
    iterate = load_file(checkpoint / "iterate.safetensors")
    assert all(torch.equal(tensor, watched.seen[2][name]) for name, tensor in iterate.items())
    trainer.save_model()
    saved = load_file(tmp_path / "averaged" / "model.safetensors")
    assert all(torch.equal(tensor, trainer.model.state_dict()[name]) for name, tensor in saved.items())


def test_without_the_option_nothing_is_kept_beside_the_model(make_trainer, tmp_path):
    make_trainer("mgs", tmp_path, max_steps=1, save_steps=1, eval_strategy="no").train()
    assert not (tmp_path / "checkpoint-1" / "iterate.safetensors").exists()


def test_evaluations_are_of_the_average(make_trainer, make_model, entries, tmp_path, letters):
    watch = Watch()
    options = {"held_out": letters[50:], "eval_steps": 1, "max_steps": 4, "learning_rate": 0.05}
    make_trainer("mgs", tmp_path, callbacks=[watch], ema=0.9, keep_best=False, **options).train()
    perplexities = [entry["eval_perplexity"] for entry in entries(tmp_path, evaluations=True)]
    judge = make_trainer("mgs", tmp_path / "judge", **options)
    for average, theta, found in zip(averages(watch.seen, 0.9), watch.seen, perplexities, strict=True):
        judge.model.load_state_dict({name: tensor.float() for name, tensor in average.items()})
        assert judge.figures(judge.eval_dataset)["perplexity"] == pytest.approx(found, rel=1e-5)
        judge.model.load_state_dict(theta)
        last = judge.figures(judge.eval_dataset)["perplexity"]
    assert last != pytest.approx(found, rel=1e-3)


@pytest.mark.parametrize("keep_best", [True, False])
def test_a_killed_run_resumes_to_the_same_average(make_trainer, assert_same_weights, tmp_path, letters, keep_best):
    options = {"max_steps": 6, "save_steps": 2, "eval_steps": 2, "held_out": letters[50:], "ema": DECAY}
    options |= {"keep_best": keep_best, "optim": "sgd", "optim_args": "momentum=0.5"}
    straight = make_trainer("mgs", tmp_path / "straight", **options)
    straight.train()
    killed = make_trainer("mgs", tmp_path / "killed", callbacks=[Watch(kill_before=5)], **options)
    with pytest.raises(KeyboardInterrupt):
        killed.train()
    assert newest_checkpoint(tmp_path / "killed").name == "checkpoint-4"
    resumed = make_trainer("mgs", tmp_path / "killed", **options)
    resumed.train(resume_from_checkpoint=True)
    assert_same_weights(straight.model, resumed.model)
    logs = [(tmp_path / name / "metrics.jsonl").read_text() for name in ("straight", "killed")]
    assert logs[0] == logs[1]
    if keep_best:
        best = load_file(tmp_path / "straight" / f"checkpoint-{straight.state.best_global_step}" / "model.safetensors")
        assert all(torch.equal(tensor, straight.model.state_dict()[name]) for name, tensor in best.items())


def test_the_option_may_be_left_out_or_added_when_a_run_is_resumed(make_trainer, assert_same_weights, tmp_path):
    options = {"save_steps": 1, "eval_strategy": "no"}
    plain = make_trainer("mgs", tmp_path / "plain", max_steps=3, **options)
    plain.train()
    make_trainer("mgs", tmp_path / "run", max_steps=2, ema=DECAY, **options).train()
    without = make_trainer("mgs", tmp_path / "run", max_steps=3, **options)
    without.train(resume_from_checkpoint=True)
    assert_same_weights(without.model, plain.model)  # what is trained goes on
    added = make_trainer("mgs", tmp_path / "plain", max_steps=4, ema=DECAY, **options)
    added.train(resume_from_checkpoint=True)
    iterate = load_file(tmp_path / "plain" / "checkpoint-4" / "iterate.safetensors")
    assert all(torch.equal(tensor, added.model.state_dict()[name]) for name, tensor in iterate.items())


@pytest.mark.filterwarnings("ignore:.*is passed over")
def test_a_checkpoint_without_what_was_trained_is_not_whole(make_trainer, tmp_path):
    make_trainer("mgs", tmp_path, max_steps=2, save_steps=1, eval_strategy="no", ema=DECAY).train()
    (tmp_path / "checkpoint-2" / "iterate.safetensors").unlink()
    assert newest_checkpoint(tmp_path).name == "checkpoint-1"
