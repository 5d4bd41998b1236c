"""Serving tasks in one process: large ones, which are read ahead, and small ones, whose files are synced together."""

import errno
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from job_files import assert_best, contents, each_best, save_inputs, save_jobs

from dmlcpu.files import identity
from dmlcpu.jobs import serve as serve_module
from dmlcpu.jobs.dispatch import WorkerError
from dmlcpu.jobs.job import FileInput, Job, Task, Work
from dmlcpu.jobs.open_inputs import JobError
from dmlcpu.jobs.step import Conditions, Outcome, Step, finished

COUNT = 6
ALL = [f"{number:04}" for number in range(COUNT)]
SIZES = pytest.mark.parametrize("small", [0, 1 << 20], ids=["large", "small"])


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    """Jobs of 1,000 bytes and one file each."""
    save_inputs(tmp_path, COUNT)
    return save_jobs(tmp_path, each_best(COUNT))


def serve(
    jobs: Path, stopping: Callable[[], bool] = lambda: False, memory: int = 1 << 20, **settings: Any
) -> Iterator[Outcome]:
    """Serve the jobs, three of which are synced together if they are small; yield outcomes one by one."""
    together = Conditions(jobs.parent, 1, memory, **{"bundle": 3, "longest": 60.0, **settings})
    for outcomes in serve_module.serve(together, tasks(jobs.parent), stopping):
        yield from outcomes


def tasks(folder: Path) -> list[Task]:
    return [
        Task(
            name,
            name,
            [],
            Job("top_k", {"x": FileInput(f"in/{name}.npy")}, {"k": 3}, f"out/{name}.npz"),
            {f"in/{name}.npy": identity(folder / "in" / f"{name}.npy", content=False)},
            Work(peak_bytes=1000),
        )
        for name in ALL
    ]


@SIZES
def test_outcomes_come_in_order_and_threads_end(jobs: Path, small: int) -> None:
    before = threading.active_count()
    found = list(serve(jobs, small=small))
    assert [list(outcome.outputs) for outcome in found] == [[f"out/{name}.npz"] for name in ALL]
    assert all(outcome.error is None and outcome.seconds > 0 for outcome in found)
    assert threading.active_count() == before


