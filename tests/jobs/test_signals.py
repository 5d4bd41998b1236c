import signal
import sys
import threading

import pytest

from dmlcpu.jobs.signals import stop_on_signals, terminated_as_interrupted

POSIX = pytest.mark.skipif(sys.platform == "win32", reason="of POSIX")


@POSIX
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_asks_and_the_second_stops(number: signal.Signals) -> None:
    told: list[str] = []
    before = signal.getsignal(number)
    with stop_on_signals(told.append) as asked:
        assert not asked.is_set()
        signal.raise_signal(number)
        assert asked.is_set()
        assert told == [f"{number.name}: finishing the running jobs; send it again to stop at once"]
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
    assert signal.getsignal(number) is before


@POSIX
def test_handlers_are_put_back_after_an_error() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyError), stop_on_signals(lambda _: None):
        raise KeyError
    assert signal.getsignal(signal.SIGTERM) is before


def test_outside_of_the_main_thread_there_are_no_signals() -> None:
    found = []

    def run() -> None:
        with stop_on_signals(lambda _: None) as asked:
            found.append(asked.is_set())

    before = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert found == [False]
    assert signal.getsignal(signal.SIGINT) is before


@POSIX
def test_termination_does_what_an_interrupt_does() -> None:
    got: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: got.append(number))
    try:
        with pytest.raises(KeyboardInterrupt), terminated_as_interrupted():
            signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGINT, before)
    assert got == [signal.SIGTERM]


@POSIX
def test_termination_as_interruption() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), terminated_as_interrupted():
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before
