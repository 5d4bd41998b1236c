"""ONNX tensors, one in a .pb file, as ONNX's test data has them. The library reads and writes them whole."""

import io
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from dmlcpu.common.arguments import Array
from dmlcpu.common.data_types import DATA_TYPES
from dmlcpu.common.regions import Region, Tensor
from dmlcpu.files.base import FileError, FileSource, Format, identity_of, library, no_name, only_array, refused
from dmlcpu.files.stored import open_file, size_of, write_at

_ALLOWED = "an ONNX TensorProto"
_NAME_OF = {row.onnx: row.name for row in DATA_TYPES.values()}
_LONGEST_FILE = 2**31 - 1  # what protobuf can hold
_LONGEST = _LONGEST_FILE - 2**16  # with room for the header


def open_source(path: str, name: str | None, dtype: str | None) -> FileSource:
    """Open, and read, an ONNX tensor."""
    no_name(name, ".pb")
    helper = library("onnx.numpy_helper", "onnx")
    proto = library("onnx", "onnx").TensorProto()
    with open_file(path) as file, refused(_ALLOWED):
        state = identity_of(os.stat(file.fileno()))
        if (size := size_of(file)) > _LONGEST_FILE:
            raise FileError(f"a file of {size:,} bytes", f"at most {_LONGEST_FILE:,}, as protobuf has")
        proto.ParseFromString(file.read())
        if proto.data_location == proto.EXTERNAL:
            raise FileError("a tensor whose elements are in another file", "one whose elements are in the file")
        if proto.data_type not in _NAME_OF:
            found = f"a tensor of ONNX's type {proto.data_type}" if proto.data_type else "a tensor without a type"
            raise FileError(found, ", ".join(_NAME_OF.values()))
        array = helper.to_array(proto)
    if array.dtype.name != _NAME_OF[proto.data_type]:  # older versions give the nearest type that NumPy has
        raise FileError(f"a tensor of {_NAME_OF[proto.data_type]}", f"{array.dtype}, which this version of onnx reads")
    return _OnnxSource(array, dtype, state)


def check(tensors: Mapping[str, Tensor]) -> None:
    """Refuse arrays that an ONNX tensor cannot hold."""
    tensor = only_array(tensors, ".pb")
    library("onnx.numpy_helper", "onnx")
    if tensor.dtype.name not in _NAME_OF.values():
        raise FileError(f"elements of {tensor.dtype} for an ONNX tensor", ", ".join(_NAME_OF.values()))
    if tensor.nbytes > _LONGEST:
        raise FileError(f"{tensor.nbytes:,} bytes for an ONNX tensor", f"at most {_LONGEST:,}")


def save(file: io.FileIO, arrays: Mapping[str, Array]) -> None:
    """Write an ONNX tensor."""
    [(name, array)] = arrays.items()
    proto = library("onnx.numpy_helper", "onnx").from_array(array, name)
    write_at(file, 0, np.frombuffer(proto.SerializeToString(deterministic=True), np.uint8))


class _OnnxSource(FileSource):
    in_regions = False

    def __init__(self, array: Any, dtype: str | None, state: dict[str, Any]) -> None:
        super().__init__(Tensor(array.shape, array.dtype), dtype)
        self._array: Array | None = array
        self._state = state

    def identity(self) -> dict[str, Any]:
        return self._state

    def close(self) -> None:
        self._array = None

    def _fill(self, array: Array, region: Region) -> None:
        if self._array is None:
            raise ValueError("the file is closed")
        array[...] = self._array[region]


FORMAT = Format((".pb",), open_source, check, save=save, copies=4, holds_one=True)
