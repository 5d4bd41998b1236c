"""What happens to files between the check and the result: nothing half-written, and the others are done."""

import errno
import io
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import commands
import numpy as np
import pytest
from job_files import (
    ALL,
    COUNT,
    LINUX,
    ROOT,
    assert_all_but,
    best,
    contents,
    each_best,
    environment,
    errors,
    outcomes,
    run_after,
    save_inputs,
    save_jobs,
)

from dmlcpu.batch import run_jobs
from dmlcpu.files import targets
from dmlcpu.files.targets import FileWriter


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    save_inputs(tmp_path, COUNT)
    return save_jobs(tmp_path, each_best(COUNT))


@pytest.mark.parametrize("workers", [1, 2])
def test_inputs_that_change_after_the_check(jobs: Path, monkeypatch: pytest.MonkeyPatch, workers: int) -> None:
    folder = jobs.parent / "in"

    def change() -> None:
        (folder / "0001.npy").unlink()
        (folder / "0002.npy").write_bytes((folder / "0002.npy").read_bytes()[:-4])
        np.save(folder / "0003.npy", np.zeros((2, 3)))
        (folder / "0004.npy").touch()
        (folder / "0005.npy").unlink()
        (folder / "0005.npy").mkdir()

    result = run_after(monkeypatch, change, jobs, workers=workers)
    assert errors(result) == {
        "0001": "inputs: 'in/0001.npy': No such file or directory",
        **{
            name: f"inputs: 'in/{name}.npy' has changed since it was checked"
            for name in ("0002", "0003", "0004", "0005")
        },
    }
    assert (result.done, result.exit_code) == (1, 1)
    assert_all_but(jobs, *errors(result))


@pytest.mark.parametrize("memory", ["1G", "1M"])
def test_an_input_that_changes_while_it_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, memory: str) -> None:
    """What has been computed of it may be of both states: nothing is kept."""
    save_inputs(tmp_path, COUNT, (200, 2000))
    jobs = save_jobs(tmp_path, [best(name, output={"values": f"out/{name}.npy"}) for name in ALL])

    def change_and_finish(writer: Any) -> None:
        (tmp_path / "in" / "0002.npy").touch()
        real(writer)

    real = FileWriter.finish
    with monkeypatch.context() as patch:
        patch.setattr(FileWriter, "finish", change_and_finish)
        result = run_jobs(jobs, max_memory=memory)
    assert set(errors(result)) >= {"0002"}
    assert set(errors(result).values()) == {"inputs: 'in/0002.npy' has changed since it was checked"}
    assert sorted(contents(tmp_path / "out")) == [f"{name}.npy" for name in ALL if name not in errors(result)]
    assert run_jobs(jobs, max_memory=memory).done == len(result.failures)


@LINUX
@pytest.mark.parametrize("stage", ["finish", "put_in_place", "write", "create"])
@pytest.mark.parametrize("suffix", ["npz", "npy"])
def test_a_full_disk(jobs: Path, monkeypatch: pytest.MonkeyPatch, stage: str, suffix: str) -> None:
    """Whatever it is that fails, the file is named, and there is no part of it."""
    results = ("values", "indices")
    made = [best(name, output=dict.fromkeys(results, f"out/{name}.npz")) for name in ALL]
    if suffix == "npy":
        made = [best(name, output={result: f"out/{name}-{result}.npy" for result in results}) for name in ALL]
    save_jobs(jobs.parent, made)
    full = "0003" if suffix == "npz" else "0003-indices"

    def fails(path: str) -> bool:
        return full in path

    full_disk(monkeypatch, stage, fails)
    result = run_jobs(jobs)
    assert list(errors(result)) == ["0003"]
    assert errors(result)["0003"].startswith(f"output: 'out/{full}.{suffix}': No space left on device")
    left = [name for name in contents(jobs.parent / "out") if not name.startswith("0003-values")]
    assert len(left) == (COUNT - 1) * (1 if suffix == "npz" else 2)
    assert not any(name.endswith(".part") for name in left)
    monkeypatch.undo()
    assert run_jobs(jobs).done == 1
    assert outcomes(jobs) == dict.fromkeys(ALL, "done")


def full_disk(monkeypatch: pytest.MonkeyPatch, stage: str, fails: Callable[[str], bool]) -> None:
    """Let one of the steps of writing a file fail."""

    def check(step: str, path: str) -> None:
        if step == stage and fails(path):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    class File(io.FileIO):
        def __init__(self, path: str, mode: str, **opener: Any) -> None:
            check("create", path)
            super().__init__(path, mode, **opener)

        def write(self, content: Any) -> int:
            written = super().write(bytes(content)[:10])
            check("write", str(self.name))
            return written + super().write(bytes(content)[10:])

    def pwrite(file: int, content: Any, offset: int) -> int:
        check("write", os.readlink(f"/proc/self/fd/{file}"))
        return real_pwrite(file, content, offset)

    def fsync(file: int) -> None:
        check("finish", os.readlink(f"/proc/self/fd/{file}"))
        real_fsync(file)

    def replace(source: str, target: str, **handles: Any) -> None:
        check("put_in_place", str(source))
        real_replace(source, target, **handles)

    real_pwrite, real_fsync, real_replace = os.pwrite, os.fsync, os.replace
    monkeypatch.setattr(targets, "io", SimpleNamespace(FileIO=File))
    monkeypatch.setattr(os, "pwrite", pwrite)
    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)


