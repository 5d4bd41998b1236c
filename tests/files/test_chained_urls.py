"""URLs of files in archives, and of copies, as fsspec writes them: `zip://x.npy::https://host/x.zip`."""

import os
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from web_server import Server, serving
from writing import check_reads

from dmlcpu.batch import JobsError, run_jobs
from dmlcpu.files import identity
from dmlcpu.files.remote import base_of, file_and_name, is_remote, located, matching, naming, suffix_of

fsspec = pytest.importorskip("fsspec")
pytest.importorskip("aiohttp")

ARRAY = np.arange(60, dtype="f4").reshape(3, 20)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    save(tmp_path, ARRAY)
    with serving(tmp_path) as running:
        yield running


def save(folder: Path, array: np.ndarray) -> None:
    np.save(folder / "x.npy", array)
    np.savez(folder / "x.npz", a=array, b=-array)
    with zipfile.ZipFile(folder / "x.zip", "w") as archive:
        archive.write(folder / "x.npy", "in/x.npy")
        archive.write(folder / "x.npz", "in/x.npz")


@pytest.mark.parametrize(
    ("path", "file", "name", "names", "suffix"),
    [
        ("zip://in/x.npy::/d/x.zip", "zip://in/x.npy::/d/x.zip", None, "zip://in/x.npy", ".npy"),
        ("zip://x.npz::/d/x.zip::a", "zip://x.npz::/d/x.zip", "a", "zip://x.npz", ".npz"),
        ("simplecache::https://h/x.npy?k", "simplecache::https://h/x.npy?k", None, "https://h/x.npy?k", ".npy"),
        (
            "simplecache::zip://x.npz::s3://b/x.zip::a/b",
            "simplecache::zip://x.npz::s3://b/x.zip",
            "a/b",
            "zip://x.npz",
            ".npz",
        ),
        ("simplecache::/d/x.npy", "simplecache::/d/x.npy", None, "/d/x.npy", ".npy"),
        ("tar://x.npy::file:///d/x.tar", "tar://x.npy::file:///d/x.tar", None, "tar://x.npy", ".npy"),
        ("s3://bucket/x.npz::a", "s3://bucket/x.npz", "a", "s3://bucket/x.npz::a", ".npz::a"),
    ],
)
def test_parts(path: str, file: str, name: str | None, names: str, suffix: str) -> None:
    assert file_and_name(path) == (file, name)
    assert naming(path) == names
    assert suffix_of(path) == suffix
    assert is_remote(path)


def test_paths_that_are_no_chains() -> None:
    for path in ("x.npz::a", "zip::a", "folder/simplecache::a", "file:///x.npz::a"):
        assert not is_remote(path)
        assert file_and_name(path) == tuple(path.split("::"))
    assert located("/d", "zip://x.npy::x.zip") == f"zip://x.npy::{os.path.abspath('/d/x.zip')}"
    assert located("/d", "zip://x.npy::s3://b/x.zip") == "zip://x.npy::s3://b/x.zip"
    assert base_of("zip://x.npy::x.zip") == "x.zip"
    assert base_of("simplecache::zip://x.npy::file:///x.zip") == "/x.zip"
    for path in ("x.npy", "s3://b/x.npy", "zip://x.npy::s3://b/x.zip"):
        assert base_of(path) == path


@pytest.mark.filterwarnings("error::ResourceWarning")
def test_reads_what_is_there_now(tmp_path: Path, server: Server) -> None:
    """Also in a process that has read an older file."""
    fsspec.filesystem("memory").put(f"{tmp_path}/x.zip", "/chained/x.zip")
    for sign in (1, -1):
        save(tmp_path, sign * ARRAY)
        fsspec.filesystem("memory").put(f"{tmp_path}/x.zip", "/chained/x.zip")
        for url, name in [
            (f"zip://in/x.npy::{tmp_path}/x.zip", None),
            (f"zip://in/x.npy::{server.url}/x.zip", None),
            ("zip://in/x.npy::memory://chained/x.zip", None),
            (f"simplecache::{server.url}/x.npy", None),
            (f"simplecache::zip://in/x.npy::{server.url}/x.zip", None),
            (f"filecache::{tmp_path}/x.npy", None),
        ]:
            check_reads(url, sign * ARRAY, name)
        check_reads(f"zip://in/x.npz::{tmp_path}/x.zip", sign * ARRAY, "a", in_regions=False)
    fsspec.filesystem("memory").rm("/chained", recursive=True)


def test_identities_are_those_of_the_origin(tmp_path: Path, server: Server) -> None:
    local = f"zip://in/x.npy::{tmp_path}/x.zip"
    assert identity(local, content=False) == identity(tmp_path / "x.zip", content=False)
    urls = [f"zip://in/x.npy::{server.url}/x.zip", f"simplecache::{server.url}/x.npy", local]
    before = [identity(url, content=content) for url in urls for content in (False, True)]
    assert before == [identity(url, content=content) for url in urls for content in (False, True)]
    save(tmp_path, -ARRAY)
    os.utime(tmp_path / "x.npy", ns=(5, 10**18))
    after = [identity(url, content=content) for url in urls for content in (False, True)]
    assert all(old != new and len(old) > 1 for old, new in zip(before, after, strict=True))


def test_patterns(tmp_path: Path, server: Server) -> None:
    assert matching("zip://in/*.npy::x.zip", tmp_path) == ["zip://in/x.npy::x.zip"]
    assert matching(f"zip://*/*.npy::{server.url}/x.zip") == [f"zip://in/x.npy::{server.url}/x.zip"]
    assert matching(f"simplecache::{server.url}/*.npy") == [f"simplecache::{server.url}/x.npy"]


def test_jobs(tmp_path: Path, server: Server) -> None:
    attrs = {"k": 2, "axis": 1}
    array = f"simplecache::zip://in/x.npz::{server.url}/x.zip::a"
    jobs = [
        {"op": "top_k", "inputs": {"x": "zip://in/x.npy::x.zip"}, "attrs": attrs, "output": "1.npz"},
        {"op": "top_k", "inputs": {"x": array}, "attrs": attrs, "output": "2.npz"},
        {"op": "top_k", "glob": "zip://in/*.npy::x.zip", "attrs": attrs, "output": "{folder}/{stem}-3.npz"},
    ]
    files = {"directory": tmp_path, "manifest": tmp_path / "manifest"}
    assert run_jobs(jobs, **files).done == 3
    for name in ("1.npz", "2.npz", "x-3.npz"):
        np.testing.assert_array_equal(np.load(tmp_path / name)["values"], np.sort(ARRAY)[:, :-3:-1])
    assert run_jobs(jobs, **files).done_before == 3
    (tmp_path / "x.zip").touch()
    assert run_jobs(jobs, **files).done == 2  # of the other only what the archive says of its member is known


def test_no_archive_that_is_read_is_overwritten(tmp_path: Path) -> None:
    save(tmp_path, ARRAY)
    job = {"op": "top_k", "inputs": {"x": "zip://a.npy::x.npz"}, "attrs": {"k": 1}, "output": "x.npz"}
    with pytest.raises(JobsError, match=r"'x\.npz', an input at jobs\[0\]; allowed: a file that no job reads"):
        run_jobs([job], directory=tmp_path)
