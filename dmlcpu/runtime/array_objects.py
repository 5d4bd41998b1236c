"""Arrays as the objects that Python has: compiled code looks whether they fit, all at once.

To look at an array's type, shape and flags from Python, and to view its words, takes 0.4 us; here it takes a few
nanoseconds (Zen 4). An array begins with the head of all Python objects. Behind it are the fields that are read here,
the first of `PyArrayObject_fields`. NumPy does not move them, because compiled extensions read them.
"""

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from dmlcpu.runtime.intrinsics import emitted
from dmlcpu.runtime.jit import compile_lazily, inlined
from dmlcpu.runtime.memory import PLAIN
from dmlcpu.runtime.records import CELL

_INT, _LONG = ir.IntType(32), ir.IntType(64)
_HEAD = object.__basicsize__
_CLASS = _HEAD - CELL  # the last field of the head
# The fields of an array: the address of its data, dimensions (32 bits), the addresses of its shape, strides, base and
# dtype, flags (32 bits).
_DATA, _NDIM, _SHAPE, _DTYPE, _FLAGS = [_HEAD + CELL * place for place in (0, 1, 2, 5, 6)]
_ITEMS = tuple.__basicsize__  # of a tuple: its elements
# A row says what an array has to be: its class and dtype, by their addresses; bytes, whether it is an output,
# dimensions, and the shape. It has room for the address of the array's data, and for those of cells to write that to.
_CLASS_CELL, _DTYPE_CELL, _BYTES_CELL, _OUTPUT_CELL, _DATA_CELL, _TOLD, _NDIM_CELL = 0, 1, 2, 3, 4, 5, 7
_SHAPE_CELLS = 8


@emitted
def _long_at(builder, address) -> types.intp:
    """Return the int64, or the address, at an address."""
    return builder.load(builder.inttoptr(address, _LONG.as_pointer()))


@emitted
def _int_at(builder, address) -> types.intp:
    """Return the int32 at an address."""
    return builder.sext(builder.load(builder.inttoptr(address, _INT.as_pointer())), _LONG)


@emitted
def _store(builder, address, value):
    """Write an int64 to an address."""
    builder.store(value, builder.inttoptr(address, _LONG.as_pointer()))


@inlined
def _is_as(array, rows, i):
    """Return whether the object at an address is an array as row i says."""
    if _long_at(array + _CLASS) != rows[i, _CLASS_CELL] or _long_at(array + _DTYPE) != rows[i, _DTYPE_CELL]:
        return False
    if _int_at(array + _FLAGS) & PLAIN != PLAIN or _int_at(array + _NDIM) != rows[i, _NDIM_CELL]:
        return False
    shape, is_same = _long_at(array + _SHAPE), True
    for d in range(rows[i, _NDIM_CELL]):
        is_same &= _long_at(shape + CELL * d) == rows[i, _SHAPE_CELLS + d]
    return is_same


@inlined
def _is_apart(rows, i):
    """Return whether array i shares no memory with the arrays before it; two inputs may share memory."""
    start, end = rows[i, _DATA_CELL], rows[i, _DATA_CELL] + rows[i, _BYTES_CELL]
    for j in range(i):
        other = rows[j, _DATA_CELL]
        if rows[i, _OUTPUT_CELL] | rows[j, _OUTPUT_CELL] and start < other + rows[j, _BYTES_CELL] and other < end:
            return False
    return True


def _fit(rows, arrays):
    """Look at the arrays of the tuple at an address; if they fit, write where they lie to the cells of their rows."""
    for i in range(rows.shape[0]):
        array = _long_at(arrays + _ITEMS + CELL * i)
        if not _is_as(array, rows, i):
            return False
        rows[i, _DATA_CELL] = _long_at(array + _DATA)
        if not _is_apart(rows, i):
            return False
    for i in range(rows.shape[0]):
        for told in range(_TOLD, _NDIM_CELL):
            if rows[i, told] != 0:
                _store(rows[i, told], rows[i, _DATA_CELL])
    return True


@functools.cache
def _compiled() -> Any:
    # Other threads could change the arrays' shapes meanwhile if they ran.
    return compile_lazily(_fit, nogil=False, _nrt=False)


class Rows:
    """What arrays have to be, for one thread at a time."""

    __slots__ = ("_dtypes", "_fit", "_rows")

    def __init__(
        self, tensors: Sequence[tuple[tuple[int, ...], np.dtype[Any], bool]], told: Sequence[Sequence[int]] = ()
    ) -> None:
        """Prepare for arrays of these shapes and dtypes; whether each is an output.

        told: the addresses of cells, two for each array at most, that `fit` writes to where it lies.
        """
        most = max(len(shape) for shape, *_ in tensors)
        self._rows = np.zeros((len(tensors), _SHAPE_CELLS + most), np.int64)
        self._dtypes = [dtype for _, dtype, _ in tensors]  # alive, as rows have their addresses
        self._fit = _compiled()
        for row, (shape, dtype, output) in zip(self._rows, tensors, strict=True):
            nbytes = dtype.itemsize * math.prod(shape)
            row[:_TOLD] = id(np.ndarray), id(dtype), nbytes, output, 0
            row[_NDIM_CELL : _SHAPE_CELLS + len(shape)] = len(shape), *shape
        for row, cells in zip(self._rows, told, strict=False):
            row[_TOLD : _TOLD + len(cells)] = cells

    def fit(self, arrays: tuple[Any, ...]) -> bool:
        """Return whether objects are packed, aligned, writeable arrays of these, and no output shares memory."""
        fits: bool = self._fit(self._rows, id(arrays))
        return fits
