"""A limit on the time that a call may take, for costs that wait for something that never comes."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from mgs.errors import UserError


class Late(BaseException):
    """The time is up. Not an `Exception`: a cost that tries again whatever went wrong must not swallow it."""


@contextmanager
def time_limit(seconds: float | None) -> Iterator[None]:
    """Raises `Late` in the block once `seconds` have passed. An alarm of the system does it, so it reaches Python code
    and whatever waits (sleep, network, files, other processes), but no computation inside a library's C code."""
    if seconds is None:
        yield
        return
    if threading.current_thread() is not threading.main_thread():
        raise UserError("a time limit for costs works in the main thread alone: train there, or leave cost_timeout out")

    def late(number: int, frame: FrameType | None) -> None:
        raise Late

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
