"""Links and folders that are switched after the check: a job fails, or its result is where they led at the check."""

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from job_files import (
    ALL,
    COUNT,
    LINUX,
    assert_all_but,
    best,
    contents,
    each_best,
    errors,
    outcomes,
    run_after,
    save_inputs,
    save_jobs,
)

from dmlcpu.batch import run_jobs
from dmlcpu.common.regions import Tensor
from dmlcpu.files import create, open_source, write_whole
from dmlcpu.files.targets import Writer
from dmlcpu.jobs import step
from dmlcpu.jobs.open_inputs import OpenArguments


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    save_inputs(tmp_path, COUNT)
    return save_jobs(tmp_path, each_best(COUNT))


def test_a_folder_that_comes_into_a_targets_place(jobs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = jobs.parent / "out" / "0002.npz"
    result = run_after(monkeypatch, lambda: target.mkdir(parents=True), jobs)
    assert list(errors(result)) == ["0002"]
    assert errors(result)["0002"].startswith("output: 'out/0002.npz': a folder in the place of the output")
    target.rmdir()
    assert_all_but(jobs, "0002")


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("linked", ["out", "out/0002.npz"])
def test_a_link_that_comes_into_a_targets_place(
    jobs: Path, monkeypatch: pytest.MonkeyPatch, linked: str, workers: int
) -> None:
    """It is not followed: the file that it leads to stays."""
    (jobs.parent / "mine").mkdir()
    (jobs.parent / "mine" / "0002.npz").write_bytes(b"mine")

    def link() -> None:
        (jobs.parent / linked).parent.mkdir(exist_ok=True)
        (jobs.parent / linked).symlink_to(jobs.parent / "mine" / linked[4:])

    result = run_after(monkeypatch, link, jobs, workers=workers)
    assert contents(jobs.parent / "mine") == {"0002.npz": b"mine"}
    assert sorted(errors(result)) == (ALL if linked == "out" else ["0002"])  # workers end in any order
    found, allowed = (str(jobs.parent / name / linked[4:]) for name in ("mine", "out"))
    text = f"output: 'out/0002.npz': a link to {found!r}; allowed: {allowed!r}, as when the job was checked"
    assert errors(result)["0002"] == text
    assert run_jobs(jobs, workers=workers).done == len(errors(result))  # links that are there at the check are followed
    assert len(contents(jobs.parent / "mine")) == len(errors(result))


@LINUX
@pytest.mark.parametrize("workers", [1, 2])
def test_a_link_to_outputs_that_is_switched(jobs: Path, monkeypatch: pytest.MonkeyPatch, workers: int) -> None:
    """What is where the link leads now is not the result, and nothing there is replaced."""
    folder = jobs.parent
    for version in ("v1", "v2"):
        (folder / version).mkdir()
    (folder / "v2" / "0002.npz").write_bytes(b"mine")
    (folder / "out").symlink_to("v1")

    def switch() -> None:
        (folder / "out").unlink()
        (folder / "out").symlink_to("v2")

    result = run_after(monkeypatch, switch, jobs, workers=workers)
    assert (result.done, sorted(errors(result))) == (0, ALL)
    for name, error in errors(result).items():  # there is a file for one of them
        found, allowed = (str(folder / version / f"{name}.npz") for version in ("v2", "v1"))
        text = f"output: 'out/{name}.npz': a link to {found!r}; allowed: {allowed!r}, as when the job was checked"
        assert error == text
    assert contents(folder / "v2") == {"0002.npz": b"mine"}
    assert run_jobs(jobs, workers=workers).done == COUNT
    assert_all_but(jobs)


SUFFIXES = {"npy": "numpy", "npz": "numpy", "safetensors": "safetensors", "zarr": "zarr", "pb": "onnx", "h5": "h5py"}


@LINUX
@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("name", ["x", "k"])
def test_a_link_to_inputs_that_leads_elsewhere_for_a_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, name: str
) -> None:
    """The file that is opened is compared, not only what the path leads to before and after."""
    pytest.importorskip(SUFFIXES[suffix])
    values = {"x": np.arange(9.0), "k": np.int64(2)}
    for version in ("v1", "v2"):
        path = tmp_path / version / f"a.{suffix}"
        path.parent.mkdir()
        array = values[name] + (version == "v2")
        if suffix == "h5":
            with pytest.importorskip("h5py").File(path, "w") as file:
                file["a"] = array
        else:
            write_whole(create(path, {"a": Tensor(array.shape, array.dtype)}, "0a"), {"a": np.asarray(array)})
    (tmp_path / "link").symlink_to("v1")
    np.save(tmp_path / "other.npy", values["k" if name == "x" else "x"])
    inputs = {name: f"link/a.{suffix}", "k" if name == "x" else "x": "other.npy"}
    job = {"op": "top_k", "inputs": inputs, "output": "y.npz"}
    real, count = step.open_arguments, []

    def elsewhere(*arguments: Any) -> OpenArguments:
        for version in ("v2", "v1"):
            (tmp_path / "link").unlink()
            (tmp_path / "link").symlink_to(version)
            if version == "v2":
                opened = real(*arguments)
        count.append(1)
        return opened

    monkeypatch.setattr(step, "open_arguments", elsewhere)
    result = run_jobs([job], directory=tmp_path)
    assert (result.done, len(count)) == (0, 1)
    assert result.failures[0].error == f"inputs: 'link/a.{suffix}' has changed since it was checked"
    monkeypatch.undo()
    assert run_jobs([job], directory=tmp_path).done == 1


