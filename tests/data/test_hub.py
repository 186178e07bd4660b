import sys
from types import SimpleNamespace

import huggingface_hub
import pytest
from huggingface_hub import constants

from mgs.data.hub import PATIENCE, work_offline_if_unreachable


@pytest.fixture
def session(monkeypatch):
    """A network that can be cut; nothing is asked of the real one."""
    state = SimpleNamespace(asked=[], cut=False)

    def head(url, timeout):
        state.asked.append((url, timeout))
        if state.cut:
            raise ConnectionError("no route")

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub, "get_session", lambda: SimpleNamespace(head=head))
    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(config=SimpleNamespace(HF_HUB_OFFLINE=False)))
    return state


def test_a_hub_that_answers_stays_in_use(session):
    work_offline_if_unreachable()
    assert session.asked == [(constants.ENDPOINT, PATIENCE)]
    assert not constants.HF_HUB_OFFLINE
    assert not sys.modules["datasets"].config.HF_HUB_OFFLINE


def test_a_hub_that_does_not_answer_is_asked_once_and_then_left_alone(session):
    session.cut = True
    work_offline_if_unreachable()
    work_offline_if_unreachable()
    assert len(session.asked) == 1
    assert constants.HF_HUB_OFFLINE
    assert sys.modules["datasets"].config.HF_HUB_OFFLINE
