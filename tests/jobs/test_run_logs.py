"""Logs and manifests of runs: where they may be, and what happens if they cannot be written."""

import errno
import os
import sys
from pathlib import Path
from typing import Any

import commands
import pytest
from job_files import (
    assert_best,
    best,
    contents,
    each_best,
    save_inputs,
    save_jobs,
)

from dmlcpu.batch import run_jobs
from dmlcpu.errors import DmlError
from dmlcpu.jobs.run import JobsRun

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="of Linux")


@LINUX
@pytest.mark.parametrize("what", ["log", "manifest"])
def test_a_log_or_manifest_that_is_not_brought_to_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """The system tells of it once."""
    from dmlcpu.jobs import lines

    def fsync(file: int) -> None:
        if os.readlink(f"/proc/self/fd/{file}").endswith(what) and not failed:
            failed.append(file)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(file)

    failed: list[int] = []
    real = os.fsync
    save_inputs(tmp_path, 3)
    jobs = save_jobs(tmp_path, each_best(3))
    with monkeypatch.context() as patch:
        patch.setattr(lines.os, "fsync", fsync)
        result = run_jobs(jobs, log=tmp_path / "log", manifest=tmp_path / "manifest")
    assert (result.done, result.exit_code) == (3, 1)
    (failure,) = result.failures
    assert str(failure) == f"{what} {tmp_path / what}: outcomes could not be written: Input/output error"


@LINUX
@pytest.mark.parametrize("what", ["log", "manifest"])
def test_a_log_or_manifest_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """The jobs are done all the same; that it is not recorded is a failure."""
    from dmlcpu.jobs import lines

    def write(file: int, content: bytes) -> int:
        if os.readlink(f"/proc/self/fd/{file}").endswith(what):
            raise OSError(28, os.strerror(28))
        return real(file, content)

    real = os.write
    save_inputs(tmp_path, 3)
    jobs = save_jobs(tmp_path, each_best(3))
    options = {"log": tmp_path / "log", "manifest": tmp_path / "manifest"}
    with monkeypatch.context() as patch:
        patch.setattr(lines.os, "write", write)
        result = run_jobs(jobs, **options)
    assert (result.jobs, result.done, result.not_run, result.exit_code) == (3, 3, 0, 1)
    (failure,) = result.failures
    assert str(failure) == f"{what} {tmp_path / what}: outcomes could not be written: No space left on device"
    for number in range(3):
        assert_best(tmp_path, f"{number:04}")
    assert run_jobs(jobs, **options).done == (3 if what == "manifest" else 0)


def test_an_interrupted_run_with_a_manifest_on_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from dmlcpu.jobs import lines

    def outcomes(*args: Any) -> Any:
        for number, found in enumerate(real(*args)):
            yield found
            if number == 1:
                raise KeyboardInterrupt
            patch.setattr(lines.os, "write", write)

    def write(file: int, content: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    save_inputs(tmp_path, 3)
    jobs, manifest, real = save_jobs(tmp_path, each_best(3)), tmp_path / "manifest", JobsRun.outcomes
    with monkeypatch.context() as patch:
        patch.setattr(JobsRun, "outcomes", outcomes)
        with pytest.raises(KeyboardInterrupt):
            run_jobs(jobs, manifest=manifest, progress=True)
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == f"dmlcpu: 2 done, 0 failed, 1 not run; {manifest} does not record all: No space left on device"


def test_a_log_that_cannot_be_made(tmp_path: Path) -> None:
    save_inputs(tmp_path, 1)
    jobs = save_jobs(tmp_path, each_best(1))
    done = commands.run("batch", jobs, "--log", tmp_path / "in" / "0000.npy" / "log")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"dmlcpu: {tmp_path / 'in' / '0000.npy'}: File exists\n" or "Not a directory" in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_log_is_not_written_into_a_file_of_the_jobs(tmp_path: Path) -> None:
    save_inputs(tmp_path, 1)
    jobs = save_jobs(tmp_path, each_best(1))
    before = contents(tmp_path)
    for log in (jobs, tmp_path / "in" / "0000.npy", tmp_path / "out" / "0000.npz"):
        done = commands.run("batch", jobs, "--log", log)
        assert done.returncode == 2, log
        assert contents(tmp_path) == before


@pytest.mark.parametrize("what", ["log", "manifest"])
@pytest.mark.parametrize("path", ["in/0000.npy", "out/0000.npz", "out/../out/0001.npz"])
def test_files_of_jobs_that_are_done_are_neither_log_nor_manifest(tmp_path: Path, what: str, path: str) -> None:
    save_inputs(tmp_path, 2)
    jobs = save_jobs(tmp_path, each_best(2))
    run_jobs(jobs)
    save_jobs(tmp_path, [*each_best(2), best("0001", 2, id="more", output="out/more.npz")])
    before = contents(tmp_path)
    options: dict[str, Any] = {what: tmp_path / path}
    with pytest.raises(DmlError, match=f"{what} is .*; allowed: a file that is not one of the jobs'"):
        run_jobs(jobs, **options)
    assert contents(tmp_path) == before