def test_an_interrupted_run_does_not_wait_for_a_read(jobs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads, goes_on = threading.Event(), threading.Event()
    begun = iter([False])

    def stopping() -> bool:
        for answer in begun:
            return answer
        reads.wait(30)
        raise KeyboardInterrupt

    def read(step: Step) -> None:
        if step.task.id != ALL[0]:
            reads.set()
            goes_on.wait(30)

    monkeypatch.setattr(Step, "read", read)
    monkeypatch.setattr(Step, "compute", lambda *_: None)
    try:
        with pytest.raises(KeyboardInterrupt):
            list(serve(jobs, stopping, small=0))
        assert not goes_on.is_set()
        [reader] = [each for each in threading.enumerate() if each.name.startswith("dmlcpu-read")]
    finally:
        goes_on.set()
    reader.join(30)
    assert not (jobs.parent / "out").exists()


@SIZES
@pytest.mark.parametrize("started", [0, 1])
def test_a_limit_of_threads(jobs: Path, monkeypatch: pytest.MonkeyPatch, small: int, started: int) -> None:
    """The run ends with a message that names it, and leaves no temporary file."""
    left, real = [started], threading.Thread.start

    def start(thread: threading.Thread) -> None:
        if thread.name.startswith("dmlcpu-"):
            left[0] -= 1
            if left[0] < 0:
                raise RuntimeError("can't start new thread")
        real(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    found = r"no thread for files starts \(can't start new thread\); allowed: a higher limit of threads"
    if started and small:  # the one that is missing would have ended the others
        assert [outcome.error for outcome in serve(jobs, small=small)] == [None] * COUNT
        return
    with pytest.raises(WorkerError, match=found):
        list(serve(jobs, small=small))
    assert not [name for name in contents(jobs.parent) if name.endswith(".part")]


@SIZES
def test_stopping_finishes_the_tasks_that_have_begun(jobs: Path, small: int) -> None:
    found: list[Outcome] = []
    for outcome in serve(jobs, lambda: len(found) >= 2, small=small):
        found.append(outcome)
    assert 2 <= len(found) <= COUNT
    assert sorted(contents(jobs.parent / "out")) == [f"{name}.npz" for name in ALL[: len(found)]]


@SIZES
def test_stopping_before_the_first_task_does_nothing(jobs: Path, small: int) -> None:
    assert list(serve(jobs, lambda: True, small=small)) == []
    assert not (jobs.parent / "out").exists()


@SIZES
def test_a_consumer_that_ends_early_leaves_no_temporary_file(jobs: Path, small: int) -> None:
    before = threading.active_count()
    served = serve(jobs, small=small)
    next(served)
    served.close()
    assert not any(name.endswith(".part") for name in contents(jobs.parent / "out"))
    assert threading.active_count() == before


@SIZES
def test_a_failure_is_told_before_the_next_task_is_computed(
    jobs: Path, small: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compute(step: Step, stopping: Callable[[], bool]) -> None:
        computed.append(step.task.id)
        if len(computed) == 2:
            raise ZeroDivisionError
        real(step, stopping)

    computed: list[str] = []
    real = Step.compute
    monkeypatch.setattr(Step, "compute", compute)
    outcomes = serve(jobs, small=small)
    assert [next(outcomes).error for _ in range(2)] == [None, "ZeroDivisionError: "]
    assert computed == ["0000", "0001"]
    outcomes.close()


@pytest.mark.parametrize(
    ("bundle", "memory", "sizes"), [(100, 1 << 20, [6]), (100, 2500, [2, 2, 2]), (4, 1 << 20, [4, 2]), (4, 1, [1] * 6)]
)
def test_files_of_small_tasks_are_finished_together_as_far_as_memory_allows(
    jobs: Path, monkeypatch: pytest.MonkeyPatch, bundle: int, memory: int, sizes: list[int]
) -> None:
    found: list[int] = []
    monkeypatch.setattr(serve_module, "finished", lambda steps: (found.append(len(steps)), finished(steps))[1])
    assert len(list(serve(jobs, memory=memory, bundle=bundle))) == COUNT
    assert found == sizes


def test_small_tasks_that_take_long_do_not_wait_for_others(jobs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[int] = []
    monkeypatch.setattr(serve_module, "finished", lambda steps: (found.append(len(steps)), finished(steps))[1])
    assert len(list(serve(jobs, longest=-1.0))) == COUNT
    assert found == [1] * COUNT


def test_names_are_on_the_disk_before_an_outcome_is_told(jobs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[list[str]] = []
    monkeypatch.setattr("dmlcpu.jobs.step.sync_folder", lambda folder: synced.append([*contents(Path(folder))]))
    for number, outcome in enumerate(serve(jobs)):
        assert outcome.error is None
        assert any(f"{ALL[number]}.npz" in names for names in synced)
    assert len(synced) == -(-COUNT // 3)  # once for a bundle


def test_a_folder_that_cannot_be_synced_fails_its_tasks(jobs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(folder: str) -> None:
        """Fail once, as Linux tells of a failure once."""
        synced.append(folder)
        if len(synced) == 1:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    synced: list[str] = []
    monkeypatch.setattr("dmlcpu.jobs.step.sync_folder", fail)
    found = sorted(outcome.error or "" for outcome in serve(jobs))
    assert found[:3] == [""] * (COUNT - 3)
    assert all(error.endswith("Input/output error") for error in found[3:])


@pytest.mark.parametrize(
    ("number", "times", "retries", "tries"),
    [
        (errno.EIO, 1, 2, 2),
        (errno.EIO, 99, 2, 3),
        (errno.EIO, 99, 0, 1),
        (errno.ENOSPC, 99, 2, 1),
        (errno.EACCES, 99, 2, 1),
    ],
)
@pytest.mark.parametrize("phase", ["read", "finish"])
def test_a_task_whose_files_fail_is_tried_again(
    jobs: Path, monkeypatch: pytest.MonkeyPatch, phase: str, number: int, times: int, retries: int, tries: int
) -> None:
    def failing(step: Step) -> None:
        if step.task.id == "0002":
            tried.append(step)
            if len(tried) <= times:
                error = OSError(number, os.strerror(number))
                raise JobError(f"inputs.x: {error.strerror}") from error
        real(step)

    tried: list[Step] = []
    real = getattr(Step, phase)
    monkeypatch.setattr(Step, phase, failing)
    errors = [outcome.error for outcome in serve(jobs, retries=retries, pause=0.001)]
    assert (len(errors), len(tried)) == (COUNT, tries)
    assert errors[2] == (None if times < tries else f"inputs.x: {os.strerror(number)}")
    assert not any(errors[:2] + errors[3:])
    if times < tries:
        assert_best(jobs.parent, "0002")
    assert not [name for name in contents(jobs.parent / "out") if name.endswith(".part")]


class Clock(SimpleNamespace):
    """Stands in for the module `time`: pauses take no time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(now=0.0, pauses=[])
        monkeypatch.setattr(serve_module, "time", self)

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


def fail_at_0002(monkeypatch: pytest.MonkeyPatch) -> list[Step]:
    """Have a task's file fail at each try; return the tries."""

    def failing(step: Step) -> None:
        if step.task.id == "0002":
            tried.append(step)
            raise JobError("inputs.x: failing") from OSError(errno.EIO, "failing")
        real(step)

    tried: list[Step] = []
    real = Step.read
    monkeypatch.setattr(Step, "read", failing)
    return tried


@SIZES
def test_a_task_that_would_be_tried_again_has_no_outcome_once_it_stops(
    jobs: Path, monkeypatch: pytest.MonkeyPatch, small: int
) -> None:
    """A chunk that has run for its time leaves it to a later one; a run that is interrupted, to the next."""
    clock = Clock(monkeypatch)
    tried = fail_at_0002(monkeypatch)
    found = list(serve(jobs, lambda: clock.now > 2, retries=9, small=small))
    assert [outcome.error for outcome in found] == [None, None]
    assert 1 < len(tried) < 9
    assert clock.now < 2.2
    assert not [name for name in contents(jobs.parent / "out") if name.endswith(".part")]


def test_pauses_between_tries_do_not_become_longer_without_end(jobs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    tried = fail_at_0002(monkeypatch)
    errors = [outcome.error for outcome in serve(jobs, retries=30)]
    assert (len(tried), errors[2]) == (31, "inputs.x: failing")
    assert clock.now < 30 * 10
    assert max(clock.pauses) < 1


@SIZES
@pytest.mark.parametrize("memory", [1, 1500, 3500, 1 << 30])
def test_what_is_under_way_fits_in_memory(jobs: Path, monkeypatch: pytest.MonkeyPatch, small: int, memory: int) -> None:
    """Or is one task."""

    class Watched(serve_module._Loop):
        def _read_ahead(self) -> None:
            super()._read_ahead()
            most.append(self._memory)

    most: list[int] = []
    monkeypatch.setattr(serve_module, "_Loop", Watched)
    assert len(list(serve(jobs, memory=memory, small=small))) == COUNT
    assert max(most) == max(1000, min(memory // 1000, COUNT) * 1000)
