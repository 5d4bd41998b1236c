"""Runs on several processes, or a cluster: the same results, whatever becomes of the workers."""

import contextlib
import os
import random
import signal
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import commands
import pytest
from job_files import assert_best, best, contents, each_best, eventually, outcomes, run_after, save_inputs, save_jobs
from processes_of_jobs import children, ended

from dmlcpu.batch import plan_jobs, run_jobs

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="of Linux")


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """The address of a cluster of two processes."""
    pytest.importorskip("distributed")
    from clusters import local_cluster

    with local_cluster(2) as started:
        yield started.scheduler_address


@pytest.mark.slow
@LINUX
def test_a_worker_that_is_killed(tmp_path: Path) -> None:
    count = 300
    save_inputs(tmp_path, count, (100, 100))
    jobs = save_jobs(tmp_path, each_best(count))
    manifest = Path(f"{jobs}.manifest.jsonl")
    with commands.started("batch", jobs, "--jobs", 2) as run:
        eventually(lambda: manifest.exists() and len(manifest.read_bytes().splitlines()) > 20)
        os.kill(random.Random(3).choice(workers_of(run.pid)), signal.SIGKILL)
    assert (run.returncode, run.stdout) == (0, "")
    *progress, last = run.stderr.splitlines()  # a slow machine prints its progress
    assert all(line.endswith(" read") for line in progress)
    assert last.startswith(f"dmlcpu: {count} done, in ")
    assert outcomes(jobs) == dict.fromkeys((f"{number:04}" for number in range(count)), "done")
    for number in range(count):
        assert_best(tmp_path, f"{number:04}")
    assert len(contents(tmp_path / "out")) == count


def workers_of(process_id: int) -> list[int]:
    """Return the workers that a run has started, directly or by a process of multiprocessing's."""
    below = children(process_id)
    for child in list(below):
        below += children(child)
    found = []
    for child in below:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            line = Path(f"/proc/{child}/cmdline").read_bytes()
            found += [child] if b"popen_loky" in line else []
    return found


ON_TWO_CORES = f"from dmlcpu.runtime import threads\nthreads.set_num_threads(2)\n{commands.COMMAND}"


@pytest.mark.slow
@LINUX
def test_threads_are_counted(tmp_path: Path) -> None:
    """More workers than cores: one thread each computes; the others read, write, or wait for items."""
    count = 200
    save_inputs(tmp_path, count, (200, 300))
    jobs = save_jobs(tmp_path, each_best(count))
    manifest = Path(f"{jobs}.manifest.jsonl")
    most: dict[int, int] = {}
    with commands.started("batch", jobs, "--jobs", 3, "--quiet", code=ON_TWO_CORES) as run:
        while not ended(run.pid):
            for worker in workers_of(run.pid) if manifest.exists() else []:
                try:
                    status = Path(f"/proc/{worker}/status").read_text()
                except (FileNotFoundError, ProcessLookupError):
                    continue
                found = int(status.partition("Threads:")[2].split()[0])
                most[worker] = max(most.get(worker, 0), found)
            threading.Event().wait(0.1)
    assert (run.returncode, run.stderr) == (0, "")
    assert len(most) == 3
    # The main one, one each for watching the coordinator and reading, two that write.
    assert max(most.values()) <= 5
    assert len(contents(tmp_path / "out")) == count


@pytest.mark.slow
def test_results_are_equal_however_they_are_made(tmp_path: Path, cluster: str) -> None:
    """One worker or several, one thread or several: the same bytes."""
    save_inputs(tmp_path, 12, (50, 200))
    kinds: list[dict[str, Any]] = [{}, {"workers": 2}, {"threads": 3}, {"scheduler": cluster}]
    found = []
    with ThreadPoolExecutor(2) as executor:
        for number, options in enumerate([*kinds, {"executor": executor}, {"executor": executor, "workers": 1}]):
            made = [best(f"{name:04}", output=f"out{number}/{name}.npz") for name in range(12)]
            result = run_jobs(made, directory=tmp_path, **options)
            assert (result.done, result.failures) == (12, [])
            found.append(contents(tmp_path / f"out{number}"))
        assert executor.submit(int).result() == 0  # the program's own: it is not shut down
    assert found[1:] == found[:1] * 5


def test_this_machine_needs_no_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dask's would run what any user of the machine sends to its ports."""
    monkeypatch.setitem(sys.modules, "distributed", None)
    save_inputs(tmp_path, 2)
    assert plan_jobs(each_best(2), directory=tmp_path, scheduler="local").faults == []
    assert run_jobs(each_best(2), directory=tmp_path, scheduler="local").done == 2


# test_step.py has more of processes.
@pytest.mark.parametrize("kind", [pytest.param("processes", marks=pytest.mark.slow), "dask"])
def test_failures_are_told_by_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, kind: str
) -> None:
    save_inputs(tmp_path, 4)
    gone = (tmp_path / "in" / "0002.npy").unlink
    options = {"workers": 2} if kind == "processes" else {"scheduler": request.getfixturevalue("cluster")}
    result = run_after(monkeypatch, gone, each_best(4), directory=tmp_path, **options)
    assert (result.done, [str(failure) for failure in result.failures]) == (
        3,
        ["jobs[2] (0002): inputs: 'in/0002.npy': No such file or directory"],
    )
