"""Arrays as kernels want them: aligned scratch memory, and flat word views of arrays with any strides."""

import functools
import operator
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlcpu.runtime.records import CELL

Array = NDArray[Any]

_ALIGNMENT = 64
# Scratch up to this many cells is kept for later calls; more is freed at once. More threads have more parts.
_PROCESSORS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
_MOST_KEPT = (32 + _PROCESSORS << 20) // CELL
_LEAST_CELLS = 512
_USUAL_CACHE = 1 << 20
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")

# Of `array.flags.num`: one look instead of one for each flag.
C_CONTIGUOUS, OWNS_DATA, ALIGNED, WRITEABLE = 0x1, 0x4, 0x100, 0x400
# Flags of an array whose words are `frombuffer`'s, if it is not empty.
PLAIN = C_CONTIGUOUS | ALIGNED | WRITEABLE
frombuffer = np.frombuffer  # takes less time than a view of ravel()


_kept: list[Array] = []  # blocks that no call has, from any thread; the last one was used last
_size = operator.attrgetter("size")


class Workspace:
    """At least `cells` int64 of uninitialized, 64-byte aligned memory for one call.

    A call takes a block and, when it is done, gives it back. Blocks are kept for later calls, up to a limit for all
    threads together. A nested call (signal handler, finalizer) finds another block or allocates one. A call that an
    exception ends gives nothing back, so its block is freed.

    A plan has one workspace for all its calls, from any thread. Two calls take half the time of a ``with``.
    """

    __slots__ = ("cells",)

    def __init__(self, cells: int) -> None:
        self.cells = max(cells, _LEAST_CELLS)

    def take(self) -> Array:
        """Return a block that is this call's own."""
        try:
            block = _kept.pop()
        except IndexError:
            return self.make()
        if block.size >= self.cells:
            return block
        del block  # before there is a new one
        return self.make()

    def give_back(self, block: Array) -> None:
        """Keep a block for a later call."""
        _kept.append(block)
        if len(_kept) > 1 or block.size > _MOST_KEPT:
            while sum(map(_size, _kept)) > _MOST_KEPT:  # after `append`: other threads may have kept theirs meanwhile
                del _kept[-1:]  # which raises nothing if another thread has taken the last one

    def make(self) -> Array:
        """Return a new block."""
        return aligned_empty(self.cells, np.int64)


@functools.cache
def second_level_cache() -> int:
    """Return the bytes of each core's second-level cache, or a usual size if the system does not say."""
    for cache in sorted(_CACHES.glob("index*")):
        try:
            level, size = ((cache / name).read_text().strip() for name in ("level", "size"))
        except OSError:
            continue
        if level == "2" and size.endswith("K") and size[:-1].isdigit() and int(size[:-1]) > 0:
            return int(size[:-1]) << 10
    return _USUAL_CACHE


@functools.cache
def _sharers() -> int:
    """Return how many of this process's processors share one second-level cache, as threads of a core do."""
    mine = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    for cache in sorted(_CACHES.glob("index*")):
        try:
            level, text = ((cache / name).read_text().strip() for name in ("level", "shared_cpu_list"))
            ranges = [[int(number) for number in each.split("-")] for each in text.split(",")]
        except (OSError, ValueError):
            continue
        if level == "2":
            return max(1, len(mine & {cpu for ends in ranges for cpu in range(ends[0], ends[-1] + 1)}))
    return 1


def cache_of_thread(threads: int) -> int:
    """Return the bytes of second-level cache for each thread, if this many threads run."""
    sharers = _sharers()
    if sharers > 1 and threads > len(os.sched_getaffinity(0)) // sharers:
        return second_level_cache() // sharers
    return second_level_cache()


