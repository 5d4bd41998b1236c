"""What is particular to processes of loky's, and to a Dask cluster: how they begin and end."""

import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
import serving
from job_files import eventually
from processes_of_jobs import HERE, begun, children, ended, start

from dmlcpu.common.imports import MissingExtraError
from dmlcpu.jobs import executors
from dmlcpu.jobs.dispatch import Dispatcher, WorkerError
from dmlcpu.jobs.executors import Cluster, Processes

POSIX = pytest.mark.skipif(sys.platform == "win32", reason="of POSIX")


@pytest.fixture(autouse=True)
def _modules_of_tests(monkeypatch):
    """Let workers import `serving`."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]))


def processes(count, **environment):
    return Processes(count, environment, begin=serving.begin_without_numba)


def served(workers, serve, items, stopping=lambda: False):
    with workers:
        yield from Dispatcher(serve, items, workers, retries=1, stopping=stopping).results()


def test_processes_have_the_environment_that_is_given():
    serve = partial(serving.environment, "MKL_NUM_THREADS")
    assert list(served(processes(1, MKL_NUM_THREADS="7"), serve, [0])) == [(0, "7")]
    assert os.environ.get("PYTHONSAFEPATH") is None  # as it is in workers


def test_processes_import_little_before_they_watch_their_coordinator():
    code = "import sys, dmlcpu.jobs.executors\nprint('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout.split() == [b"False"]


@POSIX
def test_processes_that_cannot_start_are_an_error(monkeypatch, tmp_path):
    next(served(processes(1), serving.doubled, [1]))  # the trackers of loky and multiprocessing run from here on
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\necho x >> {tmp_path}/starts\nexit 7\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    with pytest.raises(WorkerError, match="workers do not start: worker exited with code 7"):
        list(served(processes(1), serving.doubled, range(10)))
    assert len((tmp_path / "starts").read_text().split()) == 3


@POSIX
def test_closing_ends_all_processes():
    run = served(processes(2), partial(serving.pausing, 0.01), range(1000))
    ids = {next(run)[1][1] for _ in range(20)}
    assert not any(map(ended, ids))
    run.close()
    assert all(map(ended, ids))


RUNS_FOR_LONG = """
    import signal
    from functools import partial
    import serving
    from dmlcpu.jobs.dispatch import Dispatcher
    from dmlcpu.jobs.executors import Processes

    if __name__ == "__main__":
        asked = []
        signal.signal(signal.SIGINT, lambda *_: asked.append(1))
        serve = partial(serving.slow, sys.argv[1])
        print("up", flush=True)
        with Processes(2, {}, begin=serving.begin_without_numba) as workers:
            results = list(Dispatcher(serve, range(9), workers, 0, lambda: bool(asked)).results())
        print(len(results), len(asked))
"""


@POSIX
def test_workers_end_when_the_coordinator_is_killed(tmp_path):
    coordinator = start(RUNS_FOR_LONG, tmp_path)
    eventually(lambda: len(begun(tmp_path)) == 2)
    coordinator.kill()
    eventually(lambda: all(map(ended, begun(tmp_path))))
    output, errors = coordinator.communicate(timeout=30)
    assert output == "up\n"
    assert errors == ""


@POSIX
def test_ctrl_c_that_reaches_the_workers_lets_them_finish_their_items(tmp_path):
    coordinator = start(RUNS_FOR_LONG, tmp_path, process_group=0)
    eventually(lambda: len(begun(tmp_path)) == 2)
    os.killpg(coordinator.pid, signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        coordinator.communicate(timeout=1.0)
    (tmp_path / "go").touch()
    output, errors = coordinator.communicate(timeout=30)
    assert errors == ""
    assert output == "up\n2 1\n"
    assert all(map(ended, begun(tmp_path)))


@POSIX
def test_ctrl_c_while_processes_start_ends_the_run(tmp_path):
    for pause in (0.0, 0.05, 0.1, 0.2):  # no longer than the processes take to start
        coordinator = start(RUNS_FOR_LONG, tmp_path, process_group=0)
        assert coordinator.stdout.readline() == "up\n"
        eventually(lambda pid=coordinator.pid: children(pid))
        time.sleep(pause)
        os.killpg(coordinator.pid, signal.SIGINT)
        (tmp_path / "go").touch()
        output, errors = coordinator.communicate(timeout=30)
        assert errors == ""
        assert int(output.split()[0]) <= 9
        (tmp_path / "go").unlink()


@pytest.mark.skipif(sys.platform != "linux", reason="of Linux")
def test_what_cleans_up_after_processes_prints_nothing(tmp_path):
    """Of an interrupted run loky's tracker would print a traceback, if what it cleans up is gone already."""
    coordinator = start(RUNS_FOR_LONG, tmp_path)
    try:
        trackers = []
        while len(trackers) < 2:  # loky's, and multiprocessing's
            processes = [Path("/proc", str(pid)) for pid in children(coordinator.pid)]
            trackers = [each for each in processes if b"resource_tracker" in (each / "cmdline").read_bytes()]
            time.sleep(0.01)
        assert {os.readlink(each / "fd" / "2") for each in trackers} == {os.devnull}
        eventually(lambda: os.readlink(f"/proc/{coordinator.pid}/fd/2") != os.devnull)
        coordinator.send_signal(signal.SIGINT)
        (tmp_path / "go").touch()
        _, errors = coordinator.communicate(timeout=30)
        assert errors == ""
    finally:
        coordinator.kill()


