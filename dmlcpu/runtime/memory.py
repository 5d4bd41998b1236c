"""Arrays as kernels want them: aligned scratch memory, and flat word views of arrays with any strides."""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_ALIGNMENT = 64
# Scratch up to this many bytes is kept by each thread for its next call; more is given back at once.
_KEPT_BYTES = 32 << 20

_WORDS: dict[int, np.dtype[Any]] = {
    1: np.dtype(np.uint8),
    2: np.dtype(np.uint16),
    4: np.dtype(np.uint32),
    8: np.dtype(np.uint64),
}

_local = threading.local()


@contextlib.contextmanager
def scratch(*requests: tuple[int, Any]) -> Iterator[list[Array]]:
    """Lend one uninitialised 64-byte aligned 1-D array for each (length, dtype).

    The memory belongs to the calling thread, whose next call uses it again. While it is lent it is not there: a call
    in between (of a signal handler, of a finalizer) gets memory of its own.
    """
    offsets = []
    total = 0
    for length, dtype in requests:
        offsets.append(total)
        nbytes = length * np.dtype(dtype).itemsize
        total += -(-nbytes // _ALIGNMENT) * _ALIGNMENT
    block: Array | None = _local.__dict__.pop("block", None)
    if block is None or block.size < total:
        block = aligned_empty(max(total, 4096), np.uint8)
    try:
        yield [
            block[offset : offset + length * np.dtype(dtype).itemsize].view(dtype)
            for offset, (length, dtype) in zip(offsets, requests, strict=True)
        ]
    finally:
        if block.size <= _KEPT_BYTES:
            _local.block = block


def aligned_empty(length: int, dtype: Any) -> Array:
    """Return an uninitialised 1-D array whose first element sits on a 64-byte boundary."""
    nbytes = length * np.dtype(dtype).itemsize
    raw = np.empty(nbytes + _ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % _ALIGNMENT
    return raw[start : start + nbytes].view(dtype)


def words(array: Array, width: int) -> tuple[Array, int]:
    """Return the memory `array` spans as a flat array of unsigned words, and the offset of its first element in it.

    Nothing is copied. Kernels are compiled for flat contiguous arrays of one unsigned type a width, whatever the
    array's shape, strides, type or write protection; they get the strides beside it. The array must not be empty, and
    its address and strides must be multiples of `width`. The result can be written to even if `array` cannot: only
    what a caller checked to be an output may be.
    """
    dtype = _WORDS[width]
    if type(array) is not np.ndarray:
        array = array.view(np.ndarray)  # a matrix would stay two-dimensional below
    if array.flags.c_contiguous and array.flags.writeable:
        return array.reshape(-1).view(dtype), 0
    low, high = np.lib.array_utils.byte_bounds(array)
    start: int = array.__array_interface__["data"][0]
    return np.asarray(_Span(array, low, (high - low) // width, dtype)), (start - low) // width


class _Span:
    """What NumPy needs to make an array over memory that another array owns."""

    def __init__(self, owner: Array, address: int, length: int, dtype: np.dtype[Any]) -> None:
        self.owner = owner  # keeps the memory alive
        self.__array_interface__ = {
            "data": (address, False),
            "shape": (length,),
            "typestr": dtype.str,
            "version": 3,
        }


def word_strides(array: Array, width: int) -> tuple[int, ...]:
    """Return the array's strides, counted in words."""
    return tuple(stride // width for stride in array.strides)


def overlap(a: Array, b: Array) -> bool:
    """Tell whether two arrays share memory; when that is too hard to decide, they do."""
    if not np.may_share_memory(a, b):
        return False
    try:
        return np.shares_memory(a, b, max_work=100_000)  # type: ignore[arg-type]  # the stub knows two values only
    except np.exceptions.TooHardError:
        return True
