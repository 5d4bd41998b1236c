from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from web_server import serving
from writing import check_reads, write

from dmlcpu.files import FileError, identity, open_source

fsspec = pytest.importorskip("fsspec")
pytest.importorskip("aiohttp")
zarr = pytest.importorskip("zarr")

ARRAY = np.random.default_rng(5).standard_normal((30, 50)).astype("f4")


@pytest.fixture(params=["memory", "http", "http without ranges"])
def url(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a folder with zarr folders."""
    write(tmp_path / "x.zarr", y=ARRAY)
    write(tmp_path / "group.zarr", a=ARRAY, b=ARRAY[0])
    shards = zarr.create_array(tmp_path / "shards.zarr", shape=(30, 50), chunks=(10, 10), shards=(10, 50), dtype="f4")
    shards[...] = ARRAY
    if request.param.startswith("http"):
        with serving(tmp_path, ranges=request.param == "http") as running:
            yield running.url
    else:
        fsspec.filesystem("memory").put(f"{tmp_path}/*", "/remote/", recursive=True)
        yield "memory://remote"
        fsspec.filesystem("memory").rm("/remote", recursive=True)


def test_reads_what_zarr_writes(url: str) -> None:
    check_reads(f"{url}/x.zarr", ARRAY)
    check_reads(f"{url}/group.zarr", ARRAY, "a")
    with open_source(f"{url}/shards.zarr") as source:
        np.testing.assert_array_equal(source.read(), ARRAY)
    if not url.startswith("memory"):
        return
    with pytest.raises(FileError, match="the name 'c'; allowed: a, b"):
        open_source(f"{url}/group.zarr", "c")


def test_missing_folders(url: str) -> None:
    with pytest.raises(FileError, match=r"a folder without zarr\.json"):
        open_source(f"{url}/none.zarr")
    with pytest.raises(FileNotFoundError):
        identity(f"{url}/none.zarr", content=False)


def test_parts_of_shards_need_a_server_that_sends_parts(tmp_path: Path) -> None:
    """Otherwise the bytes of another chunk would be taken."""
    settings = {"shards": (10, 50), "chunks": (10, 10), "compressors": None}
    zarr.create_array(tmp_path / "x.zarr", shape=(30, 50), dtype="f4", **settings)[...] = ARRAY
    with (
        serving(tmp_path, ranges=False) as server,
        open_source(f"{server.url}/x.zarr") as source,
        pytest.raises(FileError, match="allowed: a server that sends parts of files"),
    ):
        source.read((slice(0, 3), slice(0, 3)))


@pytest.mark.parametrize("content", [False, True])
def test_identity(tmp_path: Path, content: bool) -> None:
    write(tmp_path / "x.zarr", y=ARRAY)
    memory = fsspec.filesystem("memory")
    memory.put(f"{tmp_path}/x.zarr", "/x.zarr", recursive=True)
    try:
        before = identity("memory://x.zarr", content=content)
        assert before["size"] == identity(tmp_path / "x.zarr", content=False)["size"]
        assert identity("memory://x.zarr", content=content) == before
        [chunk] = memory.find("/x.zarr/c")
        memory.pipe(chunk, memory.cat(chunk)[::-1])
        assert identity("memory://x.zarr", content=content) != before
        memory.mv(chunk, f"{chunk}1")
        seen = identity("memory://x.zarr", content=content)
        memory.mv(f"{chunk}1", chunk)
        assert identity("memory://x.zarr", content=content) != seen
    finally:
        memory.rm("/x.zarr", recursive=True)


def test_a_web_server_has_no_list_of_chunks(tmp_path: Path) -> None:
    write(tmp_path / "x.zarr", y=ARRAY)
    with serving(tmp_path) as server:
        for content in (False, True):
            assert list(identity(f"{server.url}/x.zarr", content=content)) == ["size"]


def test_an_object_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    write(tmp_path / "x.zarr", y=ARRAY)
    [chunk] = [path for path in (tmp_path / "x.zarr").rglob("*") if path.is_file() and path.name != "zarr.json"]
    chunk.write_bytes(bytes(1 << 20))
    with serving(tmp_path) as server:
        with (
            open_source(f"{server.url}/x.zarr") as source,
            pytest.raises(FileError, match="which has more than 7,774"),
        ):
            source.read()
        assert max(size for _, size in server.sent) < 8_000
        (tmp_path / "x.zarr/zarr.json").write_bytes(b" " * (17 << 20))
        with pytest.raises(FileError, match=r"zarr\.json, which has more than 16,777,216 bytes"):
            open_source(f"{server.url}/x.zarr")


def test_a_server_that_fails(tmp_path: Path) -> None:
    write(tmp_path / "x.zarr", y=ARRAY)
    with serving(tmp_path) as server, open_source(f"{server.url}/x.zarr") as source:
        server.broken = 1
        with pytest.raises(OSError, match=r"reading failed \(503"):
            source.read()
        np.testing.assert_array_equal(source.read(), ARRAY)


def test_missing_chunks_are_known_where_files_are_listed(url: str) -> None:
    for name, member in [("x", None), ("group", "a"), ("shards", None)]:
        with open_source(f"{url}/{name}.zarr", member) as source:
            assert source.missing_chunks() == (0 if url.startswith("memory") else None)
    if url.startswith("memory"):
        fsspec.filesystem("memory").rm("/remote/shards.zarr/c/0/0")
        with open_source(f"{url}/shards.zarr") as source:
            assert source.missing_chunks() == 1


@pytest.mark.parametrize("url", ["memory"], indirect=True)
def test_chunks_that_cannot_be_listed(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """File systems have errors of their own."""

    def failing(*_: object, **__: object) -> None:
        raise RuntimeError("503")

    monkeypatch.setattr(type(fsspec.filesystem("memory")), "find", failing)
    with open_source(f"{url}/x.zarr") as source, pytest.raises(FileError, match="503"):
        source.missing_chunks()
    monkeypatch.undo()
