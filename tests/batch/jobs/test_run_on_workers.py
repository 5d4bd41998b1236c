"""Runs on several processes, or a cluster: the same results, whatever becomes of the workers."""

import contextlib
import os
import random
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from job_files import assert_best, best, contents, each_best, outcomes, run_after, save_inputs, save_jobs, start, until
from processes_of_jobs import children

from dmlcpu.batch import run_jobs

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="of Linux")


@pytest.mark.slow
@LINUX
@pytest.mark.parametrize("scheduler", [[], ["--scheduler", "local"]], ids=["processes", "dask"])
def test_a_worker_that_is_killed(tmp_path: Path, scheduler: list[str]) -> None:
    if scheduler:
        pytest.importorskip("distributed")
    count = 300
    save_inputs(tmp_path, count, (100, 100))
    jobs = save_jobs(tmp_path, each_best(count))
    manifest = Path(f"{jobs}.manifest.jsonl")
    with start("batch", jobs, "--jobs", 2, *scheduler) as run:
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
            found += [child] if b"popen_loky" in line or b"spawn_main" in line else []
    return found


@pytest.mark.slow
@LINUX
def test_threads_are_counted(tmp_path: Path) -> None:
    """16 workers on a few cores: one thread each computes; the others read, write, or wait for items."""
    count = 200
    save_inputs(tmp_path, count, (200, 300))
    jobs = save_jobs(tmp_path, each_best(count))
    manifest = Path(f"{jobs}.manifest.jsonl")
    most: dict[int, int] = {}
    with start("batch", jobs, "--jobs", 16, "--quiet") as run:
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
    assert len(most) == 16
    # The main one, one each for watching the coordinator and reading, two that write.
    assert max(most.values()) <= 5
    assert len(contents(tmp_path / "out")) == count


@pytest.mark.slow
def test_results_are_equal_however_they_are_made(tmp_path: Path) -> None:
    """One worker or several, one thread or several: the same bytes."""
    pytest.importorskip("distributed")
    save_inputs(tmp_path, 12, (50, 200))
    kinds: list[dict[str, Any]] = [{}, {"workers": 2}, {"threads": 3}, {"workers": 2, "scheduler": "local"}]
    found = []
    with ThreadPoolExecutor(2) as executor:
        for number, options in enumerate([*kinds, {"executor": executor}, {"executor": executor, "workers": 1}]):
            made = [best(f"{name:04}", output=f"out{number}/{name}.npz") for name in range(12)]
            result = run_jobs(made, directory=tmp_path, **options)
            assert (result.done, result.failures) == (12, [])
            found.append(contents(tmp_path / f"out{number}"))
        assert executor.submit(int).result() == 0  # the program's own: it is not shut down
    assert found[1:] == found[:1] * 5


@pytest.mark.parametrize(
    "options",
    [pytest.param({"workers": 2}, marks=pytest.mark.slow), {"scheduler": "local"}],
    ids=["processes", "dask"],  # test_step.py has more of processes
)
def test_failures_are_told_by_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]) -> None:
    if "scheduler" in options:
        pytest.importorskip("distributed")
    save_inputs(tmp_path, 4)
    result = run_after(monkeypatch, (tmp_path / "in" / "0002.npy").unlink, each_best(4), directory=tmp_path, **options)
    assert (result.done, [str(failure) for failure in result.failures]) == (
        3,
        ["jobs[2] (0002): inputs: 'in/0002.npy': No such file or directory"],
    )
