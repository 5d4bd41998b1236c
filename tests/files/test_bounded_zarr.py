"""zarr folders that somebody has tampered with."""

import asyncio
import contextlib
import gzip
import importlib
import json
import os
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dmlcpu.files import FileError, open_source

zarr = pytest.importorskip("zarr")
numcodecs = pytest.importorskip("numcodecs")

ARRAY = np.random.default_rng(0).standard_normal((20, 30)).astype("f4")


def save(folder: Path, **options: object) -> Path:
    """Save an array with chunks of 10 rows; return the second chunk, or shard."""
    settings = {"shape": ARRAY.shape, "dtype": ARRAY.dtype, "chunks": (10, 30)} | options
    zarr.create_array(folder / "x.zarr", **settings)[...] = ARRAY
    return folder / "x.zarr" / "c" / "1" / "0"


def read(folder: Path, region: tuple[slice, slice] | None = None) -> np.ndarray:
    with open_source(folder / "x.zarr") as source:
        return source.read(region)


def sparse(path: Path) -> None:
    with open(path, "r+b") as file:
        file.truncate(1 << 40)


def zeros_of_the_system(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.skipif(os.name == "nt", reason="no such files")
@pytest.mark.parametrize("tamper", [sparse, zeros_of_the_system, pipe])
@pytest.mark.parametrize("compressors", [None, "auto"])
def test_files_that_are_no_chunks(tmp_path: Path, tamper: Callable[[Path], None], compressors: str | None) -> None:
    chunk = save(tmp_path, compressors=compressors)
    tamper(chunk)
    message = "1,099,511,627,776 bytes; allowed: at most" if tamper is sparse else "no regular file; allowed: a file on"
    with pytest.raises(FileError, match=f"'c/1/0': {message}"):
        read(tmp_path)
    np.testing.assert_array_equal(read(tmp_path, (slice(0, 10), slice(0, 30))), ARRAY[:10])
    tamper(tmp_path / "x.zarr" / "zarr.json")
    with pytest.raises(FileError, match=rf"'zarr\.json': {message}"):
        read(tmp_path)


def test_a_link_to_a_chunk_is_one(tmp_path: Path) -> None:
    chunk = save(tmp_path)
    chunk.rename(tmp_path / "elsewhere")
    chunk.symlink_to(tmp_path / "elsewhere")
    np.testing.assert_array_equal(read(tmp_path), ARRAY)


PACKED = {
    "zarr.codecs.GzipCodec": gzip.compress,
    "zarr.codecs.ZstdCodec": lambda data: numcodecs.Zstd().encode(data),
    "zarr.codecs.BloscCodec": lambda data: numcodecs.Blosc("zstd").encode(data),
    "zarr.codecs.numcodecs.BZ2": lambda data: numcodecs.BZ2().encode(data),
    "zarr.codecs.numcodecs.LZMA": lambda data: numcodecs.LZMA().encode(data),
}


@pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in the Zarr")
@pytest.mark.parametrize("codec", PACKED)
@pytest.mark.parametrize("filters", [[], [{"name": "transpose", "configuration": {"order": [1, 0]}}]])
def test_chunks_that_unpack_to_more(tmp_path: Path, codec: str, filters: list[object]) -> None:
    module, _, name = codec.rpartition(".")
    compressor = getattr(pytest.importorskip(module), name)()
    chunk = save(tmp_path, compressors=compressor, filters=filters)
    np.testing.assert_array_equal(read(tmp_path), ARRAY)
    chunk.write_bytes(PACKED[codec](bytes(1_000_000)))
    with pytest.raises(FileError, match=r"a chunk that unpacks to (1,000,000|more than 1,200) bytes; allowed: 1,200"):
        read(tmp_path)


def test_codecs_one_after_another(tmp_path: Path) -> None:
    codecs = [zarr.codecs.GzipCodec(), zarr.codecs.Crc32cCodec(), zarr.codecs.ZstdCodec()]
    chunk = save(tmp_path, compressors=codecs)
    np.testing.assert_array_equal(read(tmp_path), ARRAY)
    chunk.write_bytes(numcodecs.Zstd().encode(gzip.compress(bytes(1_000_000), 0)))
    with pytest.raises(FileError, match="a chunk that unpacks to 1,000,"):
        read(tmp_path)


@pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in the Zarr")
def test_filters_that_make_chunks_longer(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        longer = pytest.importorskip("zarr.codecs.numcodecs").AsType(encode_dtype="f8", decode_dtype="f4")
    save(tmp_path, filters=[longer], compressors=None)
    np.testing.assert_array_equal(read(tmp_path), ARRAY)


@pytest.mark.parametrize("compressors", [None, "auto"])
def test_shards(tmp_path: Path, compressors: str | None) -> None:
    shard = save(tmp_path, chunks=(1, 30), shards=(10, 30), compressors=compressors)
    np.testing.assert_array_equal(read(tmp_path), ARRAY)
    row = (slice(12, 13), slice(0, 30))
    np.testing.assert_array_equal(read(tmp_path, row), ARRAY[12:13])
    whole = shard.read_bytes()
    sparse(shard)
    with pytest.raises(FileError, match=r"'c/1/0': .* bytes; allowed: at most"):
        read(tmp_path)
    offset_and_length = np.array([0, 1 << 40], "<u8").tobytes()
    index = np.frombuffer(offset_and_length * 10, "u1")
    shard.write_bytes(whole[: -16 * 10 - 4] + numcodecs.CRC32C(location="end").encode(index).tobytes())
    with pytest.raises(FileError, match=r"'c/1/0': .* bytes; allowed: at most"):
        read(tmp_path, row)


def test_memory_of_an_index_counts(tmp_path: Path) -> None:
    """A shard with as many chunks as elements has a file, or may have one, that is much longer than they are."""
    file = tmp_path / "x.zarr" / "zarr.json"
    save(tmp_path, chunks=(1, 30), shards=(10, 30))
    metadata = json.loads(file.read_text())
    metadata["shape"] = metadata["chunk_grid"]["configuration"]["chunk_shape"] = [10**8, 1]
    metadata["codecs"][0]["configuration"]["chunk_shape"] = [1, 1]
    file.write_text(json.dumps(metadata))
    (tmp_path / "x.zarr" / "c" / "0" / "0").unlink()
    with open_source(tmp_path / "x.zarr") as source:
        assert source.buffer_bytes == 2 * 16 * 10**8
        assert source.read((slice(0, 2), slice(0, 1))).tolist() == [[0], [0]]


def test_pieces_of_many_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path, chunks=(3, 4))
    for most in (1, 2, 5, 70):
        monkeypatch.setattr("dmlcpu.files.bounded_zarr._MOST_AT_ONCE", most)
        np.testing.assert_array_equal(read(tmp_path), ARRAY)
        np.testing.assert_array_equal(read(tmp_path, (slice(5, 17), slice(2, 30))), ARRAY[5:17, 2:30])
        with open_source(tmp_path / "x.zarr") as source:
            into = np.empty_like(ARRAY)
            assert source.read(into=into) is into
            np.testing.assert_array_equal(into, ARRAY)


def test_chunks_without_elements(tmp_path: Path) -> None:
    save(tmp_path)
    file = tmp_path / "x.zarr" / "zarr.json"
    metadata = json.loads(file.read_text())
    metadata["chunk_grid"]["configuration"]["chunk_shape"] = [0, 30]
    file.write_text(json.dumps(metadata))
    with pytest.raises(FileError, match=r"chunks of the shape \(0, 30\); allowed: sizes of at least 1"):
        read(tmp_path)
    metadata["shape"] = [0, 30]
    file.write_text(json.dumps(metadata))
    assert read(tmp_path).shape == (0, 30)


def test_nothing_is_under_way_after_an_error(tmp_path: Path) -> None:
    """Otherwise asyncio tells of tasks that were pending when Python ended."""
    chunk = save(tmp_path, chunks=(5, 5))
    chunk.write_bytes(b"")
    sync = importlib.import_module("zarr.core.sync").sync

    async def under_way() -> int:
        return len(asyncio.all_tasks()) - 1

    with pytest.raises(FileError, match="unreadable data"):
        read(tmp_path)
    assert sync(under_way()) == 0


def test_two_that_fail_at_once_do_not_wait_for_each_other() -> None:
    bounded_zarr = importlib.import_module("dmlcpu.files.bounded_zarr")

    def fail() -> None:
        with contextlib.suppress(OSError), bounded_zarr._settled():
            raise OSError

    threads = [threading.Thread(target=fail, daemon=True) for _ in range(3)]
    loop = importlib.import_module("zarr.core.sync")._get_loop()
    loop.call_soon_threadsafe(time.sleep, 0.3)  # all come in one turn of the loop
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert not any(thread.is_alive() for thread in threads)


@pytest.mark.parametrize("separator", ["/", "."])
@pytest.mark.parametrize("encoding", ["default", "v2"])
@pytest.mark.parametrize("group", ["", "a/b"])
def test_missing_chunks_are_counted(tmp_path: Path, encoding: str, separator: str, group: str) -> None:
    keys = {"name": encoding, "separator": separator}
    options = {"shape": (20, 30), "chunks": (6, 7), "dtype": "f4", "chunk_key_encoding": keys}
    root = zarr.open_group(tmp_path / "x.zarr", mode="w") if group else tmp_path / "x.zarr"
    array = root.create_array(group, **options) if group else zarr.create_array(root, **options)
    folder = tmp_path / "x.zarr" / group
    for others in ("c/9/0", "c/0/0/0", "9.0", "0.0.0", "c.x", "0x0"):  # which are no chunks
        (folder / others).parent.mkdir(parents=True, exist_ok=True)
        (folder / others).write_bytes(b"")

    def missing() -> int:
        with open_source(tmp_path / "x.zarr", group or None) as source:
            return source.missing_chunks()

    assert missing() == 20
    array[:7, 8:] = 1
    assert missing() == 12


def test_missing_chunks_of_other_arrays(tmp_path: Path) -> None:
    shard = save(tmp_path, chunks=(1, 30), shards=(10, 30))
    for lost in (0, 1):
        with open_source(tmp_path / "x.zarr") as source:
            assert source.missing_chunks() == lost
        shard.unlink(missing_ok=True)
    zarr.create_array(tmp_path / "0.zarr", shape=(), dtype="f4")[...] = 1
    zarr.create_array(tmp_path / "empty.zarr", shape=(0, 3), dtype="f4")
    np.save(tmp_path / "x.npy", ARRAY)
    for name in ("0.zarr", "empty.zarr", "x.npy"):
        with open_source(tmp_path / name) as source:
            assert source.missing_chunks() == 0
