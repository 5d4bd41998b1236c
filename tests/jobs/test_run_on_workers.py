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

import pytest
from job_files import assert_best, best, contents, each_best, outcomes, run_after, save_inputs, save_jobs, start, until
from processes_of_jobs import children

from dmlcpu.batch import plan_jobs, run_jobs

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="of Linux")


@pytest.mark.slow
@LINUX
def test_a_worker_that_is_killed(tmp_path: Path) -> None:
    count = 300
    save_inputs(tmp_path, count, (100, 100))
    jobs = save_jobs(tmp_path, each_best(count))
    manifest = Path(f"{jobs}.manifest.jsonl")
    with start("batch", jobs, "--jobs", 2) as run:
        until(lambda: manifest.exists() and len(manifest.read_bytes().splitlines()) > 20, run)
        os.kill(random.Random(3).choice(workers_of(run.pid)), signal.SIGKILL)
        out, err = run.communicate(timeout=120)
    assert (run.returncode, out) == (0, "")
    assert err.splitlines()[-1].startswith(f"dmlcpu: {count} done, in ")
    assert len(err.splitlines()) == 1
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


@pytest.mark.slow
@LINUX
def test_threads_are_counted(tmp_path: Path) -> None:
    """More workers than cores: one thread each computes; the others read, write, or wait for items."""
    count = 200
    save_inputs(tmp_path, count, (200, 300))
    jobs = save_jobs(tmp_path, each_best(count))
    manifest = Path(f"{jobs}.manifest.jsonl")
    most: dict[int, int] = {}
    with start("batch", jobs, "--jobs", 6, "--quiet") as run:
        while run.poll() is None:
            for worker in workers_of(run.pid) if manifest.exists() else []:
                try:
                    status = Path(f"/proc/{worker}/status").read_text()
                except (FileNotFoundError, ProcessLookupError):
                    continue
                found = int(status.partition("Threads:")[2].split()[0])
                most[worker] = max(most.get(worker, 0), found)
            threading.Event().wait(0.02)
        assert (run.wait(), run.stderr.read()) == (0, "")
    assert len(most) == 6
    # The main one, one each for watching the coordinator and reading, two that write.
    assert max(most.values()) <= 5
    assert len(contents(tmp_path / "out")) == count


@pytest.mark.slow
def test_results_are_equal_however_they_are_made(tmp_path: Path) -> None:
    """One worker or several, one thread or several: the same bytes."""
    save_inputs(tmp_path, 12, (50, 200))
    kinds: list[dict[str, Any]] = [{}, {"workers": 2}, {"threads": 3}]
    found = []
    with ThreadPoolExecutor(2) as executor, cluster(2) as address:
        kinds.append({"scheduler": address})
        for number, options in enumerate([*kinds, {"executor": executor}, {"executor": executor, "workers": 1}]):
            made = [best(f"{name:04}", output=f"out{number}/{name}.npz") for name in range(12)]
            result = run_jobs(made, directory=tmp_path, **options)
            assert (result.done, result.failures) == (12, [])
            found.append(contents(tmp_path / f"out{number}"))
        assert executor.submit(int).result() == 0  # the program's own: it is not shut down
    assert found[1:] == found[:1] * 5


@contextlib.contextmanager
def cluster(count: int) -> Iterator[str]:
    """Start a cluster of processes; yield its address."""
    distributed = pytest.importorskip("distributed")
    dashboard = {"dashboard_address": "127.0.0.1:0"}
    with distributed.LocalCluster(
        count, threads_per_worker=1, dashboard_address=None, scheduler_kwargs=dashboard
    ) as started:
        yield started.scheduler_address


def test_this_machine_needs_no_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dask's would run what any user of the machine sends to its ports."""
    monkeypatch.setitem(sys.modules, "distributed", None)
    save_inputs(tmp_path, 2)
    assert plan_jobs(each_best(2), directory=tmp_path, scheduler="local").faults == []
    assert run_jobs(each_best(2), directory=tmp_path, scheduler="local").done == 2


# test_step.py has more of processes.
@pytest.mark.parametrize("kind", [pytest.param("processes", marks=pytest.mark.slow), "dask"])
def test_failures_are_told_by_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    save_inputs(tmp_path, 4)
    with contextlib.ExitStack() as stack:
        options: dict[str, Any] = (
            {"workers": 2} if kind == "processes" else {"scheduler": stack.enter_context(cluster(1))}
        )
        gone = (tmp_path / "in" / "0002.npy").unlink
        result = run_after(monkeypatch, gone, each_best(4), directory=tmp_path, **options)
    assert (result.done, [str(failure) for failure in result.failures]) == (
        3,
        ["jobs[2] (0002): inputs: 'in/0002.npy': No such file or directory"],
    )
