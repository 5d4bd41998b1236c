"""Jobs whose inputs are read from other machines: a web server on loopback, and fsspec's file system in memory."""

import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from job_files import assert_best, best, contents, run_after, save_inputs, save_jobs
from web_server import Server, serving

import dmlcpu
from dmlcpu.batch import JobsError, plan_jobs, run_jobs
from dmlcpu.errors import DmlError

fsspec = pytest.importorskip("fsspec")
pytest.importorskip("aiohttp")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with serving(tmp_path) as running:
        yield running


def remote(server: Server, name: str, **more: Any) -> dict[str, Any]:
    """A job that reads what `best` reads, by the server."""
    return best(name, inputs={"x": f"{server.url}/in/{name}.npy"}, **more)


@pytest.mark.parametrize("workers", [1, 2])
def test_jobs_of_a_web_server(tmp_path: Path, server: Server, workers: int) -> None:
    save_inputs(tmp_path, 2)
    jobs = save_jobs(tmp_path, [remote(server, "0000"), remote(server, "0001")])
    assert run_jobs(jobs, workers=workers).done == 2
    for name in ("0000", "0001"):
        assert_best(tmp_path, name)
    assert run_jobs(jobs).done_before == 2
    os.utime(tmp_path / "in" / "0001.npy", ns=(5, 10**18))
    assert run_jobs(jobs).done == 1
    assert run_jobs(jobs, content_hash=True).done == 2  # no hashes are recorded yet
    os.utime(tmp_path / "in" / "0001.npy", ns=(5, 2 * 10**18))
    assert run_jobs(jobs, content_hash=True).done_before == 2


def test_a_file_without_a_version_is_read_again_each_time(tmp_path: Path) -> None:
    save_inputs(tmp_path, 1)
    with serving(tmp_path, versions=False) as server:
        jobs = save_jobs(tmp_path, [remote(server, "0000")])
        assert [run_jobs(jobs).done for _ in range(2)] == [1, 1]
        assert run_jobs(jobs, content_hash=True).done == 1
        assert run_jobs(jobs, content_hash=True).done_before == 1


def test_blocks(tmp_path: Path, server: Server) -> None:
    save_inputs(tmp_path, 1, (4000, 1000))
    job = remote(server, "0000")
    [planned] = plan_jobs([job], directory=tmp_path, max_memory="25M").jobs
    assert planned.in_blocks
    assert planned.remote == [f"{server.url}/in/0000.npy"]
    assert str(planned).endswith(f"in blocks; from {server.url}/in/0000.npy")
    server.sent.clear()
    assert run_jobs([job], directory=tmp_path, max_memory="25M").done == 1
    assert_best(tmp_path, "0000")
    assert max(size for _, size in server.sent) <= 4 << 20
    assert sum(size for _, size in server.sent) < 1.01 * 16_000_000


@pytest.mark.parametrize("key", ["a/../../../x.npy", "..\\..\\x.npy", "../x.npy"])
def test_a_listing_decides_on_no_folder_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    """Object stores have keys with "..", which would lead outputs out of their folder."""
    memory = fsspec.filesystem("memory")
    monkeypatch.setattr(type(memory), "glob", lambda self, path: [f"/jobs/{key}"])
    job = {"op": "top_k", "attrs": {"k": 2}, "glob": "memory://jobs/**/*.npy", "output": "out/{folder}/{stem}.npz"}
    with pytest.raises(JobsError, match=r"the listing names '/jobs/.*\.\..*x\.npy', which leads out of memory://jobs"):
        run_jobs([job], directory=tmp_path)


@pytest.mark.parametrize("call", ["info", "open", "glob"])
def test_a_file_system_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """Any that fsspec reads, also those that cannot be interrupted: the check of the job ends in time."""
    save_inputs(tmp_path, 2)
    memory, answered = fsspec.filesystem("memory"), threading.Event()
    memory.put(f"{tmp_path}/in/*.npy", "/silent/")
    real = getattr(memory, call)

    def silent(self: Any, path: str, *args: Any, **options: Any) -> Any:
        if call == "glob" or path.endswith("0000.npy"):
            answered.wait(60)
        return real(path, *args, **options)

    monkeypatch.setattr(type(memory), call, silent)
    members = {"glob": "memory://silent/*.npy"} if call == "glob" else {"files": ["memory://silent/0000.npy"]}
    job = {"op": "top_k", "attrs": {"k": 2}, "output": "out/{stem}.npz", **members}
    try:
        with pytest.raises(JobsError) as caught:
            run_jobs([job, best("0001")], directory=tmp_path, timeout=0.3)
    finally:
        answered.set()
        memory.rm("/silent", recursive=True)
    assert [error.field for error in caught.value.faults] == ["glob" if call == "glob" else "inputs"]
    assert "took longer than 0.3 s" in caught.value.faults[0].found
    assert not (tmp_path / "out").exists()


