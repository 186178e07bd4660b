import itertools
import signal
import threading
import time

import pytest

from mgs.costs.limit import Late, time_limit
from mgs.errors import UserError


def test_a_block_that_takes_too_long_is_left():
    with pytest.raises(Late), time_limit(0.02):
        time.sleep(60)


def test_computing_is_left_as_well():
    with pytest.raises(Late), time_limit(0.02):
        sum(itertools.takewhile(lambda n: True, itertools.count()))


def test_afterwards_there_is_no_alarm_and_the_handler_is_the_earlier_one():
    before = signal.getsignal(signal.SIGALRM)
    with time_limit(60):
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 0
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0
    assert signal.getsignal(signal.SIGALRM) is before


def test_without_a_limit_nothing_is_set():
    before = signal.getsignal(signal.SIGALRM)
    with time_limit(None):
        assert signal.getsignal(signal.SIGALRM) is before


def test_in_another_thread_it_is_refused():
    caught = []

    def work():
        try:
            with time_limit(1):
                pass
        except UserError as error:
            caught.append(str(error))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert "main thread" in caught[0]
