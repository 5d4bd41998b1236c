from pathlib import Path

import numpy as np
import pytest
from job_files import best, contents, each_best, save_inputs, save_jobs

from dmlcpu.batch import JobsError, plan_jobs, run_jobs
from dmlcpu.runtime import threads


def test_what_would_be_done(tmp_path: Path) -> None:
    save_inputs(tmp_path, 3)
    jobs = save_jobs(tmp_path, [*each_best(3), best("no"), {"op": "nope", "output": "a.npz"}])
    assert run_jobs(jobs, keep_going=True).done == 3
    (tmp_path / "in" / "0001.npy").touch()
    before = contents(tmp_path)
    with threads.use_budget(1):
        plan = plan_jobs(jobs)
    assert plan.done_before == 2
    good, missing, unknown = plan.jobs
    assert (good.id, good.place, good.op, good.faults) == ("0001", f"{jobs}:2", "top_k", [])
    assert (good.inputs, good.outputs) == ({"x": "(8, 16)"}, {"values": "(8, 3) float32", "indices": "(8, 3) int64"})
    assert (good.read_bytes, good.written_bytes, good.in_blocks) == (8 * 16 * 4, 8 * 3 * 12, False)
    assert good.peak_bytes >= good.read_bytes + good.written_bytes
    assert (missing.id, missing.op, unknown.id) == ("no", None, "a.npz")
    assert [fault.field for fault in plan.faults] == ["inputs.x", "op"]
    assert str(plan).splitlines() == [
        f"0001: top_k by {good.kernel}: x (8, 16) -> values (8, 3) float32, indices (8, 3) int64; "
        f"reads 512 bytes, writes 288 bytes, peak {good.peak_bytes / 1024:.3g} KB",
        str(missing.faults[0]),
        str(unknown.faults[0]),
        f"1 to do, reading 512 bytes, peak {good.peak_bytes / 1024:.3g} KB a worker; 2 invalid; 2 done before",
    ]
    assert contents(tmp_path) == before
    assert [job.id for job in plan_jobs(jobs, force=True).jobs] == ["0000", "0001", "0002", "no", "a.npz"]
    assert plan_jobs(jobs, retry_failed=True).left_out == 1


def test_the_plan_is_what_is_done(tmp_path: Path) -> None:
    save_inputs(tmp_path, 2, (1000, 1000))
    jobs = save_jobs(tmp_path, each_best(2))
    plan = plan_jobs(jobs, max_memory="6M", threads=1)
    assert all(job.in_blocks == (job.peak_bytes == 6 << 20) for job in plan.jobs)
    assert not (tmp_path / "out").exists()
    run_jobs(jobs, max_memory="6M", threads=1)
    for job in plan.jobs:
        with np.load(tmp_path / "out" / f"{job.id}.npz") as found:
            assert {name: f"{found[name].shape} {found[name].dtype}" for name in found} == job.outputs


def test_while_another_run_has_the_manifest(tmp_path: Path) -> None:
    from dmlcpu.jobs.manifest import Manifest

    save_inputs(tmp_path, 1)
    jobs = save_jobs(tmp_path, each_best(1))
    manifest = Manifest(Path(f"{jobs}.manifest.jsonl"))
    assert len(plan_jobs(jobs).jobs) == 1
    manifest.close()


def test_a_file_that_is_no_file_of_jobs(tmp_path: Path) -> None:
    (tmp_path / "jobs.toml").write_text("op = ")
    with pytest.raises(JobsError):
        plan_jobs(tmp_path / "jobs.toml")


def test_chunks_that_zarr_arrays_lack(tmp_path: Path) -> None:
    zarr = pytest.importorskip("zarr")
    for name in ("x", "b"):
        zarr.create_array(tmp_path / f"{name}.zarr", shape=(4, 4), dtype="u1", chunks=(2, 4))[...] = 1
    job = {"op": "matmul_integer", "inputs": {"a": "x.zarr", "b": "b.zarr"}, "output": "y.npy"}
    assert run_jobs([job], directory=tmp_path, require_chunks=True).done == 1
    (tmp_path / "x.zarr" / "c" / "1" / "0").unlink()
    [planned] = plan_jobs([job], directory=tmp_path).jobs
    assert planned.missing_chunks == {"a": 1}
    assert str(planned).endswith("; missing chunks of a, which are its fill value: 1")
    assert run_jobs([job], directory=tmp_path).done == 1
    assert np.load(tmp_path / "y.npy").tolist() == [[4] * 4] * 2 + [[0] * 4] * 2
    for refuse in (plan_jobs, run_jobs):
        try:
            faults = refuse([job], directory=tmp_path, require_chunks=True).faults
        except JobsError as error:
            faults = error.faults
        [fault] = faults
        assert (
            fault.reason == "inputs.a: 'x.zarr', which lacks 1 of its chunks; allowed: all chunks, as they are required"
        )