@LINUX
@pytest.mark.parametrize("is_copy", [True, False], ids=["a copy", "empty"])
@pytest.mark.parametrize("suffix", ["npz", "zarr"])
def test_a_folder_that_is_exchanged_while_a_result_is_written(
    jobs: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, is_copy: bool
) -> None:
    """The result is in the folder that was there, under another name now."""
    if suffix == "zarr":
        pytest.importorskip("zarr")
    save_jobs(jobs.parent, [best(name, output=f"out/{name}.{suffix}") for name in ALL[:2]])
    assert run_jobs(jobs).done == 2
    shutil.copytree(jobs.parent / "out", jobs.parent / "other", ignore=None if is_copy else lambda _, names: names)
    real = Writer.write

    def write_and_exchange(writer: Writer, arrays: Any) -> None:
        real(writer, arrays)
        if writer.target.endswith(f"0001.{suffix}"):
            os.rename(jobs.parent / "out", jobs.parent / "before")
            os.rename(jobs.parent / "other", jobs.parent / "out")

    monkeypatch.setattr(Writer, "write", write_and_exchange)
    result = run_jobs(jobs, force=True)
    assert "0001" in errors(result)
    assert outcomes(jobs)["0001"] == "failed"
    if suffix == "npz":
        found = "another file" if is_copy else "no file"
        text = f"{found} in the place of the result; allowed: one run at a time that writes this output"
        assert errors(result)["0001"] == f"output: 'out/0001.npz': {text}"


@LINUX
def test_a_directory_whose_link_is_switched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results stay where the directory was when the jobs were checked, and they are not said done elsewhere."""
    [x] = save_inputs(tmp_path, 1)
    for version in ("v1", "v2"):
        (tmp_path / version).mkdir()
    (tmp_path / "v2" / "y.npz").write_bytes(b"mine")
    (tmp_path / "link").symlink_to("v1")

    def switch() -> None:
        (tmp_path / "link").unlink()
        (tmp_path / "link").symlink_to("v2")

    job = best("0000", inputs={"x": str(x)}, output="y.npz")
    result = run_after(monkeypatch, switch, [job], directory=tmp_path / "link")
    assert list(errors(result)) == ["0000"]
    assert contents(tmp_path / "v2") == {"y.npz": b"mine"}


@pytest.mark.parametrize("linked", ["y", "y.npy"])
@pytest.mark.parametrize("output", ["y.npz", "y.zarr"])
def test_a_link_to_a_file_of_another_suffix(jobs: Path, output: str, linked: str) -> None:
    """The job's own suffix says the format, as in its check."""
    link = jobs.parent / output
    link.symlink_to(linked)
    if output == "y.zarr":
        pytest.importorskip("zarr")
        (jobs.parent / linked).mkdir()
    for done in (1, 0):
        assert run_jobs(save_jobs(jobs.parent, [best("0000", output=output)])).done == done
    assert link.is_symlink()
    with open_source(link, "values") as source:
        assert source.shape == (8, 3)
