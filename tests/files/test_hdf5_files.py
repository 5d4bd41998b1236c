import math
import os
import struct
import subprocess
import sys
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from writing import check_reads, contents, write

from dmlcpu.common.regions import Tensor
from dmlcpu.files import FileError, check_target, hdf5_files, open_source

h5py = pytest.importorskip("h5py")

ARRAY = np.arange(60, dtype="i4").reshape(5, 12)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "x.h5"


@pytest.mark.parametrize("dtype", ["?", "u1", "i8", "f2", "f4", ">f8", ">i2", "c8", "c16"])
@pytest.mark.parametrize("shape", [(5, 12), (), (0, 2)])
def test_reads_what_h5py_writes(path: Path, dtype: str, shape: tuple[int, ...]) -> None:
    array = np.arange(60)[: np.prod(shape, dtype=int)].reshape(shape).astype(dtype)
    with h5py.File(path, "w") as file:
        file["group/x"] = array
    check_reads(path, array)
    check_reads(path, array, "/group/x")


@pytest.mark.parametrize(
    "settings",
    [
        {"compression": "gzip"},
        {"compression": "gzip", "shuffle": True, "fletcher32": True},
        {"shuffle": True},
        {"fletcher32": True},
        {"maxshape": (None, None)},
    ],
    ids=str,
)
def test_reads_chunks(path: Path, settings: dict[str, object]) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=ARRAY, chunks=(2, 5), **settings)
    check_reads(path, ARRAY)


