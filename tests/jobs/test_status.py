"""What is recorded of jobs, without running them."""

import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from job_files import best, contents, each_best, forget, save_inputs, save_jobs

from dmlcpu.batch import JobsError, jobs_status, run_jobs
from dmlcpu.errors import DmlError
from dmlcpu.jobs import dispatch
from dmlcpu.jobs.manifest import Manifest

SLOWEST = "slowest, with the compilation of kernels:"


def test_done_failed_stale_and_never_run(tmp_path: Path) -> None:
    save_inputs(tmp_path, 6)
    missing = [best(f"no{number}") for number in range(3)]
    jobs = save_jobs(tmp_path, [*each_best(6), *missing, best("bad", k=99, inputs={"x": "in/0000.npy"})])
    assert str(jobs_status(jobs)) == "10 jobs: 10 not run"
    run_jobs(jobs, keep_going=True)
    (tmp_path / "in" / "0001.npy").touch()
    (tmp_path / "out" / "0002.npz").unlink()
    forget(jobs, "0003")
    with jobs.open("a") as file:
        file.write('{"op": 1}\n')
    before = contents(tmp_path)
    status = jobs_status(jobs)
    assert contents(tmp_path) == before
    counts = (status.jobs, status.done, status.failed, status.stale, status.never_run, status.invalid)
    assert counts == (11, 3, 4, 2, 1, 1)
    assert status.not_right == status.invalid  # its older name
    assert status.errors == {
        "inputs.x: '...', which does not exist; allowed: a file": ["no0", "no1", "no2"],
        "attrs.k: 99; allowed: 0 to 16 (the elements along axis 1)": ["bad"],
    }
    assert len(status.slowest) == 5
    assert status.stale_ids == ["0001", "0002"]
    seconds = [took for _, took in status.slowest]
    assert seconds == sorted(seconds, reverse=True)
    lines = str(status).splitlines()
    assert lines[:3] == ["11 jobs: 3 done, 4 failed, 2 stale, 1 not run, 1 invalid", "stale: 0001, 0002", SLOWEST]
    assert lines[8:10] == ["errors:", "  3 of: inputs.x: '...', which does not exist; allowed: a file (no0, no1, no2)"]


def test_of_many_stale_jobs_the_first_are_named(tmp_path: Path) -> None:
    save_inputs(tmp_path, 7)
    jobs = save_jobs(tmp_path, each_best(7))
    run_jobs(jobs)
    for path in (tmp_path / "in").iterdir():
        path.touch()
    assert len(jobs_status(jobs).stale_ids) == 7
    assert str(jobs_status(jobs)).splitlines()[1] == "stale: 0000, 0001, 0002, 0003, 0004, 2 more"


def test_a_run_may_be_under_way(tmp_path: Path) -> None:
    save_inputs(tmp_path, 2)
    jobs = save_jobs(tmp_path, each_best(2))
    run_jobs(jobs)
    manifest = Manifest(Path(f"{jobs}.manifest.jsonl"))
    assert jobs_status(jobs).done == 2
    manifest.begin({"0000"})
    assert (jobs_status(jobs).done, jobs_status(jobs).never_run) == (1, 1)
    manifest.close()


def test_jobs_with_the_id_of_another(tmp_path: Path) -> None:
    save_inputs(tmp_path, 1)
    jobs = save_jobs(tmp_path, [best("0000"), best("0000")])
    for _ in range(3):
        result = run_jobs(jobs, keep_going=True)
        assert (result.done + result.done_before, result.failed) == (1, 1)
        status = jobs_status(jobs)
        assert (status.done, status.never_run, status.invalid, len(status.slowest)) == (1, 0, 1, 1)


def test_a_file_that_was_only_touched(tmp_path: Path) -> None:
    save_inputs(tmp_path, 1)
    jobs = save_jobs(tmp_path, each_best(1))
    run_jobs(jobs, content_hash=True)
    (tmp_path / "in" / "0000.npy").touch()
    assert (jobs_status(jobs).stale, jobs_status(jobs, content_hash=True).done) == (1, 1)


class Twice(ThreadPoolExecutor):
    """An executor that carries out again what is finished, as a cluster does if its worker dies afterwards."""

    def __init__(self) -> None:
        super().__init__(1)
        self.calls: list[Callable[[], object]] = []

    def submit(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        self.calls.append(functools.partial(function, *arguments, **options))
        return super().submit(function, *arguments, **options)


@pytest.mark.parametrize("suffix", ["npz", "zarr"])
def test_a_job_that_a_cluster_has_done_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str) -> None:
    if suffix == "zarr":
        pytest.importorskip("zarr")
    save_inputs(tmp_path, 3)
    jobs = save_jobs(tmp_path, [best(f"{number:04}", output=f"out/{number:04}.{suffix}") for number in range(3)])
    with Twice() as executor:
        assert run_jobs(jobs, executor=executor).done == 3
        before = (tmp_path / "out" / f"0001.{suffix}").stat().st_ino
        monkeypatch.setattr(dispatch, "_stopped", set())  # as the run has not ended
        for call in executor.calls:
            call()
    assert (tmp_path / "out" / f"0001.{suffix}").stat().st_ino != before
    assert jobs_status(jobs).done == 3
    part = tmp_path / "out" / "0001.npz" if suffix == "npz" else tmp_path / "out" / "0001.zarr" / "values" / "zarr.json"
    part.write_bytes(bytes([part.read_bytes()[0] ^ 1]) + part.read_bytes()[1:])
    assert (jobs_status(jobs).done, jobs_status(jobs).stale) == (2, 1)
    assert run_jobs(jobs).done == 1


def test_jobs_without_a_manifest(tmp_path: Path) -> None:
    save_inputs(tmp_path, 1)
    with pytest.raises(DmlError, match="jobs_status: manifest is missing; allowed: a file"):
        jobs_status(each_best(1), directory=tmp_path)
    kept = tmp_path / "kept"
    assert str(jobs_status(each_best(1), directory=tmp_path, manifest=kept)) == "1 job: 1 not run"
    assert not kept.exists()
    with pytest.raises(JobsError):
        jobs_status(save_jobs(tmp_path, []))
    with pytest.raises(DmlError, match="directory is 's3://bucket'; allowed: a folder of this machine"):
        jobs_status(each_best(1), directory="s3://bucket", manifest=kept)
