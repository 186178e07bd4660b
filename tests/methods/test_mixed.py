"""The coin between a method and MLE."""

import math
from dataclasses import dataclass, field

import pytest
import torch

from mgs.methods import MLE, PG, Key, Mixed, Outcome


@dataclass
class Recorder:
    """A method that only writes down when it was called."""

    name: str = "recorder"
    keys: list = field(default_factory=list)
    memory: dict = field(default_factory=dict)

    def __call__(self, model, batch, key):
        self.keys.append(key)
        return Outcome({}, 7.0, {"cost": 1.5})

    def state(self):
        return self.memory

    def load_state(self, state):
        self.memory = state


class OtherRecorder(Recorder):
    pass


def chosen(mle_share, keys, model=None, batch=None):
    """For which keys MLE was taken."""
    mixed = Mixed(Recorder(), OtherRecorder(), mle_share)
    for key in keys:
        mixed(model, batch, key)
    assert sorted(mixed.method.keys + mixed.mle.keys) == sorted(keys)  # one of the two each time
    return set(mixed.mle.keys)


KEYS = [Key(seed, step, micro) for seed in (0, 1) for step in range(1000) for micro in (0, 1)]


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5])
def test_the_share_of_mle_is_the_one_asked_for(share):
    error = math.sqrt(share * (1 - share) / len(KEYS))
    assert len(chosen(share, KEYS)) / len(KEYS) == pytest.approx(share, abs=4 * error)


def test_zero_is_never_and_one_is_always():
    assert chosen(0.0, KEYS) == set()
    assert chosen(1.0, KEYS) == set(KEYS)


def test_the_coin_is_a_function_of_the_key_alone(batch):
    expected = chosen(0.3, KEYS)
    torch.manual_seed(8)
    assert chosen(0.3, KEYS[::-1], model=torch.nn.Linear(1, 1), batch=batch) == expected
    assert chosen(0.3, KEYS[500:700]) == expected & set(KEYS[500:700])  # a run that is resumed


def test_a_larger_share_adds_batches_and_takes_none_away():
    assert chosen(0.1, KEYS) < chosen(0.3, KEYS)


@pytest.mark.parametrize("part", ["seed", "step", "micro"])
def test_every_part_of_the_key_has_its_own_coin(part):
    key = Key(0, 0, 0)
    flips = [key._replace(**{part: value}).chance("mix") for value in range(400)]
    assert len(set(flips)) == 400
    assert sum(flips) / 400 == pytest.approx(0.5, abs=4 / math.sqrt(12 * 400))
    assert key.chance("mix") != key.chance("other")


def test_where_mle_is_chosen_the_outcome_is_mle_s(gpt2, batch):
    mixed = Mixed(Recorder(), MLE(), 1.0)
    found, expected = mixed(gpt2, batch, Key(0, 0)), MLE()(gpt2, batch, Key(0, 0))
    assert found.loss == expected.loss
    assert all(torch.equal(found.gradient[name], tensor) for name, tensor in expected.gradient.items())
    assert found.gradient.keys() == expected.gradient.keys()
    assert found.log == {"chose_mle": 1.0, "mle_loss": expected.loss}


def test_where_it_is_not_the_outcome_is_the_method_s():
    assert Mixed(Recorder(), MLE(), 0.0)(None, None, Key(0, 0)) == Outcome({}, 7.0, {"cost": 1.5, "chose_mle": 0.0})


def test_it_goes_by_the_method_s_name_and_keeps_its_state(gpt2, batch, make_task):
    mixed = Mixed(PG(make_task()), MLE(), 0.5)
    assert mixed.name == "pg"
    for step in range(6):
        mixed(gpt2, batch, Key(0, step))
    assert mixed.state() == {"baseline": mixed.method.baseline}
    assert mixed.state()["baseline"] is not None
    other = Mixed(PG(make_task()), MLE(), 0.5)
    other.load_state(mixed.state())
    assert other.method.baseline == mixed.method.baseline


def test_a_batch_that_goes_to_mle_leaves_the_method_as_it_was(gpt2, batch, make_task):
    mixed = Mixed(PG(make_task()), MLE(), 1.0)
    mixed(gpt2, batch, Key(0, 0))
    assert mixed.state() == {"baseline": None}
