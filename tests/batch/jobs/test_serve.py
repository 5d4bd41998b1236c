"""Serving tasks: through the pipeline, and in bundles."""

import errno
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from job_files import contents, each_best, save_inputs, save_jobs

from dmlcpu.batch.jobs import work
from dmlcpu.batch.jobs.job import FileInput, Job
from dmlcpu.batch.jobs.step import Outcome, Settings, Task, finished

COUNT = 6
ALL = [f"{number:04}" for number in range(COUNT)]


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    save_inputs(tmp_path, COUNT)
    return save_jobs(tmp_path, each_best(COUNT))


def serve(settings: Settings, given: Iterator[Task], stopping: Callable[[], bool]) -> Iterator[Outcome]:
    """Serve tasks; yield outcomes one by one."""
    for outcomes in work.serve(settings, given, stopping):
        yield from outcomes


def settings(folder: Path, memory: int = 1 << 20, bundle: int = 0) -> Settings:
    return Settings(folder, 1, memory, bundle)


def tasks(folder: Path, count: int = COUNT) -> list[Task]:
    from dmlcpu.batch.files import identity

    return [
        Task(
            Job(name, "top_k", {"x": FileInput(f"in/{name}.npy")}, {"k": 3}, f"out/{name}.npz"),
            {f"in/{name}.npy": identity(folder / "in" / f"{name}.npy", content=False)},
            1000,
            None,
            {},
        )
        for name in ALL[:count]
    ]


BUNDLES = pytest.mark.parametrize("bundle", [0, 1, 3])


@BUNDLES
def test_outcomes_come_in_order_and_threads_end(jobs: Path, bundle: int) -> None:
    before = threading.active_count()
    served = serve(settings(jobs.parent, bundle=bundle), iter(tasks(jobs.parent)), lambda: False)
    found = list(served)
    assert [list(outcome.outputs) for outcome in found] == [[f"out/{name}.npz"] for name in ALL]
    assert all(outcome.error is None and outcome.seconds > 0 for outcome in found)
    assert threading.active_count() == before


@BUNDLES
def test_stopping_finishes_what_has_begun(jobs: Path, bundle: int) -> None:
    found: list[Outcome] = []
    for outcome in serve(settings(jobs.parent, bundle=bundle), iter(tasks(jobs.parent)), lambda: len(found) >= 2):
        found.append(outcome)
    assert 2 <= len(found) <= COUNT
    assert sorted(contents(jobs.parent / "out")) == [f"{name}.npz" for name in ALL[: len(found)]]


@BUNDLES
def test_stopping_at_once(jobs: Path, bundle: int) -> None:
    assert list(serve(settings(jobs.parent, bundle=bundle), iter(tasks(jobs.parent)), lambda: True)) == []
    assert not (jobs.parent / "out").exists()


@BUNDLES
def test_a_consumer_that_ends_early(jobs: Path, bundle: int) -> None:
    before = threading.active_count()
    served = serve(settings(jobs.parent, bundle=bundle), iter(tasks(jobs.parent)), lambda: False)
    next(served)
    served.close()
    assert not any(name.endswith(".part") for name in contents(jobs.parent / "out"))
    for thread in threading.enumerate():
        if thread.name == "dmlcpu-read":
            thread.join(10)
    assert threading.active_count() == before


def test_an_outcome_waits_for_no_later_task(jobs: Path) -> None:
    """As whoever gives out tasks may wait for it."""
    found: list[Outcome] = []

    class Given:
        """Two tasks at a time."""

        def __init__(self) -> None:
            self.tasks, self.count = iter(tasks(jobs.parent)), 0

        def __iter__(self) -> Iterator[Task]:
            return self

        def would_wait(self) -> bool:
            return self.count % 2 == 0

        def __next__(self) -> Task:
            assert len(found) >= self.count // 2 * 2
            self.count += 1
            return next(self.tasks)

    for outcome in serve(settings(jobs.parent, bundle=3), Given(), lambda: False):
        found.append(outcome)
    assert len(found) == COUNT


