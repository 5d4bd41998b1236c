"""Arrays for results. The memory of a large one is used again when the last array over it is gone.

A system clears fresh pages before it hands them out, which takes longer than to fill them: scatter_nd into 154 MB, two
threads, takes 28 ms into fresh pages and 10 into kept ones. The system may take a kept block back at any time. Nothing
is kept where a program cannot allow that (`MADV_FREE`), or if DMLCPU_KEEP_RESULTS is 0.
"""

import functools
import math
import mmap
import os
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from dmlcpu.runtime.memory import Array

# Smaller blocks are kept by malloc itself (up to 32 MiB by that of the GNU C library).
LEAST_BYTES = 32 << 20
MOST_BYTES = 1 << 30
_ENOUGH = 0.8  # of a kept block must be wanted
_FREE: int | None = getattr(mmap, "MADV_FREE", None)  # Linux and BSD, macOS among them, have it
# A call returns up to two large results. Append and pop are safe at any moment.
_kept: deque[mmap.mmap] = deque(maxlen=2)


def empty_result(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return an uninitialized array."""
    try:  # first, because most results are small; large ones take no memory until written
        result = np.empty(shape, dtype)
    except MemoryError:
        _kept.clear()  # they count where memory is limited
        result = np.empty(shape, dtype)
    nbytes = result.nbytes
    if nbytes < LEAST_BYTES or nbytes > MOST_BYTES or not keeps():
        return result
    del result
    try:
        block = _memory(nbytes)
    except OSError:  # no memory is left, or the process has too many blocks: NumPy raises its own error, or succeeds
        return np.empty(shape, dtype)
    return np.ndarray(shape, dtype, np.asarray(_Lease(block)))


def maker_of(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Callable[[], Array]:
    """Return a function that makes uninitialized arrays; small ones need none of the above."""
    is_small = math.prod(shape) * dtype.itemsize < LEAST_BYTES
    return functools.partial(np.empty if is_small else empty_result, shape, dtype)


def keeps() -> bool:
    """Return whether the memory of large results is kept."""
    text = os.environ.get("DMLCPU_KEEP_RESULTS", "")
    if text not in ("", "0", "1"):
        raise ValueError(f"DMLCPU_KEEP_RESULTS is {text!r}; allowed: 0, 1")
    return _FREE is not None and text != "0"


def _memory(nbytes: int) -> mmap.mmap:
    """Return a kept block if its size suits, else a new one, for which large kept blocks are freed."""
    for _ in range(len(_kept)):
        try:
            block = _kept.pop()
        except IndexError:  # another thread has taken it
            break
        if _ENOUGH * len(block) <= nbytes <= len(block):
            return block
        _kept.appendleft(block)  # after a whole turn the order is as before
    if sum(map(len, _kept.copy())) + nbytes > MOST_BYTES:  # another thread may append meanwhile
        _kept.clear()
    block = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        _advise(block, mmap.MADV_HUGEPAGE)
    return block


def _advise(block: mmap.mmap, advice: int) -> bool:
    """Return whether the system takes the advice; it may define one and yet refuse it."""
    try:
        block.madvise(advice)
    except OSError:
        return False
    return True


class _Lease:
    """The base of all arrays over a block; when they are gone, the block is kept for the next result."""

    block: mmap.mmap | None = None  # a signal handler may raise before it is set

    def __init__(self, block: mmap.mmap) -> None:
        self.block = block
        self.__array_interface__ = np.frombuffer(block, np.uint8).__array_interface__

    # Defaults bind what it needs: it may run when the interpreter has cleared this module.
    def __del__(self, _advise: Any = _advise, _free: Any = _FREE, _keep: Any = _kept.append) -> None:
        if self.block is not None and _advise(self.block, _free):
            _keep(self.block)
