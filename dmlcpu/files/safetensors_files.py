"""safetensors files: tensors by name. The library checks and writes them; the elements are read in regions."""

import io
import json
from collections.abc import Mapping

import numpy as np

from dmlcpu.common.arguments import Array, named
from dmlcpu.common.cleanup import OnFailure
from dmlcpu.common.data_types import DATA_TYPES
from dmlcpu.common.regions import Tensor
from dmlcpu.files.base import FileError, FileSource, Format, chosen, library, refused
from dmlcpu.files.stored import Storage, StoredSource, open_file, size_of, write_at

_ALLOWED = "a safetensors file"
_LONGEST_HEADER = 16 << 20  # bytes, of some 200,000 tensors; parsed, it takes 20 times as much memory
_TYPES = {
    {"bool": "BOOL", "bfloat16": "BF16"}.get(row.name, f"{row.kind.upper()}{row.bits}"): row.name
    for row in DATA_TYPES.values()
    if 8 <= row.bits <= 64
}


def open_source(path: str, name: str | None, dtype: str | None) -> FileSource:
    """Open a tensor of a safetensors file."""
    safetensors = library("safetensors", "safetensors")
    file = open_file(path)
    with OnFailure(file.close):
        with refused(_ALLOWED):
            if not size_of(file):
                raise FileError("an empty file", _ALLOWED)
            length = int.from_bytes(file.read(8), "little")
            if length > _LONGEST_HEADER:
                allowed = f"{_ALLOWED} with a header of at most {_LONGEST_HEADER:,}"
                raise FileError(f"a header of {length:,} bytes", allowed)
            # The library looks at the header, and whether the file ends where it says.
            with safetensors.safe_open(path, framework="np"):
                header = json.loads(file.read(length))
        header.pop("__metadata__", None)
        names = sorted(header, key=lambda each: (header[each]["data_offsets"], each))
        entry = header[chosen(name, names)]
        if entry["dtype"] not in _TYPES:
            raise FileError(f"elements of the type {entry['dtype']}", ", ".join(_TYPES))
        stored = Tensor(tuple(entry["shape"]), named(_TYPES[entry["dtype"]]))
        # The file is little-endian, as are all processors that the package has kernels for.
        return StoredSource(file, Storage(stored, 8 + length + entry["data_offsets"][0]), dtype)


def check(tensors: Mapping[str, Tensor]) -> None:
    """Refuse arrays that a safetensors file cannot hold."""
    library("safetensors.numpy", "safetensors")
    for name, tensor in tensors.items():
        if tensor.dtype.name not in _TYPES.values():
            raise FileError(f"elements of {tensor.dtype} for a safetensors file", ", ".join(_TYPES.values()))
        if name == "__metadata__":
            raise FileError(f"the name {name!r}", "any other (safetensors files have it for something else)")


def save(file: io.FileIO, arrays: Mapping[str, Array]) -> None:
    """Write a safetensors file."""
    # Not by the library's save_file: its own temporary file would stay, and it leaves the mode 0600.
    data = library("safetensors.numpy", "safetensors").save(dict(arrays))
    write_at(file, 0, np.frombuffer(data, np.uint8))


FORMAT = Format((".safetensors",), open_source, check, save=save, copies=3)