@pytest.mark.parametrize(
    ("bundle", "memory", "sizes"), [(100, 1 << 20, [6]), (100, 2500, [2, 2, 2]), (4, 1 << 20, [4, 2]), (4, 1, [1] * 6)]
)
def test_bundles_hold_so_many_files_and_bytes(
    jobs: Path, monkeypatch: pytest.MonkeyPatch, bundle: int, memory: int, sizes: list[int]
) -> None:
    """Of jobs of 1,000 bytes and one file each."""
    found: list[int] = []
    monkeypatch.setattr("dmlcpu.batch.jobs.bundles._LONGEST", 60.0)
    monkeypatch.setattr(
        "dmlcpu.batch.jobs.bundles.finished", lambda steps: (found.append(len(steps)), finished(steps))[1]
    )
    assert len(list(serve(settings(jobs.parent, memory, bundle), iter(tasks(jobs.parent)), lambda: False))) == COUNT
    assert found == sizes


def test_a_bundle_of_slow_jobs_is_not_filled(jobs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dmlcpu.batch.jobs.bundles._LONGEST", -1.0)
    given = iter(tasks(jobs.parent))
    next(serve(settings(jobs.parent, bundle=100), given, lambda: False))
    assert len(list(given)) >= COUNT - 3


def test_names_are_on_the_disk_before_an_outcome_is_told(jobs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[list[str]] = []
    monkeypatch.setattr("dmlcpu.batch.jobs.step.sync_folder", lambda folder: synced.append(contents(Path(folder))))
    for number, outcome in enumerate(serve(settings(jobs.parent, bundle=3), iter(tasks(jobs.parent)), lambda: False)):
        assert outcome.error is None
        assert f"{ALL[number]}.npz" in synced[number // 3]
    assert len(synced) == -(-COUNT // 3)  # once for a bundle


def test_a_folder_that_cannot_be_synced(jobs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(folder: str) -> None:
        """Fail once, as Linux tells of a failure once."""
        synced.append(folder)
        if len(synced) == 1:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    synced: list[str] = []
    monkeypatch.setattr("dmlcpu.batch.jobs.step.sync_folder", fail)
    found = [
        outcome.error for outcome in serve(settings(jobs.parent, bundle=3), iter(tasks(jobs.parent)), lambda: False)
    ]
    assert found[:3] == [f"output: 'out/{name}.npz': Input/output error" for name in ALL[:3]]
    assert found[3:] == [None] * (COUNT - 3)


@pytest.mark.parametrize("memory", [1, 1500, 3500, 1 << 30])
def test_what_is_under_way_fits_in_memory(jobs: Path, monkeypatch: pytest.MonkeyPatch, memory: int) -> None:
    """Of jobs of 1,000 bytes each, or always one."""
    from dmlcpu.batch.jobs import pipeline

    room = pipeline._Room(memory)
    for _ in range(min(max(1, memory // 1000), 8)):
        assert room.enter(1000)
    waiting = threading.Thread(target=room.enter, args=(1000,), daemon=True)
    waiting.start()
    waiting.join(0.05)
    assert waiting.is_alive()
    room.leave(1000)
    waiting.join(10)
    assert not waiting.is_alive()

    class Watched(pipeline._Room):
        def enter(self, nbytes: int) -> bool:
            entered = super().enter(nbytes)
            under_way.append((self._jobs, self._bytes))  # others only leave meanwhile
            return entered

    under_way: list[tuple[int, int]] = []
    monkeypatch.setattr(pipeline, "_Room", Watched)
    assert len(list(serve(settings(jobs.parent, memory), iter(tasks(jobs.parent)), lambda: False))) == COUNT
    assert len(under_way) == COUNT
    assert all(count == 1 or nbytes <= memory for count, nbytes in under_way)
