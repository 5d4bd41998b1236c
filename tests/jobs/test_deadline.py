"""A worker process that ends when an item is late."""

import multiprocessing
import os
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from dmlcpu.jobs.dispatch import at_most, begin_process


class Process:
    """What a block in a worker does: tells, and ends, without ending this one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ended = threading.Event()
        self.compiled = 0.0
        self.told, tell = multiprocessing.Pipe(duplex=False)
        monkeypatch.setattr(os, "_exit", lambda _: self.ended.set())
        begin_process(tell, lambda: self.compiled)


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Iterator[Process]:
    yield Process(monkeypatch)
    begin_process(None, lambda: 0.0)


def test_a_block_that_takes_longer_ends_the_process(process: Process) -> None:
    with at_most(0.05, 7):
        assert process.ended.wait(10)
    assert process.told.recv() == 7


def test_a_block_that_is_in_time_does_not(process: Process) -> None:
    with at_most(0.2, 7):
        pass
    assert not process.ended.wait(0.4)
    assert not process.told.poll()


def test_any_number_of_seconds(process: Process) -> None:
    with at_most(1e300, 7):
        assert not process.ended.wait(0.1)


def test_compilation_is_not_counted(process: Process) -> None:
    with at_most(0.2, 7):
        start = time.monotonic()
        while time.monotonic() < start + 0.5:
            process.compiled = time.monotonic() - start
            time.sleep(0.005)
        assert not process.ended.is_set()
        assert process.ended.wait(10)


class Clock:
    """Time that a process has been stopped for, or has computed without letting another thread run."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.stopped = self.computed = 0.0
        clock = SimpleNamespace(
            monotonic=lambda: time.monotonic() + self.stopped + self.computed,
            process_time=lambda: time.process_time() + self.computed,
        )
        monkeypatch.setattr("dmlcpu.jobs.dispatch.time", clock)
        monkeypatch.setattr("dmlcpu.jobs.dispatch._LOOK", 0.1)


def test_time_in_which_the_process_is_stopped_is_not_counted(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    """As by SIGSTOP for its group, or by the freezer of a container."""
    clock = Clock(monkeypatch)
    with at_most(1, 7):
        clock.stopped += 60
        assert not process.ended.wait(0.5)
        assert process.ended.wait(10)


def test_time_in_which_no_other_thread_runs_is_counted(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    with at_most(30, 7):
        clock.computed += 60
        assert process.ended.wait(10)
