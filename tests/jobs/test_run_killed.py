"""Runs that are killed, or asked to stop, and go on later."""

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import commands
import pytest
from job_files import (
    contents,
    each_best,
    environment,
    eventually,
    outcomes,
    records,
    save_inputs,
    save_jobs,
)

from dmlcpu.batch import run_jobs

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="of Linux")

COUNT = 300
ALL = [f"{number:04}" for number in range(COUNT)]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Jobs that are done, in one go."""
    folder = tmp_path_factory.mktemp("undisturbed")
    save_inputs(folder, COUNT, (40, 100))
    assert run_jobs(save_jobs(folder, each_best(COUNT, 20))).done == COUNT
    return folder


@pytest.fixture
def jobs(undisturbed: Path, tmp_path: Path) -> Path:
    """The same jobs in a folder of their own, none of them done."""
    shutil.copytree(undisturbed / "in", tmp_path / "in")
    return Path(shutil.copy(undisturbed / "jobs.jsonl", tmp_path))


@pytest.fixture
def marked() -> Iterator[dict[str, str]]:
    """An environment by which all processes of a test are known; in the end there are none."""
    mark = uuid4().hex
    yield {"DMLCPU_TEST_MARK": mark}
    eventually(lambda: not processes(mark))


def processes(mark: str) -> list[str]:
    """Return the command lines of all processes that have a mark in their environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (folder / "environ").read_bytes():
                found.append((folder / "cmdline").read_bytes().decode())
        except OSError:
            continue
    return found


def assert_nothing_half_written(jobs: Path, undisturbed: Path) -> None:
    """Check that all outputs there are, but for temporary files, are whole; and whole is what is recorded."""
    whole = contents(undisturbed / "out")
    there = contents(jobs.parent / "out") if (jobs.parent / "out").exists() else {}
    assert all(whole[name] == content for name, content in there.items() if not name.endswith(".part"))
    if Path(f"{jobs}.manifest.jsonl").exists():
        for id_, outcome in outcomes(jobs).items():
            assert outcome == "done"
            assert f"{id_}.npz" in there


def assert_finished(jobs: Path, undisturbed: Path) -> None:
    """Check that all is as if nothing had happened."""
    assert contents(jobs.parent / "out") == contents(undisturbed / "out")
    assert outcomes(jobs) == dict.fromkeys(ALL, "done")
    assert {name: record["job"] for name, record in records(jobs).items()} == {
        name: record["job"] for name, record in records(undisturbed / "jobs.jsonl").items()
    }
    names = {"in", "jobs.jsonl", "jobs.jsonl.manifest.jsonl", "out"}
    assert {path.name for path in jobs.parent.iterdir()} <= names | {"log"}