UNGUARDED = """
import sys
sys.path.insert(0, sys.argv[1])
import serving
from dmlcpu.jobs.dispatch import Dispatcher
from dmlcpu.jobs.executors import Processes

print("the script runs", flush=True)
with Processes(2, {}, begin=serving.begin_without_numba) as workers:
    results = Dispatcher(serving.printing, range(3), workers, 0, lambda: False).results()
    print(sorted(results), sys.stdin.read())
"""


def test_a_script_needs_no_guard(tmp_path):
    """Processes leave the standard streams alone, and take no module of the current folder for one of Python's."""
    (tmp_path / "scripts").mkdir()
    script = tmp_path / "scripts" / "script.py"
    script.write_text(UNGUARDED)
    for name in ("multiprocessing", "loky", "signal"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('not this one')")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    process = subprocess.run(
        [sys.executable, "-W", "error", str(script), str(HERE)],
        input="input",
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert process.stderr == ""
    assert process.stdout == "the script runs\n[(0, '0'), (1, '1'), (2, '2')] input\n"


def test_it_is_told_once_when_workers_compile():
    told = []
    workers = Processes(2, {}, lambda: told.append("compiling"))
    assert sorted(dict(served(workers, serving.compiling, range(6))).values()) == [*range(6)]
    assert told == ["compiling"]


def test_no_loky_is_told_before_anything_runs(monkeypatch):
    monkeypatch.setitem(sys.modules, "loky", None)
    with pytest.raises(MissingExtraError, match=r"need the package loky: pip install '\.\[cli\]' in a clone of dmlcpu"):
        executors.check_loky()


def test_no_scheduler_is_an_error():
    dask = pytest.importorskip("dask")
    pytest.importorskip("distributed")
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "200ms"}),
        pytest.raises(WorkerError, match=r"no scheduler at tcp://127\.0\.0\.1:9: "),
    ):
        list(served(Cluster("tcp://127.0.0.1:9"), serving.doubled, range(3)))
    with pytest.raises(WorkerError, match="no scheduler at nonsense://x: "):
        list(served(Cluster("nonsense://x"), serving.doubled, range(3)))


@POSIX
@pytest.mark.parametrize(
    ("number", "fault"), [("SIGKILL", "scheduler is gone"), ("SIGSTOP", "scheduler has not answered for 1 seconds")]
)
def test_a_scheduler_that_is_gone_or_silent_is_an_error(monkeypatch, number, fault):
    pytest.importorskip("distributed")
    if number == "SIGSTOP":
        monkeypatch.setattr(executors, "_SILENCE", 1.0)
    with subprocess.Popen(
        [
            sys.executable,
            "-m",
            "distributed.cli.dask_scheduler",
            "--host",
            "127.0.0.1",
            "--port",
            "0",
            "--no-dashboard",
        ],
        stderr=subprocess.PIPE,
        text=True,
    ) as scheduler:
        address = next(line for line in scheduler.stderr if "Scheduler at:" in line).rpartition(" ")[2].strip()

        def stopping():
            scheduler.send_signal(getattr(signal, number))
            return False

        with pytest.raises(WorkerError, match=fault):
            list(served(Cluster(address), serving.doubled, range(3), stopping=stopping))
        scheduler.kill()


def test_no_distributed_is_told_before_anything_runs(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(
        MissingExtraError, match=r"needs the package distributed: pip install '\.\[cluster\]' in a clone of dmlcpu"
    ):
        executors.check_cluster("tcp://127.0.0.1:9")
