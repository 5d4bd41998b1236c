from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from writing import check_reads, write

from dmlcpu.files import FileError, open_source

onnx = pytest.importorskip("onnx")
numpy_helper = pytest.importorskip("onnx.numpy_helper")

TYPES = ["?", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", ml_dtypes.bfloat16, "f4", "f8", "c8", "c16"]


@pytest.mark.parametrize("shape", [(3, 4), (), (0, 2)])
@pytest.mark.parametrize("dtype", [*TYPES, ml_dtypes.int4, ml_dtypes.uint4])
def test_reads_what_it_writes(tmp_path: Path, dtype: object, shape: tuple[int, ...]) -> None:
    array = np.arange(12)[: np.prod(shape, dtype=int)].reshape(shape).astype(dtype)
    path = tmp_path / "x.pb"
    write(path, y=array)
    proto = onnx.load_tensor(path)
    assert proto.name == "y"
    assert numpy_helper.to_array(proto).tobytes() == array.tobytes()
    check_reads(path, array, in_regions=False)
    with open_source(path) as source:
        pass
    with pytest.raises(ValueError, match="closed"):
        source.read()


def test_seen_as_another_type(tmp_path: Path) -> None:
    write(tmp_path / "x.pb", y=np.arange(3, dtype="u2"))
    with open_source(tmp_path / "x.pb", dtype="bfloat16") as source:
        assert source.read().view("u2").tolist() == [0, 1, 2]
    with pytest.raises(FileError, match="the name 'y'"):
        open_source(tmp_path / "x.pb", "y")


def test_bad_files(tmp_path: Path) -> None:
    path = tmp_path / "x.pb"
    text = numpy_helper.from_array(np.array(["a"], object))
    short = numpy_helper.from_array(np.ones(3, "f4"))
    short.dims[0] = 9
    outside = numpy_helper.from_array(np.ones(3, "f4"))
    outside.data_location = outside.EXTERNAL
    for data, message in [
        (b"", "a tensor without a type; allowed: bool, "),
        (b"no tensor", "unreadable data"),
        (text.SerializeToString(), "ONNX's type 8"),
        (short.SerializeToString(), "unreadable data"),
        (outside.SerializeToString(), "in another file"),
    ]:
        path.write_bytes(data)
        with pytest.raises(FileError, match=message):
            open_source(path)
    with pytest.raises(FileNotFoundError):
        open_source(tmp_path / "none.pb")


def test_a_file_larger_than_any_tensor_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "x.pb").open("wb") as file:
        file.truncate(1 << 31)  # a hole: it takes no place on the disk
    with pytest.raises(FileError, match="a file of 2,147,483,648 bytes; allowed: at most 2,147,483,647"):
        open_source(tmp_path / "x.pb")
