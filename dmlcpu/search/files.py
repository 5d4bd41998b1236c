"""Arrays of .npy files, memory-mapped once the file has been checked."""

import os
from typing import Any

import numpy as np

from dmlcpu.batch.files.base import FileError
from dmlcpu.batch.files.npy import check_size, read_header
from dmlcpu.batch.files.stored import open_file
from dmlcpu.common.arguments import Array
from dmlcpu.errors import BindingError


def mapped(operator: str, field: str, path: str | os.PathLike[str]) -> Array:
    """Return the array of a .npy file, read-only, or refuse the file. Nothing of it is evaluated or unpickled.

    The file must be as long as its header says, in C order, and in the machine's byte order.
    """
    try:
        with open_file(path) as file:
            layout = read_header(file)
            check_size(os.fstat(file.fileno()).st_size - layout.offset, layout)
            if layout.fortran and len(layout.tensor.shape) > 1:
                raise FileError("an array in Fortran order", "an array in C order")
            if layout.swapped:
                raise FileError("elements in the other byte order", "the machine's byte order")
            return _mapped(file, layout.tensor.shape, layout.tensor.dtype, layout.offset)
    except FileError as error:
        raise BindingError(operator, field, f"{os.fspath(path)!r}: {error.found}", error.allowed) from None


def _mapped(file: Any, shape: tuple[int, ...], dtype: np.dtype[Any], offset: int) -> Array:
    if 0 in shape:
        return np.empty(shape, dtype)
    return np.memmap(file, dtype, "r", offset, shape)