LIMITED = """\
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
from dmlcpu.batch import run_jobs
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
result = run_jobs(sys.argv[1])
for failure in result.failures:
    print(failure.id, failure.error, sep=": ")
sys.exit(result.exit_code)
"""


@LINUX
def test_a_quota(tmp_path: Path) -> None:
    """Files that get too large for the system: these jobs fail, wherever the limit is met."""
    large = [1, 3, 4]
    for number in range(COUNT):
        shape = (100, 1000) if number in large else (100, 10)
        np.save(tmp_path / f"{number}.npy", np.random.default_rng(number).random(shape, np.float32))
    jobs = save_jobs(
        tmp_path,
        [
            {"id": ALL[n], "op": "top_k", "inputs": {"x": f"{n}.npy"}, "attrs": {"k": 10 ** (1 + 2 * (n in large))}}
            | {"output": f"out/{ALL[n]}.npz" if n % 2 else {"values": f"out/{ALL[n]}.npy"}}
            for n in range(COUNT)
        ],
    )
    done = commands.run(jobs, code=LIMITED)
    assert (done.returncode, done.stderr) == (1, "")
    failed = sorted(done.stdout.splitlines())
    assert [line.partition(": File too large")[0] for line in failed] == [
        "0001: output: 'out/0001.npz'",
        "0003: output: 'out/0003.npz'",
        "0004: output: 'out/0004.npy'",
    ]
    assert sorted(contents(tmp_path / "out")) == ["0000.npy", "0002.npy", "0005.npz"]
    assert run_jobs(jobs).done == 3


FILL = """\
import os, subprocess
from dmlcpu.cli import main
print("code", main(["batch", "jobs.jsonl", "--log", "log"]), flush=True)
print(*sorted(os.listdir("out")))
subprocess.run(["mount", "-o", "remount,size=9m", "none", "."], check=True)
print("code", main(["batch", "jobs.jsonl", "--log", "log", "--quiet"]))
print(*sorted(os.listdir("out")))
print(*sorted(os.listdir(".")))
"""


@LINUX
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root may mount")
def test_a_small_disk(tmp_path: Path) -> None:
    """A file system that fills up: what fitted is done; with room, the rest is."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["unshare", "--mount", "sh", "-c"]
    script = 'mount -t tmpfs -o size=640k none "$1" && cp -r "$2"/. "$1" && cd "$1" && '
    work = tmp_path / "work"
    save_inputs(work, 40, (4, 500))
    save_jobs(work, each_best(40, k=300))
    if (
        shutil.which("unshare") is None
        or subprocess.run([*mount, script + "true", "-", disk, work], check=False).returncode
    ):
        pytest.skip("no file system can be mounted here")
    script += '"$PYTHON" -c "$CODE" 2>&1'
    done = subprocess.run(
        [*mount, script, "-", disk, work],
        env=environment(PYTHON=sys.executable, CODE=FILL),
        capture_output=True,
        text=True,
        check=True,
    )
    *failed, _, code, fitted, code_later, there, names = done.stdout.splitlines()
    assert (code, code_later) == ("code 1", "code 0"), done.stdout
    whole = [f"{number:04}.npz" for number in range(40)]
    assert set(fitted.split()) < set(whole)
    assert fitted
    assert there.split() == whole
    assert all("No space left on device" in line for line in failed)
    assert names.split() == ["in", "jobs.jsonl", "jobs.jsonl.manifest.jsonl", "log", "out"]


def test_a_place_that_can_no_longer_be_written_to(jobs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_jobs(jobs.parent, [*each_best(COUNT - 1), best(ALL[-1], output="other/new/a.npz")])
    result = run_after(monkeypatch, (jobs.parent / "other").touch, jobs)
    assert list(errors(result)) == [ALL[-1]]
    assert errors(result)[ALL[-1]].startswith("output: 'other/new/a.npz': ")
    (jobs.parent / "other").unlink()
    assert run_jobs(jobs).done == 1


def test_what_a_job_raises_is_its_own_failure(jobs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dmlcpu.jobs import operations

    def fail(self: Any, arguments: Any) -> Any:
        count[0] += 1
        if count[0] == 2:
            raise MemoryError
        if count[0] == 4:
            raise ZeroDivisionError("of\ntwo lines")
        return real(self, arguments)

    count = [0]
    real = operations.OperatorOperation.run
    monkeypatch.setattr(operations.OperatorOperation, "run", fail)
    result = run_jobs(jobs)
    assert errors(result) == {"0001": "not enough memory", "0003": "ZeroDivisionError: of two lines"}
    assert_all_but(jobs, "0001", "0003")


def test_in_a_process_of_its_own_nothing_is_printed(jobs: Path) -> None:
    code = "import sys\nfrom dmlcpu.batch import run_jobs\nprint(run_jobs(sys.argv[1], workers=2).done)"
    argv = [sys.executable, "-W", "error", "-c", code, str(jobs)]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{COUNT}\n", "")


def test_another_run_that_writes_the_same(jobs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes the temporary files for those of a run that was killed."""
    real = FileWriter.finish

    def finish_and_lose(writer: Any) -> None:
        real(writer)
        if writer.target.endswith("0002.npz"):
            os.unlink(writer._temporary)

    monkeypatch.setattr(FileWriter, "finish", finish_and_lose)
    assert errors(run_jobs(jobs)) == {
        "0002": "output: 'out/0002.npz': the new file, under its temporary name, is gone; "
        "allowed: one run at a time that writes this output"
    }
    assert_all_but(jobs, "0002")
