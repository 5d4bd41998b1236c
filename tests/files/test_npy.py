import io
import itertools
import os
import pickle
import struct
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from writing import check_reads, contents, everything, write

from dmlcpu.common.regions import Tensor
from dmlcpu.files import FileError, create, open_source

FORMAT = np.lib.format
TYPES = ["?", "u1", "i1", "<u2", ">i2", "<f2", ">f4", "<f8", ">c8", "<c16", ">u8"]


def header(text: str, version: tuple[int, int] = (1, 0)) -> bytes:
    encoded = text.encode("latin1" if version < (3, 0) else "utf8") + b"\n"
    return b"\x93NUMPY" + bytes(version) + struct.pack("<H" if version == (1, 0) else "<I", len(encoded)) + encoded


def described(shape: str = "(2, 3)", descr: str = "'<f4'", fortran: str = "False") -> str:
    return f"{{'descr': {descr}, 'fortran_order': {fortran}, 'shape': {shape}}}"


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(), (7,), (1, 5), (3, 4, 5), (3, 0, 2), (2, 1, 3, 1)])
def test_reads_what_numpy_writes(tmp_path: Path, shape: tuple[int, ...], dtype: str, order: str) -> None:
    array = np.array(np.random.default_rng(1).integers(0, 99, shape).astype(dtype), order=order)
    np.save(tmp_path / "x.npy", array)
    check_reads(tmp_path / "x.npy", array)


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_versions(tmp_path: Path, version: tuple[int, int]) -> None:
    array = np.arange(6, dtype="f4").reshape(2, 3)
    file = io.BytesIO()
    FORMAT.write_array(file, array, version=version)
    (tmp_path / "x.NPY").write_bytes(file.getvalue())
    with open_source(tmp_path / "x.NPY") as source:
        np.testing.assert_array_equal(source.read(), array)


def test_python_2_integers_and_long_headers(tmp_path: Path) -> None:
    array = np.arange(6, dtype="<f4")
    for shape, space in [("(2L, 3L)", 0), ("(6L,)", 0), ("(6,)", 5000)]:
        (tmp_path / "x.npy").write_bytes(header(described(shape) + " " * space) + array.tobytes())
        with open_source(tmp_path / "x.npy") as source:
            np.testing.assert_array_equal(source.read().reshape(-1), array)


def test_bfloat16(tmp_path: Path) -> None:
    array = np.arange(6).astype(ml_dtypes.bfloat16)
    write(tmp_path / "x.npy", y=array)
    np.save(tmp_path / "numpy.npy", array)
    assert (tmp_path / "x.npy").read_bytes() == (tmp_path / "numpy.npy").read_bytes()
    np.save(tmp_path / "swapped.npy", array.view("u2").astype(">u2"))
    for name in ("x.npy", "swapped.npy"):
        with open_source(tmp_path / name, dtype="bfloat16") as source:
            got = source.read()
            assert got.dtype == ml_dtypes.bfloat16
            assert got.tobytes() == array.tobytes()
    for dtype, message in [("float32", "a type of 2 bytes"), ("bfloat", "bfloat16")]:
        with pytest.raises(FileError, match=message):
            open_source(tmp_path / "x.npy", dtype=dtype)