@pytest.mark.slow
@pytest.mark.parametrize(("workers", "kills", "longest"), [(1, 12, 0.3), (2, 3, 2)])
def test_killed_at_any_moment(
    jobs: Path, undisturbed: Path, marked: dict[str, str], workers: int, kills: int, longest: float
) -> None:
    argv = [sys.executable, str(Path(__file__).with_name("killing.py")), str(jobs), workers, kills, longest, 17]
    finished, moments = 0, set()
    with subprocess.Popen(
        list(map(str, argv)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment(**marked)
    ) as killing:
        assert killing.stdin is not None
        assert killing.stdout is not None
        for line in killing.stdout:
            what, number = line.split()
            assert_nothing_half_written(jobs, undisturbed)
            out = jobs.parent / "out"
            moments.add((number, len([*out.iterdir()]) if out.exists() else 0))
            if what == "done":  # then once more from the beginning
                assert number == "0"
                assert_finished(jobs, undisturbed)
                finished += 1
                shutil.rmtree(jobs.parent / "out")
                Path(f"{jobs}.manifest.jsonl").unlink()
            killing.stdin.write("\n")
            killing.stdin.flush()
    assert killing.returncode == 0
    assert len(moments) > kills // 4, "all were killed at the same moment"
    again = commands.run("batch", jobs, "--jobs", workers)
    assert again.returncode == 0
    assert_finished(jobs, undisturbed)
    assert run_jobs(jobs).done_before == COUNT


def recorded(jobs: Path) -> int:
    manifest = Path(f"{jobs}.manifest.jsonl")
    return len(manifest.read_bytes().splitlines()) - 1 if manifest.exists() else 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
@pytest.mark.parametrize(
    "options",
    [[], ["--force"], pytest.param(["--jobs", "2"], marks=pytest.mark.slow)],
    ids=["1", "forced", "2"],
)
def test_stopped_once(
    jobs: Path, undisturbed: Path, marked: dict[str, str], number: signal.Signals, options: list[str]
) -> None:
    """What runs is finished and recorded; the same command goes on."""
    log = jobs.parent / "log"
    with commands.started("batch", jobs, "--log", log, "--json", *options, **marked) as run:
        eventually(lambda: recorded(jobs) > 5)
        os.killpg(run.pid, number) if number == signal.SIGINT else os.kill(run.pid, number)
    assert run.returncode == 130, run.stderr
    assert_nothing_half_written(jobs, undisturbed)
    done = recorded(jobs)
    assert 5 < done < COUNT
    assert len(log.read_bytes().splitlines()) == done == len(contents(jobs.parent / "out"))
    asked, summary = run.stderr.splitlines()
    assert asked == f"dmlcpu: {number.name}: finishing the running jobs; send it again to stop at once"
    assert summary.startswith(f"dmlcpu: interrupted: {done} done, {COUNT - done} not run, in ")
    changed = " without --force" if "--force" in options else ""
    assert summary.endswith(f" s. Run the same command again{changed} to continue.")
    assert '"interrupted": true' in run.stdout
    again = commands.run("batch", jobs, "--log", log)
    first, last = again.stderr.splitlines()
    assert first == f"dmlcpu: resuming: {done} of {COUNT} done, {COUNT - done} to do"
    assert last.startswith(f"dmlcpu: {COUNT - done} done, {done} done before, in ")
    assert again.returncode == 0
    assert_finished(jobs, undisturbed)


SLOW = """\
import itertools, sys, threading
from dmlcpu.jobs.step import Step
real, calls = Step.compute, itertools.count()
def slow(self, stopping):
    threading.Event().wait(0.3 if next(calls) < 3 else 60)
    real(self, stopping)
Step.compute = slow
from dmlcpu.cli import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_stopped_twice(jobs: Path, undisturbed: Path, marked: dict[str, str], workers: int) -> None:
    with commands.started("batch", jobs, "--jobs", workers, code=SLOW, **marked) as run:
        eventually(lambda: recorded(jobs) > 1)
        os.killpg(run.pid, signal.SIGINT)
        eventually(lambda: run.err.read_text().startswith("dmlcpu: SIGINT: finishing"))
        os.killpg(run.pid, signal.SIGINT)
    assert (run.returncode, run.stdout) == (130, ""), run.stderr
    done = recorded(jobs)
    assert 1 < done < COUNT
    assert run.stderr.splitlines()[1:] == [
        f"dmlcpu: {done} done, 0 failed, {COUNT - done} not run, as {jobs}.manifest.jsonl records; "
        "the same run again does the others",
        "dmlcpu: interrupted",
    ]
    assert_nothing_half_written(jobs, undisturbed)
    assert commands.run("batch", jobs).returncode == 0
    assert_finished(jobs, undisturbed)


CHECKING = """\
import signal, sys, threading
signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell may have had ignored
from dmlcpu.jobs.check import Checker
real = Checker.check
def slow(self, task):
    print("checking", flush=True)
    threading.Event().wait(0.2)
    return real(self, task)
Checker.check = slow
from dmlcpu.cli import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_stopped_while_jobs_are_checked(jobs: Path, number: signal.Signals) -> None:
    before = contents(jobs.parent)
    with commands.started("batch", jobs, code=CHECKING) as run:
        eventually(lambda: run.out.read_text().startswith("checking\n"))
        os.kill(run.pid, number)
    assert (run.returncode, run.stderr) == (130, "dmlcpu: interrupted\n")
    assert contents(jobs.parent) == before


@pytest.mark.parametrize("workers", [1, 2])
def test_a_program_that_is_stopped(jobs: Path, undisturbed: Path, workers: int) -> None:
    """From a program, the signal is the run's as long as it lasts."""

    def interrupt() -> None:
        eventually(lambda: recorded(jobs) > 1)
        if signal.getsignal(signal.SIGINT) is not before:  # otherwise the run is over, and the signal would end pytest
            os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=interrupt)
    thread.start()
    result = run_jobs(jobs, workers=workers)
    thread.join()
    assert result.interrupted
    assert result.exit_code == 130
    assert result.done == recorded(jobs) == COUNT - result.not_run
    assert run_jobs(jobs).done == result.not_run
    assert_finished(jobs, undisturbed)
