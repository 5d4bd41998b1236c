import json
import struct
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from writing import check_reads, write

from dmlcpu.files import FileError, open_source

safetensors = pytest.importorskip("safetensors.numpy")

TYPES = ["?", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", ml_dtypes.bfloat16, "f4", "f8", "c8"]
ARRAYS = {f"t{i}": np.arange(12).reshape(3, 4).astype(dtype) for i, dtype in enumerate(TYPES)}
ARRAYS |= {"scalar": np.array(3.5), "none": np.empty((0, 2), "f4")}


@pytest.mark.parametrize("ours", [False, True])
def test_reads(tmp_path: Path, ours: bool) -> None:
    path = tmp_path / "x.safetensors"
    if ours:
        write(path, **ARRAYS)
    else:
        safetensors.save_file(ARRAYS, path, {"of": "a test"})
    loaded = safetensors.load_file(path) if "bfloat16" in map(str, safetensors._TYPES.values()) else {}
    assert all(loaded[name].tobytes() == ARRAYS[name].tobytes() for name in loaded)
    for name, array in ARRAYS.items():
        check_reads(path, array, name)


def test_writes_what_the_library_writes(tmp_path: Path) -> None:
    write(tmp_path / "y.safetensors", **ARRAYS)
    assert (tmp_path / "y.safetensors").read_bytes() == safetensors.save(ARRAYS)


def test_names(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    write(path, a=np.ones(2), b=np.ones(3))
    with pytest.raises(FileError, match="2 arrays and no name; allowed: a name: a, b"):
        open_source(path)
    with pytest.raises(FileError, match="the name 'c'; allowed: a, b"):
        open_source(path, "c")
    with open_source(path, "b", "uint64") as source:
        np.testing.assert_array_equal(source.read(), np.ones(3).view("u8"))


def test_names_are_in_the_order_of_the_file(tmp_path: Path) -> None:
    places = {"b": [8, 16], "a": [0, 8]}
    header = {name: {"dtype": "I64", "shape": [1], "data_offsets": place} for name, place in places.items()}
    text = json.dumps(header).encode()
    data = struct.pack("<Q", len(text)) + text + np.array([3, 4]).tobytes()
    (tmp_path / "x.safetensors").write_bytes(data)
    with pytest.raises(FileError, match="allowed: a name: a, b"):
        open_source(tmp_path / "x.safetensors")
    with open_source(tmp_path / "x.safetensors", "b") as source:
        assert source.read().tolist() == [4]


def test_bad_files(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    write(path, a=np.ones(20))
    whole = path.read_bytes()
    for data in (b"", whole[:5], whole[:40], whole[:-1], whole + b"0", b"\xff" * 8 + whole[8:]):
        path.write_bytes(data)
        with pytest.raises(FileError, match="a safetensors file"):
            open_source(path)
    with pytest.raises(FileNotFoundError):
        open_source(tmp_path / "none.safetensors")


def test_a_header_that_would_take_much_memory(tmp_path: Path) -> None:
    """The library allows 100 MB, which take more than 1 GB."""
    header = json.dumps({}).encode().ljust((16 << 20) + 1)
    (tmp_path / "x.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    found = "a header of 16,777,217 bytes; allowed: a safetensors file with a header of at most 16,777,216"
    with pytest.raises(FileError, match=found):
        open_source(tmp_path / "x.safetensors")


def test_types_that_the_package_has_not(tmp_path: Path) -> None:
    header = json.dumps({"a": {"dtype": "F8_E4M3", "shape": [8], "data_offsets": [0, 8]}}).encode()
    (tmp_path / "x.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(8))
    with pytest.raises(FileError, match="elements of the type F8_E4M3"):
        open_source(tmp_path / "x.safetensors")
