import gzip
import os
import socket
import sys
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from web_server import Server, serving
from writing import check_reads, write

from dmlcpu.common.regions import Tensor
from dmlcpu.files import FileError, create, identity, open_source, remote, web
from dmlcpu.files.remote import is_remote, located, matching, suffix_of

fsspec = pytest.importorskip("fsspec")
pytest.importorskip("aiohttp")

ARRAY = np.random.default_rng(5).standard_normal((300, 500)).astype("f4")


class Lent(fsspec.get_filesystem_class("file")):  # type: ignore[misc]
    """fsspec's local file system, under another name: `file://` itself is read without fsspec."""

    protocol = ("lent",)


fsspec.register_implementation("lent", Lent, clobber=True)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with serving(tmp_path) as running:
        yield running


@pytest.fixture(params=["memory", "lent", "http", "http without ranges"])
def url(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a folder with a few files."""
    np.save(tmp_path / "x.npy", ARRAY)
    np.save(tmp_path / "fortran.npy", np.asfortranarray(ARRAY.astype(">f4")))
    np.savez(tmp_path / "x.npz", a=ARRAY, b=ARRAY[:2])
    np.savez_compressed(tmp_path / "packed.npz", a=ARRAY)
    if request.param.startswith("http"):
        with serving(tmp_path, ranges=request.param == "http") as running:
            yield running.url
    elif request.param == "lent":
        yield f"lent://{tmp_path}"
    else:
        fsspec.filesystem("memory").put(f"{tmp_path}/*", "/remote/", recursive=True)
        yield "memory://remote"
        fsspec.filesystem("memory").rm("/remote", recursive=True)


def test_reads_what_numpy_writes(url: str) -> None:
    check_reads(f"{url}/x.npy", ARRAY)
    check_reads(f"{url}/fortran.npy", ARRAY.astype(">f4"))
    check_reads(f"{url}/x.npz", ARRAY, "a", in_regions=False)
    check_reads(f"{url}/packed.npz", ARRAY, in_regions=False)


def test_columns_and_threads(url: str) -> None:
    for name in ("x.npy", "fortran.npy"):
        with open_source(f"{url}/{name}") as source, ThreadPoolExecutor(4) as threads:
            regions = [(slice(3, 300), slice(first, first + 50)) for first in range(0, 500, 50)]
            for region, got in zip(regions, threads.map(source.read, regions), strict=True):
                np.testing.assert_array_equal(got, ARRAY[region])


def test_patterns(url: str) -> None:
    assert matching(f"{url}/*.npy") == [f"{url}/fortran.npy", f"{url}/x.npy"]
    assert matching(f"{url}/none*.npy") == []


def test_identity(url: str, tmp_path: Path) -> None:
    assert identity(f"{url}/x.npy", content=True) == identity(tmp_path / "x.npy", content=True)
    before = identity(f"{url}/x.npy", content=False)
    assert before["size"] == (tmp_path / "x.npy").stat().st_size
    assert identity(f"{url}/x.npy", content=False) == before
    os.utime(tmp_path / "x.npy", ns=(5, 10**18))
    if url.startswith("memory"):
        fsspec.filesystem("memory").put(f"{tmp_path}/x.npy", "/remote/x.npy")
    assert identity(f"{url}/x.npy", content=False)["version"] != before["version"]
    with pytest.raises(FileNotFoundError):
        identity(f"{url}/none.npy", content=False)


def test_missing_and_broken_files(url: str) -> None:
    with pytest.raises(FileNotFoundError):
        open_source(f"{url}/none.npy")
    with pytest.raises(FileError, match="the name 'c'; allowed: a, b"):
        open_source(f"{url}/x.npz", "c")


def test_a_wrong_header_is_refused(server: Server, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", ARRAY)
    whole = (tmp_path / "x.npy").read_bytes()
    for name, data, message in [
        ("x.npy", b"", "a file of 0 bytes"),
        ("x.npy", whole[:-1], "599,999 bytes of elements; allowed: 600,000"),
        ("x.npz", whole, "unreadable data"),
    ]:
        (tmp_path / name).write_bytes(data)
        with pytest.raises(FileError, match=message):
            open_source(f"{server.url}/{name}")


def test_only_what_is_needed_is_sent(server: Server, tmp_path: Path) -> None:
    array = np.arange(1 << 21, dtype="f4").reshape(1 << 11, -1)
    np.save(tmp_path / "x.npy", array)
    with open_source(f"{server.url}/x.npy?signature=1") as source:
        assert sum(size for _, size in server.sent) < 2000  # the header
        for region, requests, most in [
            ((slice(5, 7), slice(0, 1024)), 1, 8192),
            ((slice(0, 2048), slice(8, 9)), 2, array.nbytes),  # a request for each row would take longer
            ((slice(0, 2048), slice(0, 1024)), 2, array.nbytes),
        ]:
            server.sent.clear()
            np.testing.assert_array_equal(source.read(region), array[region])
            assert len(server.sent) <= requests
            assert sum(size for _, size in server.sent) <= most


def test_without_ranges_the_header_is_read_before_anything_is_downloaded(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", ARRAY)
    with serving(tmp_path, ranges=False) as server, open_source(f"{server.url}/x.npy") as source:
        server.sent.clear()
        for _ in range(3):
            np.testing.assert_array_equal(source.read((slice(7, 9), slice(0, 500))), ARRAY[7:9])
        assert len(server.sent) == 1


def test_a_server_that_tells_no_versions(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", ARRAY)
    with serving(tmp_path, versions=False) as server:
        assert identity(f"{server.url}/x.npy", content=False) == {"size": 600_128}
        assert identity(f"{server.url}/x.npy", content=True) == identity(tmp_path / "x.npy", content=True)


def test_an_answer_that_unpacks_to_more_takes_no_memory(server: Server, tmp_path: Path) -> None:
    """200 MB of zeros, where up to some KB are requested; and no answer is unpacked at all."""
    write(tmp_path / "x.npy", x=np.zeros((1000, 1000)))
    server.packed = gzip.compress(bytes(200 << 20), 9)
    tracemalloc.start()
    try:
        with pytest.raises(OSError, match=r"the server sent .* bytes, and .* were requested"):
            open_source(f"{server.url}/x.npy")
        assert tracemalloc.get_traced_memory()[1] < 50 << 20
    finally:
        tracemalloc.stop()


def test_errors_of_the_network(server: Server, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", ARRAY)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        with pytest.raises(OSError, match=r"reading failed \(Cannot connect to host 127\.0\.0\.1"):
            open_source(f"http://127.0.0.1:{free.getsockname()[1]}/x.npy")
    with open_source(f"{server.url}/x.npy") as source:
        server.broken = 1
        with pytest.raises(OSError, match=r"reading failed \(503"):
            source.read()
        np.testing.assert_array_equal(source.read(), ARRAY)
        (tmp_path / "x.npy").write_bytes(b"short")
        with pytest.raises(FileError, match="an end of the file after"):
            source.read()
    server.broken = 1
    with pytest.raises(OSError, match=r"reading failed \(503"):
        matching(f"{server.url}/*.npy")


def test_a_silent_server_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "SILENT", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(OSError, match="reading failed"):
        open_source(f"http://127.0.0.1:{silent.getsockname()[1]}/x.npy")


class FakeFile:
    """A file of a server that sends more, or less, than is asked for."""

    def __init__(self, sent: bytes) -> None:
        self._sent = sent

    def seek(self, _: int) -> None:
        pass

    def read(self, _: int) -> bytes:
        sent, self._sent = self._sent, b""
        return sent

    def close(self) -> None:
        pass

    __enter__ = lambda self: self  # noqa: E731
    __exit__ = lambda self, *_: None  # noqa: E731


class FakeSystem:
    def __init__(self, info: dict[str, Any], sent: bytes) -> None:
        self._info, self._sent = info, sent

    def invalidate_cache(self) -> None:
        pass

    def info(self, _: str) -> dict[str, Any]:
        return self._info

    def open(self, *_: Any, **__: Any) -> FakeFile:
        return FakeFile(self._sent)


def test_servers_that_lie() -> None:
    into = np.empty(4, "u1")
    with remote.RemoteFile(FakeSystem({"size": 8}, bytes(5)), "x") as file:
        with pytest.raises(OSError, match="the server sent 5 bytes, and 4 were requested"):
            file.read_at(0, into)
        assert file.read_at(8, into) == 0
    for sent, message in [(9, "it has more than 8 bytes"), (7, "it ends after 7 of 8 bytes")]:
        system = FakeSystem({"size": 8, "partial": False}, bytes(sent))
        with remote.RemoteFile(system, "http://x") as file, pytest.raises(OSError, match=message):
            file.read_at(4, into)
    for info, message in [
        ({"size": None}, "whose size the server does not report"),
        ({"type": "directory"}, "a folder"),
    ]:
        with pytest.raises(OSError, match=message):
            remote.RemoteFile(FakeSystem(info, b""), "x")


@pytest.mark.parametrize("package", ["fsspec", "aiohttp"])
def test_says_what_to_install(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    message = rf"http:// needs the package {package}: pip install '\.\[remote\]' in a clone of dmlcpu"
    for action in (open_source, matching, lambda url: identity(url, content=False)):
        with pytest.raises(ImportError, match=message):
            action("http://127.0.0.1/*.npy")


def test_file_systems_that_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(ImportError, match="s3:// needs another package: Install s3fs"):
        open_source("s3://bucket/x.npy")
    with pytest.raises(OSError, match="Protocol not known: nowhere"):
        open_source("nowhere://bucket/x.npy")


def test_other_formats_and_writing_are_refused() -> None:
    for suffix in ("safetensors", "pb", "h5"):
        with pytest.raises(FileError, match=r"a remote file; allowed: \.npy, \.npz, \.zarr"):
            open_source(f"memory://x.{suffix}")
    with pytest.raises(FileError, match="a remote file; allowed: a file of this machine"):
        create("memory://x.npy", {"y": Tensor((2,), np.dtype("f4"))}, "0a")


def test_paths(tmp_path: Path) -> None:
    for path, expected in [
        ("s3://bucket/x.npy", True),
        ("HTTPS://host/x.npy", True),
        ("file:///x.npy", False),
        ("local://x.npy", False),
        ("x.npy", False),
        ("c:/x.npy", False),
        ("folder/s3://x.npy", False),
    ]:
        assert is_remote(path) == expected
    assert located("folder", "s3://bucket/x.npy") == "s3://bucket/x.npy"
    assert located("folder", "x.npy") == os.path.join("folder", "x.npy")
    assert located("folder", "file:///x.npy") == "/x.npy"
    assert suffix_of("https://host/x.NPY?key=a.b#c") == ".npy"
    assert suffix_of("s3://bucket/x?.npy") == ".npy"
    assert suffix_of("x.npy?") == ".npy?"
    write(tmp_path / "x.npy", y=ARRAY)
    check_reads(located("folder", f"file://{tmp_path}/x.npy"), ARRAY)
    check_reads(f"file://{tmp_path}/x.npy", ARRAY)