def test_patterns_and_arrays_in_files(tmp_path: Path) -> None:
    memory = fsspec.filesystem("memory")
    arrays = {f"{folder}/{number}": np.arange(12, dtype="f4") * number for folder in "ab" for number in (1, 2)}
    try:
        for name, array in arrays.items():
            np.savez(tmp_path / "x.npz", x=array)
            memory.put(str(tmp_path / "x.npz"), f"/jobs/{name}.npz")
        job = {"op": "top_k", "attrs": {"k": 2}, "output": {"values": "{folder}/{stem}.npy"}}
        assert run_jobs([job | {"glob": "memory://jobs/**/*.npz"}], directory=tmp_path).done == 4
        for name, array in arrays.items():
            np.testing.assert_array_equal(np.load(tmp_path / f"{name}.npy"), dmlcpu.top_k(array, 2).values)
        files = [f"memory://jobs/{name}.npz::x" for name in arrays]
        assert run_jobs([job | {"files": files, "output": "{number}-{array}.npz"}], directory=tmp_path).done == 4
        assert (tmp_path / "3-x.npz").exists()
    finally:
        memory.rm("/jobs", recursive=True)


def faults(folder: Path, *jobs: dict[str, Any]) -> list[str]:
    before = contents(folder)
    with pytest.raises(JobsError) as caught:
        run_jobs(jobs, directory=folder)
    assert contents(folder) == before
    return [f"{fault.field}: {fault.found}; {fault.allowed}" for fault in caught.value.faults]


