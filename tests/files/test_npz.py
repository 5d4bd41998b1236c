import io
import tracemalloc
import warnings
import zipfile
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from writing import check_reads, write

from dmlcpu.files import FileError, open_source
from dmlcpu.files.npz import save

ARRAYS = {
    "values": np.arange(24.0).reshape(2, 3, 4),
    "file": np.array(3, "i2"),
    "none": np.empty((0, 3), "f4"),
    "fortran": np.asfortranarray(np.arange(12, dtype=">i4").reshape(3, 4)),
}


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_reads_what_numpy_writes(tmp_path: Path, save) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "x.npz"
    save(path, **{name if name != "file" else "f": array for name, array in ARRAYS.items()})
    for name, array in ARRAYS.items():
        check_reads(path, array, name if name != "file" else "f", in_regions=False)


def test_writes_what_numpy_writes(tmp_path: Path) -> None:
    arrays = {name: np.array(array, array.dtype.newbyteorder("="), order="C") for name, array in ARRAYS.items()}
    write(tmp_path / "y.npz", **arrays)
    with np.load(tmp_path / "y.npz") as loaded:
        assert list(loaded) == list(arrays)
        for name, array in arrays.items():
            assert loaded[name].dtype == array.dtype
            np.testing.assert_array_equal(loaded[name], array)
    with zipfile.ZipFile(tmp_path / "y.npz") as archive:
        assert {member.date_time for member in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        assert {member.compress_type for member in archive.infolist()} == {zipfile.ZIP_STORED}
    del arrays["file"]
    write(tmp_path / "y.npz", **arrays)
    np.savez(tmp_path / "numpy.npz", **arrays)
    assert (tmp_path / "y.npz").read_bytes() == (tmp_path / "numpy.npz").read_bytes()


@pytest.mark.parametrize(("count", "is_small"), [(100, True), (1 << 18, False)])
def test_small_arrays_are_written_at_once(tmp_path: Path, count: int, is_small: bool) -> None:
    class Counted(io.FileIO):
        calls = 0

        def write(self, data: Any) -> int | None:
            self.calls += 1
            return super().write(data)

        def seek(self, *where: int) -> int:
            self.calls += 1
            return super().seek(*where)

    arrays = {"x": np.arange(count, dtype=np.float32), "y": np.zeros(2)}
    with Counted(tmp_path / "x.npz", "wb") as file:
        save(file, arrays)
        assert (file.calls == 1) == is_small
    with np.load(tmp_path / "x.npz") as found:
        assert {name: found[name].tolist() for name in found} == {name: x.tolist() for name, x in arrays.items()}


def test_bfloat16(tmp_path: Path) -> None:
    array = np.arange(6).astype(ml_dtypes.bfloat16)
    write(tmp_path / "x.npz", y=array)
    with open_source(tmp_path / "x.npz", dtype="bfloat16") as source:
        np.testing.assert_array_equal(source.read(), array)


def test_names(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez(path, a=np.ones(2))
    with open_source(path) as source:
        assert source.shape == (2,)
    np.savez(path, a=np.ones(2), b=np.ones(3))
    with pytest.raises(FileError, match="2 arrays and no name; allowed: a name: a, b"):
        open_source(path)
    with pytest.raises(FileError, match="the name 'c'; allowed: a, b"):
        open_source(path, "c")
    np.savez(path)
    with pytest.raises(FileError, match="without arrays"):
        open_source(path)


def members_of(path: Path, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def test_members_without_a_suffix(tmp_path: Path) -> None:
    """As Rust's writer makes them, and numpy.load reads them."""
    array, other = io.BytesIO(), io.BytesIO()
    np.save(array, np.arange(3))
    np.save(other, np.arange(4))
    path = members_of(tmp_path / "x.npz", x=array.getvalue())
    for name in (None, "x"):
        with open_source(path, name) as source:
            assert source.read().tolist() == [0, 1, 2]
    members_of(path, **{"x": array.getvalue(), "y.npy": other.getvalue(), "of/": b""})
    for name, expected in ((None, 4), ("y", 4), ("x", 3)):
        with open_source(path, name) as source:
            assert source.shape == (expected,)
    with pytest.raises(FileError, match=r"does not begin as \.npy files do"):
        open_source(members_of(path, notes=b"of an archive"))


def test_files_that_macos_adds_are_no_arrays(tmp_path: Path) -> None:
    array = io.BytesIO()
    np.save(array, np.arange(3))
    path = members_of(tmp_path / "x.npz", **{"x.npy": array.getvalue(), "__MACOSX/._x.npy": b"\0\5\x16\7"})
    with open_source(path) as source:
        assert source.read().tolist() == [0, 1, 2]
    with pytest.raises(FileError, match=r"the name '__MACOSX/\._x'; allowed: x"):
        open_source(path, "__MACOSX/._x")


def spoiled(path: Path, at: bytes, by: int) -> None:
    data = bytearray(path.read_bytes())
    data[data.index(at) + by] ^= 1
    path.write_bytes(data)


def test_bad_files(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez(path, a=np.arange(1000))
    whole = path.read_bytes()
    for data in (b"", b"PK", whole[:-100], whole[500:]):  # of the last the directory, at the end, is whole
        path.write_bytes(data)
        with pytest.raises(FileError, match="unreadable data"):
            open_source(path)
    with pytest.raises(FileNotFoundError):
        open_source(tmp_path / "none.npz")
    path.write_bytes(whole)
    spoiled(path, np.arange(500, 502).tobytes(), 0)
    with open_source(path) as source, pytest.raises(FileError, match="Bad CRC-32"):
        source.read()
    np.savez_compressed(path, a=np.random.default_rng(1).integers(0, 9, 1000))
    size = path.stat().st_size
    data = bytearray(path.read_bytes())
    data[size // 2 : size // 2 + 100] = bytes(100)
    path.write_bytes(data)
    with open_source(path) as source, pytest.raises(FileError, match="unreadable data"):
        source.read()


def test_members_that_lie(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    for array, more, message in [
        (np.ones(3), b"0", "25 bytes of elements; allowed: 24"),
        (np.array([None]), b"", "nothing is unpickled"),
    ]:
        np.save(tmp_path / "a.npy", array, allow_pickle=True)
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("a.npy", (tmp_path / "a.npy").read_bytes() + more)
            archive.writestr("readme.txt", "no array")
        with pytest.raises(FileError, match=message):
            open_source(path)


def test_later_of_two_members_of_one_name_is_read(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the name
        for value in (1.0, 2.0):
            np.save(tmp_path / "a.npy", np.array(value))
            archive.write(tmp_path / "a.npy", "a.npy")
    with open_source(tmp_path / "x.npz") as source:
        assert source.read() == 2


def test_member_that_ends_early(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.save(tmp_path / "a.npy", np.zeros(3))
    short = (tmp_path / "a.npy").read_bytes()[:-8]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.npy", short)
    # The directory now says that there are 8 bytes more.
    data = bytearray(path.read_bytes())
    at = data.index(b"PK\x01\x02") + 24
    assert int.from_bytes(data[at : at + 4], "little") == len(short)
    data[at : at + 4] = (len(short) + 8).to_bytes(4, "little")
    path.write_bytes(data)
    with open_source(path) as source, pytest.raises(FileError, match="ends after 16 bytes of elements"):
        source.read()


def test_messages_have_few_of_many_names(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    write(path, **{f"{number}{'x' * 200}": np.zeros(1) for number in range(3_000)})
    for name in (None, "y"):
        with pytest.raises(FileError) as caught:
            open_source(path, name)
        assert str(caught.value).startswith("a file of 3,000 arrays and no name" if name is None else "the name 'y'")
        assert "0xxx" in caught.value.allowed
        assert caught.value.allowed.endswith(", ...")
        assert len(str(caught.value)) < 1_800


def test_a_large_array_in_a_small_archive_takes_memory_when_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez_compressed(path, a=np.zeros(1 << 26, np.uint8))
    assert path.stat().st_size < 1 << 17
    tracemalloc.start()
    try:
        with open_source(path) as source:
            assert source.nbytes == 1 << 26  # which is what jobs reckon with
        assert tracemalloc.get_traced_memory()[1] < 1 << 22
    finally:
        tracemalloc.stop()