def test_few_chunks_are_read_at_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """HDF5 takes some KB for each chunk that a call reads, however small the chunk is."""
    array = np.arange(6000, dtype="i4").reshape(5, 60, 20)
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=array, chunks=(2, 3, 2), compression="gzip", compression_opts=1)
    read, seen = h5py.Dataset.read_direct, []

    def counted(self: Any, *arguments: Any, source_sel: tuple[slice, ...], **options: Any) -> None:
        sizes = zip(source_sel, self.chunks, strict=True)
        seen.append(math.prod(-(-part.stop // size) - part.start // size for part, size in sizes))
        read(self, *arguments, source_sel=source_sel, **options)

    monkeypatch.setattr(h5py.Dataset, "read_direct", counted)
    check_reads(path, array)
    assert max(seen) <= 256
    for most in (1, 7, 60):
        monkeypatch.setattr(hdf5_files, "_AT_ONCE", most)
        check_reads(path, array)


def test_chunks_that_were_never_written_have_the_fill_value(path: Path) -> None:
    with h5py.File(path, "w") as file:
        for name, fill in [("seven", 7), ("none", None)]:
            dataset = file.create_dataset(name, (5, 12), "i4", chunks=(2, 5), compression="gzip", fillvalue=fill)
            dataset[2:4, 5:10] = 1
        file.create_dataset("all", (5, 12), "i4", chunks=(2, 5), fillvalue=3)
    expected = np.zeros((5, 12), "i4")
    expected[2:4, 5:10] = 1
    check_reads(path, np.full((5, 12), 3, "i4"), "all")
    check_reads(path, np.where(expected, 1, 7).astype("i4"), "seven")
    for _ in range(3):  # HDF5 leaves the memory as it is then, which differs
        with open_source(path, "none") as source:
            np.testing.assert_array_equal(source.read(into=np.full((5, 12), 9, "i4")), expected)


def test_names(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file.create_group("empty")
    with pytest.raises(FileError, match="a file without arrays"):
        open_source(path)
    with h5py.File(path, "w") as file:
        file["a"], file["group/b"] = ARRAY, ARRAY[0]
        file["group/again"] = file["group"]  # a group within itself
    with pytest.raises(FileError, match="a file of several arrays and no name; allowed: a name: a, group/b"):
        open_source(path)
    check_reads(path, ARRAY[0], "group/again/again/b")
    for name in ("c", "a/b", "group/c"):
        with pytest.raises(FileError, match=r"the name .*; allowed: a, group/b"):
            open_source(path, name)
    with pytest.raises(FileError, match="the name 'group', which is no array"):
        open_source(path, "group")
    with h5py.File(path, "w") as file:
        for number in range(100):
            file[f"{number:03}"] = 1
    with pytest.raises(FileError, match=r"018, 019, \.\.\.$"):
        open_source(path)


def test_bfloat16(path: Path) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    with h5py.File(path, "w") as file:
        file["x"] = ARRAY.astype("u2")
    with open_source(path, dtype="bfloat16") as source:
        assert source.read().dtype == ml_dtypes.bfloat16
        assert source.read().tobytes() == ARRAY.astype("u2").tobytes()


def test_floats_that_numpy_has_not_are_read_as_wider_ones(path: Path) -> None:
    stored = h5py.h5t.IEEE_F32LE.copy()
    stored.set_fields(15, 7, 8, 0, 7)  # bfloat16
    stored.set_size(2)
    with h5py.File(path, "w") as file:
        settings = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        settings.set_chunk((2, 5))
        settings.set_deflate(4)
        h5py.h5d.create(file.id, b"x", stored, h5py.h5s.create_simple((5, 12)), settings)
        file["x"][...] = ARRAY
    check_reads(path, ARRAY.astype("f4"))


def test_no_other_file_is_opened(path: Path, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "other.h5", "w") as other:
        other["x"] = ARRAY
    with h5py.File(path, "w") as file:
        file["soft"] = h5py.SoftLink("/virtual")
        file["link"] = h5py.ExternalLink("other.h5", "x")
        layout = h5py.VirtualLayout((5, 12), "i4")
        layout[...] = h5py.VirtualSource(str(tmp_path / "other.h5"), "x", (5, 12))
        file.create_virtual_dataset("virtual", layout)
        file.create_dataset("raw", (3,), "i4", external=[(str(tmp_path / "raw"), 0, 12)])
        file["group/link"] = h5py.ExternalLink("other.h5", "/")
    for name in ("soft", "link", "group/link/x"):
        with pytest.raises(FileError, match="leads through a link; allowed: the name that the dataset itself has"):
            open_source(path, name)
    for name in ("virtual", "raw"):
        with pytest.raises(FileError, match="a dataset whose elements are in other files"):
            open_source(path, name)
    with pytest.raises(FileError, match="allowed: a name: raw, virtual"):
        open_source(path)


def test_elements_that_are_no_numbers(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["text"] = "text"
        file["reference"] = file["text"].ref
        file["structure"] = np.zeros(3, [("a", "f4")])
        file["nothing"] = h5py.Empty("f4")
        file["type"] = np.dtype("f4")
    for name, message in [
        ("text", "Python objects"),
        ("reference", "Python objects"),
        ("structure", "structured"),
        ("nothing", "without a shape"),
        ("type", "which is no array"),
    ]:
        with pytest.raises(FileError, match=message):
            open_source(path, name)


def test_broken_files(path: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        open_source(path)
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=ARRAY, chunks=(2, 5), compression="gzip", fletcher32=True)
    whole = path.read_bytes()
    for data in (b"", b"\x89HDF", whole[: len(whole) // 2], whole[100:]):
        path.write_bytes(data)
        with pytest.raises(FileError, match=r"unreadable data \(.*; allowed: an HDF5 file"):
            open_source(path)
    spoiled = bytearray(whole)
    spoiled[whole.index(zlib.compress(ARRAY[:2, :5].tobytes(), 4)) + 8] ^= 1
    path.write_bytes(spoiled)
    with open_source(path) as source, pytest.raises(FileError, match="unreadable data"):
        source.read()
    path.unlink()
    path.mkdir()
    with pytest.raises(OSError):
        open_source(path)
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe.h5")
        with pytest.raises(FileError, match="no regular file"):
            open_source(tmp_path / "pipe.h5")


def write_chunk(path: Path, packed: bytes, filter_mask: int = 0, **settings: object) -> None:
    with h5py.File(path, "w") as file:
        dataset = file.create_dataset("x", (100,), "f4", chunks=(100,), **settings)
        dataset.id.write_direct_chunk((0,), packed, filter_mask)


def test_a_chunk_of_another_size_than_its_shape_says(path: Path) -> None:
    write_chunk(path, zlib.compress(bytes(400)), compression="gzip")
    check_reads(path, np.zeros(100, "f4"))
    write_chunk(path, bytes(400), 1, compression="gzip")  # it is stored as it is
    check_reads(path, np.zeros(100, "f4"))
    write_chunk(path, bytes(1000), compression="gzip")
    with pytest.raises(FileError, match=r"a chunk of 1,000 bytes; allowed: 400, as its shape says"):
        open_source(path)
    write_chunk(path, bytes(400))
    whole, entry = path.read_bytes(), struct.pack("<II", 400, 0)  # the size in the chunk's entry, and its mask
    for size in (0, 399, 401):  # the rest of a short one would be memory that was never written
        path.write_bytes(whole.replace(entry, struct.pack("<II", size, 0)))
        with pytest.raises(FileError, match=rf"a chunk of {size} bytes; allowed: 400, as its shape says"):
            open_source(path)
    for data in (bytes(1 << 18), bytes(401), bytes(399), b""):
        packed = zlib.compress(data, 9)
        assert len(packed) < 400
        write_chunk(path, packed, compression="gzip")
        with open_source(path) as source, pytest.raises(FileError, match="a chunk that does not unpack to 400 bytes"):
            source.read()
    for mask, settings in [(0, {"shuffle": True}), (0, {"fletcher32": True}), (1, {"compression": "gzip"})]:
        write_chunk(path, bytes(300), mask, **settings)
        with pytest.raises(FileError, match=r"a chunk of \d+ bytes; allowed: 400, as its shape says"):
            open_source(path)


def test_memory_of_a_bomb(path: Path) -> None:
    """A chunk of 200 KB, said to be of 1 MB, that would unpack to 200 MB."""
    pack = zlib.compressobj(9)
    first, again = (pack.compress(bytes(1 << 20)) + pack.flush(zlib.Z_FULL_FLUSH) for _ in range(2))
    with h5py.File(path, "w") as file:
        dataset = file.create_dataset("x", (1 << 18,), "f4", chunks=(1 << 18,), compression="gzip")
        dataset.id.write_direct_chunk((0,), first + 199 * again)
    tracemalloc.start()
    try:
        with open_source(path) as source, pytest.raises(FileError, match="does not unpack to 1,048,576 bytes"):
            source.read()  # HDF5 itself has not begun to read then
        assert tracemalloc.get_traced_memory()[1] < 5 << 20
    finally:
        tracemalloc.stop()


def test_filters(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("scaled", data=np.arange(100), chunks=(50,), scaleoffset=4)
        file.create_dataset("lzf", data=np.arange(100), chunks=(50,), compression="lzf")
        space, float32 = h5py.h5s.create_simple((100,)), h5py.h5t.NATIVE_FLOAT
        for name, codes in [(b"blosc", [32001]), (b"twice", [1, 1]), (b"order", [3, 1])]:  # blosc is not installed
            settings = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            settings.set_chunk((50,))
            for code in codes:
                settings.set_filter(code, h5py.h5z.FLAG_OPTIONAL, (4,) if code == 1 else ())
            h5py.h5d.create(file.id, name, float32, space, settings)
    for name, message in [
        ("scaled", r"elements that pass through the filter 6 \(scaleoffset\); allowed: shuffle, gzip and fletcher32"),
        ("lzf", r"elements that pass through the filter 32000 \(lzf\)"),
        ("blosc", "elements that pass through the filter 32001"),
        ("twice", r"the filters \[1, 1\]"),
        ("order", r"the filters \[3, 1\]"),
    ]:
        with pytest.raises(FileError, match=message):
            open_source(path, name)


def test_memory_beside_a_region(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["plain"] = ARRAY
        file.create_dataset("gzip", data=np.zeros(1000, "f4"), chunks=(500,), compression="gzip")
    for name, beside in [("plain", 0), ("gzip", 6000)]:
        with open_source(path, name) as source:
            assert source.buffer_bytes == beside


@pytest.mark.parametrize("driver", ["core", "stdio"])
def test_another_driver_in_the_environment(path: Path, driver: str) -> None:
    """HDF5's other drivers have no handle by which the open file is compared."""
    with h5py.File(path, "w") as file:
        file["x"] = ARRAY
    code = "import sys, dmlcpu.files as files; print(files.open_source(sys.argv[1]).identity()['size'])"
    environment = {**os.environ, "HDF5_DRIVER": driver}  # HDF5 reads it once
    command = [sys.executable, "-c", code, str(path)]
    found = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert (found.stderr, found.stdout) == ("", f"{path.stat().st_size}\n")


def test_it_is_not_written(path: Path) -> None:
    with pytest.raises(FileError, match=r"a \.h5 file to write"):
        check_target(path, {"y": Tensor((2,), np.dtype("f4"))})
    with pytest.raises(FileError, match=r"a \.h5 file to write"):
        write(path, y=ARRAY)
    assert contents(path.parent) == []


def test_missing_chunks(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("some", (5, 4), "f4", chunks=(2, 3))[:2, :2] = 1
        file.create_dataset("none", (5, 4), "f4")
        file.create_dataset("empty", (0, 4), "f4")
        file["all"] = ARRAY
    for name, missing in [("some", 5), ("none", 1), ("empty", 0), ("all", 0)]:
        with open_source(path, name) as source:
            assert source.missing_chunks() == missing
