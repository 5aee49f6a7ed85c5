"""Signals that are noted while something runs, and raised when they come again."""

import os
import signal
import threading

import pytest

from distrl.interrupt import interruptible, limited


@pytest.fixture
def usual_signals():
    """As a shell starts a program in the foreground, whatever pytest was started by."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("usual_signals")
@pytest.mark.parametrize(
    ("number", "code", "name"),
    [(signal.SIGINT, 130, "Ctrl-C"), (signal.SIGTERM, 0, "SIGTERM"), (signal.SIGHUP, 0, "SIGHUP")],
)
def test_the_first_signal_is_noted_and_handlers_come_back(number, code, name):
    before = signal.getsignal(number)
    with interruptible() as interrupt:
        assert interrupt.code is None
        os.kill(os.getpid(), number)
        assert (interrupt.code, interrupt.name) == (code, name)
    assert signal.getsignal(number) is before


@pytest.mark.usefixtures("usual_signals")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 0)])
def test_a_cluster_manager_gets_the_code_that_it_needs(number, code):
    with interruptible(143) as interrupt:
        os.kill(os.getpid(), number)
        assert interrupt.code == code


@pytest.mark.usefixtures("usual_signals")
@pytest.mark.parametrize(
    "numbers",
    [(signal.SIGINT, signal.SIGINT), (signal.SIGTERM, signal.SIGTERM), (signal.SIGHUP, signal.SIGINT)],
)
def test_a_second_one_does_not_wait(numbers):
    with pytest.raises(KeyboardInterrupt), interruptible():  # noqa: PT012
        for number in numbers:
            os.kill(os.getpid(), number)


@pytest.mark.usefixtures("usual_signals")
@pytest.mark.parametrize("second", [signal.SIGHUP, signal.SIGTERM])
def test_a_terminal_that_closes_may_say_so_twice(second):
    with interruptible() as interrupt:
        os.kill(os.getpid(), signal.SIGHUP)
        os.kill(os.getpid(), second)
        assert (interrupt.code, interrupt.name) == (0, "SIGHUP")


def test_after_nohup_a_terminal_may_close():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interruptible() as interrupt:
            os.kill(os.getpid(), signal.SIGHUP)
            assert interrupt.code is None
    finally:
        signal.signal(signal.SIGHUP, before)


def test_what_takes_too_long_is_ended_each_time_that_the_limit_passes():
    with limited(0.01):
        for _ in range(2):
            with pytest.raises(TimeoutError, match=r"it has not ended within 0\.01 s"):
                threading.Event().wait()


@pytest.mark.parametrize("alarm_s", [0.0, 50.0])
def test_a_limit_gives_the_programs_own_alarm_back(alarm_s):
    before = signal.getsignal(signal.SIGALRM), signal.setitimer(signal.ITIMER_REAL, alarm_s, 7.0)
    try:
        with limited(5.0):
            assert 4.0 < signal.getitimer(signal.ITIMER_REAL)[0] <= 5.0
        left = signal.getitimer(signal.ITIMER_REAL)
        assert (49.0 < left[0] <= 50.0, left[1]) == ((True, 7.0) if alarm_s else (False, 0.0))
        assert signal.getsignal(signal.SIGALRM) is before[0]
    finally:
        signal.setitimer(signal.ITIMER_REAL, *before[1])


def test_another_thread_has_no_limit():
    """Signals reach the main thread alone."""
    here, there = signal.getsignal(signal.SIGALRM), []

    def work():
        with limited(1e-9):
            there.append(signal.getsignal(signal.SIGALRM))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert there == [here]
