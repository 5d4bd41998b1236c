"""Temporary files that killed runs and workers have left: they are removed, and no others."""

import sys
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from job_files import contents, each_best, save_inputs, save_jobs

from dmlcpu.batch import ManifestError, run_jobs
from dmlcpu.common.regions import Tensor
from dmlcpu.files import create, open_source
from dmlcpu.jobs.manifest import Manifest


def test_stray_files_are_removed(tmp_path: Path) -> None:
    """Those of this run's targets, and no others."""
    save_inputs(tmp_path, 2)
    (tmp_path / "out").mkdir()
    for name in (".0000.npz.0123456789ab.part", ".0001.npz.aa.part", ".other.npz.aa.part", ".0000.npz.xy.part"):
        (tmp_path / "out" / name).write_bytes(b"half")
    assert run_jobs(save_jobs(tmp_path, each_best(2))).done == 2
    assert sorted(contents(tmp_path / "out")) == [".0000.npz.xy.part", ".other.npz.aa.part", "0000.npz", "0001.npz"]


def test_stray_files_of_jobs_that_are_done_are_removed(tmp_path: Path) -> None:
    """A worker was killed, and another did its job; also where a link leads."""
    save_inputs(tmp_path, 2)
    (tmp_path / "real").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "0001.npz").symlink_to(tmp_path / "real" / "y.npz")
    jobs = save_jobs(tmp_path, each_best(2))
    assert run_jobs(jobs).done == 2
    for name in ("out/.0000.npz.aa.part", "real/.y.npz.aa.part", "out/.other.npz.aa.part"):
        (tmp_path / name).write_bytes(b"half")
    assert run_jobs(jobs).done_before == 2
    assert sorted(contents(tmp_path / "out")) == [".other.npz.aa.part", "0000.npz", "0001.npz"]
    assert sorted(contents(tmp_path / "real")) == ["y.npz"]


def test_files_of_another_run_under_way_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run that does not get the manifest removes nothing."""
    save_inputs(tmp_path, 1)
    jobs, temporary = save_jobs(tmp_path, each_best(1)), tmp_path / "out" / ".0000.npz.aa.part"
    temporary.parent.mkdir()
    temporary.write_bytes(b"half")
    real = Manifest.begin

    def begin(self: Manifest, ids: Iterable[str]) -> None:
        other = Manifest(self.path)
        real(other, [])  # since this run has looked for the manifest
        try:
            real(self, ids)
        finally:
            other.close()

    monkeypatch.setattr(Manifest, "begin", begin)
    with pytest.raises(ManifestError, match="is in use by another run"):
        run_jobs(jobs)
    assert temporary.read_bytes() == b"half"


@pytest.mark.skipif(sys.platform == "win32", reason="without locks of folders")
def test_a_zarr_folder_that_another_run_is_writing_stays(tmp_path: Path) -> None:
    """Without a manifest nothing else says that two runs write one output: a part of the folder would be removed."""
    pytest.importorskip("zarr")
    save_inputs(tmp_path, 1)
    array = np.arange(12, dtype=np.float32)
    out = tmp_path / "out"
    writer = create(out / "best.zarr", {"values": Tensor(array.shape, array.dtype)}, "ab")
    writer.write({"values": array})
    [temporary] = out.iterdir()
    job = {"op": "top_k", "inputs": {"x": "in/0000.npy"}, "attrs": {"k": 2}, "output": {"values": "out/best.zarr"}}
    assert run_jobs([job], directory=tmp_path).done == 1
    assert sorted(out.iterdir()) == [temporary, out / "best.zarr"]
    writer.finish()
    writer.put_in_place()
    assert np.array_equal(open_source(out / "best.zarr").read(), array)
    assert [*out.iterdir()] == [out / "best.zarr"]


@pytest.mark.skipif(sys.platform == "win32", reason="without locks of folders")
def test_a_zarr_folder_of_a_killed_run_is_removed(tmp_path: Path) -> None:
    save_inputs(tmp_path, 1)
    (tmp_path / "out" / ".best.zarr.ab.part" / "c").mkdir(parents=True)
    job = {"op": "top_k", "inputs": {"x": "in/0000.npy"}, "attrs": {"k": 2}, "output": {"values": "out/best.zarr"}}
    assert run_jobs([job], directory=tmp_path).done == 1
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["best.zarr"]