def test_faults_name_the_url(tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    save_inputs(tmp_path, 1)
    job, url = remote(server, "0000"), f"{server.url}/in/0000.npy"
    assert faults(tmp_path, remote(server, "0001")) == [
        f"inputs.x: '{server.url}/in/0001.npy', which does not exist; a file"
    ]
    [fault] = faults(tmp_path, {"op": "top_k", "glob": f"{server.url}/*.npz", "output": "{stem}.npz"})
    assert fault.startswith(f"glob: '{server.url}/*.npz', which matches no file; ")
    server.broken = 9
    [fault] = faults(tmp_path, job)
    assert fault.startswith(f"inputs.x: '{url}': reading failed (503")
    [fault] = faults(tmp_path, {"op": "top_k", "glob": f"{server.url}/*.npy", "output": "{stem}.npz"})
    assert fault.startswith(f"glob: '{server.url}/*.npy': reading failed (503")
    server.broken = 0
    monkeypatch.setitem(sys.modules, "fsspec", None)
    needs = "http:// needs the package fsspec: pip install '.[remote]' in a clone of dmlcpu"
    assert faults(tmp_path, job) == [f"inputs.x: '{url}': {needs}; a file that can be read"]
    [fault] = faults(tmp_path, {"op": "top_k", "glob": f"{server.url}/*.npy", "output": "{stem}.npz"})
    assert needs in fault


def test_a_file_whose_state_is_not_known_is_not_read(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The network may fail in one request and not in the next. Whether the file changes could not be checked then."""

    def failing(*_: Any, **__: Any) -> Any:
        raise OSError(5, "reading failed")

    save_inputs(tmp_path, 1)
    monkeypatch.setattr("dmlcpu.jobs.check.identities", failing)
    assert faults(tmp_path, remote(server, "0000")) == ["inputs: [Errno 5] reading failed; files that can be read"]


def test_a_file_whose_state_is_not_known_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(file: str, **_: bool) -> Any:
        raise OSError(5, "reading failed")

    save_inputs(tmp_path, 1)
    monkeypatch.setattr("dmlcpu.jobs.job.identity", failing)
    [fault] = faults(tmp_path, best("0000"))
    assert fault == "inputs: [Errno 5] reading failed: 'in/0000.npy'; files that can be read"


def test_a_server_that_begins_to_tell_versions(tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    save_inputs(tmp_path, 1)
    server.versions = False
    jobs, tell_of_versions = [remote(server, "0000")], lambda: setattr(server, "versions", True)
    [failure] = run_after(monkeypatch, tell_of_versions, jobs, directory=tmp_path).failures
    assert failure.error == f"inputs: '{server.url}/in/0000.npy' has changed since it was checked"


def test_after_the_check_files_change_and_the_network_fails(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_inputs(tmp_path, 4)

    def change() -> None:
        os.utime(tmp_path / "in" / "0001.npy", ns=(5, 10**18))
        (tmp_path / "in" / "0002.npy").unlink()
        server.failing = "/in/0003.npy"

    jobs = [remote(server, f"{number:04}") for number in range(4)]
    result = run_after(monkeypatch, change, jobs, directory=tmp_path)
    errors = {failure.id: failure.error for failure in result.failures}
    assert errors.pop("0001") == f"inputs: '{server.url}/in/0001.npy' has changed since it was checked"
    assert errors.pop("0002").startswith(f"inputs: '{server.url}/in/0002.npy': ")
    assert errors.pop("0003").startswith(f"inputs.x: '{server.url}/in/0003.npy': reading failed (503")
    assert (errors, result.done) == ({}, 1)
    assert sorted(contents(tmp_path / "out")) == ["0000.npz"]


def test_outputs_models_and_directories_are_of_this_machine(tmp_path: Path, server: Server) -> None:
    save_inputs(tmp_path, 1)
    base, allowed = remote(server, "0000"), "a file of this machine (only inputs are read from elsewhere)"
    for field, job in [
        ("output", base | {"output": "s3://bucket/x.npz"}),
        ("output.values", base | {"output": {"values": "memory://x.npy"}}),
        ("op", base | {"op": "https://host/model.json"}),
    ]:
        [fault] = faults(tmp_path, job)
        assert fault.startswith(f"{field}: '")
        assert fault.endswith(f"; {allowed}")
    for argument, kind in [("directory", "folder"), ("manifest", "file"), ("log", "file")]:
        with pytest.raises(DmlError, match=f"{argument} is 's3://bucket'; allowed: a {kind} of this machine"):
            run_jobs([base], **{argument: "s3://bucket"})


def test_urls_of_local_files_are_files(tmp_path: Path) -> None:
    save_inputs(tmp_path, 1)
    job = best("0000", inputs={"x": f"file://{tmp_path}/in/0000.npy"}, output=f"file://{tmp_path}/out/0000.npz")
    assert run_jobs([job], directory=tmp_path).done == 1
    assert_best(tmp_path, "0000")
    [fault] = faults(tmp_path, job | {"output": {"values": f"file://{tmp_path}/in/0000.npy"}})
    assert "an input at" in fault
    pattern = {"op": "top_k", "glob": f"file://{tmp_path}/in/*.npy", "attrs": {"k": 3}, "output": "out/{stem}.npz"}
    assert run_jobs([pattern], directory=tmp_path).done == 1


def test_hdf5(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    array = np.random.default_rng(3).standard_normal((2000, 1000)).astype("f4")
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("night/scores", data=array, chunks=(100, 100), compression="gzip", compression_opts=1)
        file["more"] = array[:2]
    job = {"op": "top_k", "inputs": {"x": "x.h5::night/scores"}, "attrs": {"k": 2}, "output": {"values": "y.npy"}}
    for memory in ("1G", "5M"):
        assert plan_jobs([job], directory=tmp_path, max_memory=memory).jobs[0].in_blocks == (memory == "5M")
        assert run_jobs([job], directory=tmp_path, max_memory=memory).done == 1
        np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), dmlcpu.top_k(array, 2).values)
    [fault] = faults(tmp_path, job | {"inputs": {"x": "x.h5"}})
    assert fault == "inputs.x: 'x.h5': a file of several arrays and no name; a name: more, night/scores"
    with h5py.File(tmp_path / "x.h5", "a") as file:
        file.create_dataset("empty", (8, 8), "f4", chunks=(4, 8))
    with pytest.raises(JobsError, match=r"inputs\.x: 'x\.h5::empty', which lacks 2 of its chunks"):
        run_jobs([job | {"inputs": {"x": "x.h5::empty"}}], directory=tmp_path, require_chunks=True)
    [fault] = faults(tmp_path, job | {"output": "y.h5"})
    assert fault.endswith("a file with one of the suffixes .npz, .safetensors, .zarr")


def test_chunks_on_a_web_server_cannot_be_required(tmp_path: Path, server: Server) -> None:
    zarr = pytest.importorskip("zarr")
    zarr.create_array(tmp_path / "x.zarr", shape=(4, 4), dtype="f4", chunks=(2, 4))[...] = 1
    jobs = save_jobs(tmp_path, [best("0", inputs={"x": f"{server.url}/x.zarr"})])
    assert "missing chunks of x, which are its fill value: not known" in str(plan_jobs(jobs).jobs[0])
    with pytest.raises(JobsError, match=r"/x\.zarr', which has no list of chunks; allowed: all chunks"):
        run_jobs(jobs, require_chunks=True)
    assert run_jobs(jobs).done == 1