def aligned_empty(length: int, dtype: Any) -> Array:
    """Return an uninitialized 1-D array whose first element sits on a 64-byte boundary."""
    nbytes = length * np.dtype(dtype).itemsize
    raw = np.empty(nbytes + _ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % _ALIGNMENT
    return raw[start : start + nbytes].view(dtype)


def words(array: Array, word: np.dtype[Any]) -> Array:
    """Return the memory that `array` spans as a flat array of words, without a copy.

    Kernels are compiled for flat contiguous arrays of one unsigned type a width, for any shape, strides, type or write
    protection of the array; they also get `first_word` and the strides. The array must not be empty, and its address
    and strides must be multiples of the word's size. The result is writable even if `array` is not: write only to
    outputs.
    """
    if array.flags.num & PLAIN == PLAIN:
        return frombuffer(array, word)
    before, shape, typestr = _span(array.shape, array.strides, array.itemsize, word)
    low = array.__array_interface__["data"][0] - before
    span = {"data": (low, False), "shape": shape, "typestr": typestr, "version": 3}
    return np.asarray(SimpleNamespace(__array_interface__=span, owner=array))  # which keeps the memory alive


def flat(array: Array) -> Array:
    """Return the elements of an array in C order as a flat array; without a copy if they lie so in memory.

    A read-only array has another type for Numba, for which kernels would be compiled again. The result is writable even
    if `array` is not: write only to outputs.
    """
    array = np.ascontiguousarray(array).reshape(-1)
    if array.flags.writeable:
        return array
    return words(array, array.dtype) if array.size else array.copy()


@functools.lru_cache(maxsize=1024)
def _span(
    shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int, word: np.dtype[Any]
) -> tuple[int, tuple[int, ...], str]:
    """Return the bytes of an array before its first element, the shape of its words, and their type in text."""
    steps = [(n - 1) * stride for n, stride in zip(shape, strides, strict=True)]
    nbytes = sum(map(abs, steps)) + itemsize
    return -sum(step for step in steps if step < 0), (nbytes // word.itemsize,), word.str


def word_strides(strides: tuple[int, ...], width: int) -> tuple[int, ...]:
    """Return strides counted in words instead of bytes."""
    return tuple(stride // width for stride in strides)


def packed_strides(shape: tuple[int, ...], step: int = 1) -> tuple[int, ...]:
    """Return the strides of a packed array in C order; step: from one element to the next, in bytes or words."""
    strides = [step]
    for n in shape[:0:-1]:
        strides.append(strides[-1] * n)
    return tuple(reversed(strides[: len(shape)]))


def first_word(shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """Return the place of an array's first element in its `words`; strides in words."""
    return sum((1 - n) * stride for n, stride in zip(shape, strides, strict=True) if stride < 0)


def spans_meet(a: Array, b: Array) -> bool:
    """Return whether the spans of two arrays, from the first element to the last, have memory in common."""
    if a is not b and a.flags.num & b.flags.num & OWNS_DATA:  # faster than NumPy's own check
        return False
    return np.may_share_memory(a, b)


def overlap(a: Array, b: Array) -> bool:
    """Return whether two arrays share memory; when that is too hard to decide, they do."""
    if not spans_meet(a, b):
        return False
    try:
        return np.shares_memory(a, b, max_work=100_000)  # type: ignore[arg-type]  # the stub knows two values only
    except np.exceptions.TooHardError:
        return True


_MOST_STEPS = 10_000  # of a search that grows exponentially with the dimensions; usual tensors take one for each


@functools.lru_cache(maxsize=1024)
def elements_overlap(sizes: tuple[int, ...], strides: tuple[int, ...], width: int = 1) -> bool:
    """Return whether two elements `width` wide share memory; when that is too hard to decide, they do."""
    steps = sorted(((abs(stride), n - 1) for n, stride in zip(sizes, strides, strict=True) if n > 1), reverse=True)
    return _meet(steps, 0, width, iter(range(_MOST_STEPS)), moved=False)


def _meet(steps: list[tuple[int, int]], offset: int, width: int, budget: Iterator[int], *, moved: bool) -> bool:
    """Return whether steps of (stride, at most how many) lead from `offset` to less than `width` from 0.

    At least one step must be made; `moved` says whether one was. Every call takes one from `budget`, and an empty
    budget gives True.
    """
    if next(budget, None) is None:
        return True
    if not steps:
        return moved and abs(offset) < width
    (stride, most), *rest = steps
    if stride == 0:
        return abs(offset) < width
    reach = sum(s * m for s, m in rest) + width - 1
    # Only these counts leave an offset that the smaller strides can reach 0 from; packed tensors have just 0.
    first = max(-most if moved else 0, -((offset + reach) // stride))
    last = min(most, (reach - offset) // stride)
    return any(_meet(rest, offset + n * stride, width, budget, moved=moved or n != 0) for n in range(first, last + 1))
