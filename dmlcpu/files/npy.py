"""NumPy's .npy: one array, read and written in regions. NumPy parses the header, which is checked here."""

import functools
import io
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from dmlcpu.common.cleanup import OnFailure
from dmlcpu.common.regions import Tensor
from dmlcpu.files.base import FileError, FileSource, Format, check_dtype, check_shape, no_name, only_array
from dmlcpu.files.stored import Storage, StoredSource, StoredWriter, open_file, size_of
from dmlcpu.files.targets import Writer

_LONGEST_HEADER = 10_000  # NumPy's limit for headers of files that it does not trust
_LEAST = 10  # bytes: what files begin with, the version and the length of the header
_MOST_DIMENSIONS = 64
_PYTHON_2_LONG = re.compile(rb"(?<=\d)L(?=[,)])")


def open_source(path: str, name: str | None, dtype: str | None) -> FileSource:
    """Open a .npy file."""
    no_name(name, ".npy")
    file = open_file(path)
    with OnFailure(file.close):
        storage = read_header(file)
        check_size(size_of(file) - storage.offset, storage)
        return StoredSource(file, storage, dtype)


def check(tensors: Mapping[str, Tensor]) -> None:
    """Refuse arrays that a .npy file cannot hold."""
    header_of(*only_array(tensors, ".npy"))


def create(target: str, tensors: Mapping[str, Tensor], token: str) -> Writer:
    """Begin a .npy file."""
    [(name, tensor)] = tensors.items()
    return StoredWriter(target, name, tensor, token, header_of(*tensor))


def read_header(file: Any) -> Storage:
    """Read the header of an open .npy file, or of a file in an archive."""
    start = file.read(1024) or b""
    if len(start) < _LEAST:
        raise FileError(f"a file of {len(start)} bytes", f"at least {_LEAST}, where a header begins")
    if start[:6] != b"\x93NUMPY":
        raise FileError("a file that does not begin as .npy files do", r"the bytes \x93NUMPY, then a header")
    version = tuple(start[6:8])
    width = {(1, 0): 2, (2, 0): 4, (3, 0): 4}.get(version)  # of the field with the length of the rest
    if width is None:
        raise FileError(f"a .npy file of version {'.'.join(map(str, version))}", "1.0, 2.0 or 3.0")
    offset = 8 + width + int.from_bytes(start[8 : 8 + width], "little")
    if offset > _LONGEST_HEADER:
        raise FileError(f"a header of {offset:,} bytes", f"at most {_LONGEST_HEADER:,}")
    if len(start) < offset:
        start += file.read(offset - len(start)) or b""
    if len(start) < offset:
        raise FileError(f"a header that ends after {len(start):,} bytes", f"{offset:,}, as it says")
    return _parsed(start[8:offset], version)


@functools.lru_cache(maxsize=256)
def _parsed(text: bytes, version: tuple[int, ...]) -> Storage:
    """Parse a header. It is cached: the headers of many files are the same."""
    # Otherwise NumPy warns of Python 2's integers. Versions 2 and 3 differ in the names in structured types.
    plain = io.BytesIO(_PYTHON_2_LONG.sub(b" ", text))
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    try:
        shape, fortran, stored = read(plain)
    except Exception as error:  # NumPy evaluates headers: a broken one raises nearly anything
        reason = f"{error!s:.200}" or type(error).__name__
        raise FileError(f"a header that cannot be parsed ({reason})", "shape, order and type of an array") from None
    check_dtype(stored)
    if len(shape) > _MOST_DIMENSIONS or any(type(size) is not int or size < 0 for size in shape):
        raise FileError(f"the shape {shape}", f"at most {_MOST_DIMENSIONS} sizes, none negative")
    native = Tensor(shape, stored.newbyteorder("="))
    check_shape(native)
    return Storage(native, 8 + len(text), fortran, stored != native.dtype)


def check_size(found: int, storage: Storage) -> None:
    """Refuse a file that is not as long as its header says."""
    if found != storage.tensor.nbytes:
        raise FileError(f"{found:,} bytes of elements", f"{storage.tensor.nbytes:,}, as its header says")


@functools.lru_cache(maxsize=256)
def header_of(shape: tuple[int, ...], dtype: np.dtype[Any]) -> bytes:
    """Return NumPy's header of an array in C order."""
    check_dtype(dtype)
    header = io.BytesIO()
    described = {"shape": shape, "fortran_order": False, "descr": np.lib.format.dtype_to_descr(dtype)}
    np.lib.format.write_array_header_1_0(header, described)
    return header.getvalue()


FORMAT = Format((".npy",), open_source, check, create, holds_one=True, is_remote=True)