BAD = {
    "empty": (b"", "a file of 0 bytes; allowed: at least 10, where a header begins"),
    "no version": (b"\x93NUMPY\x01", "a file of 7 bytes"),
    "magic": (b"\x93NUMPX" + header(described())[6:] + bytes(24), "does not begin as"),
    "version": (b"\x93NUMPY\x04\x00" + bytes(60), r"version 4\.0"),
    "short header": (header(described())[:30], "ends after 30 bytes"),
    "long header": (b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + bytes(60), "a header of 4,294,967,307 bytes"),
    "no dictionary": (header("[1, 2]"), "cannot be parsed"),
    "not Python": (header("{'descr'"), "cannot be parsed"),
    "nested": (header("(" * 5000), "cannot be parsed"),
    "no such type": (header(described(descr="'<q7'")), "cannot be parsed"),
    "negative": (header(described("(-2, 3)")), r"the shape \(-2, 3\)"),
    "bool": (header(described("(True, 3)")) + bytes(12), "the shape"),
    "huge": (header(described(f"(0, {2**62})")), "memory can address"),
    "dimensions": (header(described(f"({'1, ' * 65})")) + bytes(4), "at most 64"),
    "object": (header(described(descr="'|O'")) + bytes(48), "nothing is unpickled"),
    "structure": (header(described(descr="[('a', '<f4')]")) + bytes(24), "structured"),
    "structure of objects": (header(described(descr="[('a', '|O')]")) + bytes(24), "nothing is unpickled"),
    "subarray": (header(described(descr="('<f4', (2,))")) + bytes(48), "structured"),
    "no size": (header(described(descr="'|V0'")), "structured"),
    "truncated": (header(described()) + bytes(23), "23 bytes of elements; allowed: 24, as its header says"),
    "longer": (header(described()) + bytes(25), "25 bytes of elements"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_files(tmp_path: Path, case: str) -> None:
    data, message = BAD[case]
    (tmp_path / "x.npy").write_bytes(data)
    with pytest.raises(FileError, match=message):
        open_source(tmp_path / "x.npy")


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, ...]:
            return os.mkdir, (str(tmp_path / "sprung"),)

    np.save(tmp_path / "x.npy", np.array([Trap()], object), allow_pickle=True)
    with pytest.raises(FileError, match="nothing is unpickled"):
        open_source(tmp_path / "x.npy")
    assert contents(tmp_path) == ["x.npy"]


def test_errors_of_the_system_stay(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        open_source(tmp_path / "x.npy")
    (tmp_path / "x.npy").mkdir()
    with pytest.raises(OSError):
        open_source(tmp_path / "x.npy")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes")
def test_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.npy")
    with pytest.raises(FileError, match="no regular file"):
        open_source(tmp_path / "x.npy")


def test_file_that_became_shorter(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones((100, 100)))
    with open_source(tmp_path / "x.npy") as source:
        os.truncate(tmp_path / "x.npy", 4096)
        np.testing.assert_array_equal(source.read((slice(0, 4), slice(0, 100))), 1)
        with pytest.raises(FileError, match=r"an end of the file after 4,096 bytes; allowed: 80,128"):
            source.read()


def test_into_must_fit(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones((4, 3), "f4"))
    with open_source(tmp_path / "x.npy") as source:
        for into in (np.empty((3, 4), "f4"), np.empty((4, 3), "f8"), np.empty((3, 4), "f4").T):
            with pytest.raises(TypeError, match="into is of"):
                source.read(into=into)


def test_a_name_is_refused_as_the_file_has_one_array(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones(3))
    with pytest.raises(FileError, match="the name 'a'"):
        open_source(tmp_path / "x.npy", "a")


@pytest.mark.parametrize("dtype", ["?", "i1", "f2", "f4", "c16", "V2"])
@pytest.mark.parametrize("shape", [(), (7,), (1, 5), (3, 4, 5), (3, 0, 2)])
def test_writes_what_numpy_writes(tmp_path: Path, shape: tuple[int, ...], dtype: str) -> None:
    array = np.random.default_rng(1).integers(0, 99, shape).astype("f8" if dtype == "V2" else dtype)
    array = array.astype("f2").view("V2") if dtype == "V2" else array
    np.save(tmp_path / "numpy.npy", array)
    for order in "CF":
        write(tmp_path / "y.npy", y=np.array(array, order=order))
        assert (tmp_path / "y.npy").read_bytes() == (tmp_path / "numpy.npy").read_bytes()


def test_writes_regions_in_any_order(tmp_path: Path) -> None:
    array = np.arange(5 * 6 * 7).reshape(5, 6, 7)
    writer = create(tmp_path / "y.npy", {"y": Tensor(array.shape, array.dtype)}, "0a")
    cuts = [(slice(0, 2), slice(2, 5)), (slice(0, 6),), (slice(0, 3), slice(3, 4), slice(4, 7))]
    for region in reversed(list(itertools.product(*cuts))):
        writer.sinks["y"].write(region, array[region])
    writer.finish()
    writer.put_in_place()
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), array)


def test_blocks_must_fit(tmp_path: Path) -> None:
    writer = create(tmp_path / "y.npy", {"y": Tensor((4, 3), np.dtype("f4"))}, "0a")
    for block in (np.ones((3, 4), "f4"), np.ones((4, 3), "f8"), np.ones((4, 3), ">f4")):
        with pytest.raises(TypeError, match="a block of"):
            writer.sinks["y"].write(everything((4, 3)), block)
    writer.discard()


def test_error_pickles() -> None:
    error = pickle.loads(pickle.dumps(FileError("3 bytes", "4")))
    assert (error.found, error.allowed, str(error)) == ("3 bytes", "4", "3 bytes; allowed: 4")
