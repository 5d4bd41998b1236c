"""Arrays in blocks: block sizes and regions, and a reader that reads one block ahead."""

import itertools
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any, TypeVar

import numpy as np

from dmlcpu.common.arguments import Array
from dmlcpu.common.forms import Form, formed
from dmlcpu.common.regions import Region, Source, Stopped, Tensor, is_source
from dmlcpu.errors import DmlError
from dmlcpu.runtime.memory import aligned_empty

T = TypeVar("T")

# Bytes of a block, unless memory is short: two blocks stay in the last-level cache, so kernels read them from there.
# Measured with top_k on 8 GiB, k 100 (Zen 4): along rows 4 and 8 MiB, along columns 2 to 16 MiB take about the same
# time.
BLOCK = 8 << 20


class InMemory:
    """An array as a Source."""

    def __init__(self, array: Array) -> None:
        self.array = array
        self.shape, self.dtype = array.shape, array.dtype

    def read(self, region: Region | None = None, into: Array | None = None) -> Array:
        """Return the elements of a region: a view, unless they are read into another array."""
        view = self.array if region is None else self.array[region]
        if into is None:
            return view
        np.copyto(into, view)
        return into


def as_source(operator: str, field: str, value: Any) -> tuple[Source, Form]:
    """Return an argument as a Source, and its form; only arrays are checked."""
    if is_source(value):
        return value, Form(value.shape, value.dtype)
    array, form = formed(operator, field, value)
    return InMemory(array), Form(*form)


def extent(region: Region) -> tuple[int, ...]:
    """Return the shape of a region."""
    return tuple(each.stop - each.start for each in region)


def regions_of(shape: tuple[int, ...], tile: tuple[int, ...]) -> Iterator[Region]:
    """Yield regions of the size of a tile, smaller at the ends, in C order; none if there are no elements."""
    if not shape:
        yield ()
        return
    n, size = shape[0], max(1, tile[0])
    for start in range(0, n, size):
        first = slice(start, min(start + size, n))
        for others in regions_of(shape[1:], tile[1:]):
            yield (first, *others)


def tile_of(shape: tuple[int, ...], most: int) -> tuple[int, ...]:
    """Return the largest tile of at most `most` elements, at least one, that are contiguous in C order."""
    tile: list[int] = []
    for n in reversed(shape):
        size = max(1, min(n, most))
        tile.append(size)
        most = most // size if size == n else 1
    return tuple(reversed(tile))


def cut_within(operator: str, memory: int, cuts: Iterable[T], needs: Callable[[T], int]) -> T:
    """Return the first, so the fastest, cut for which the memory suffices. needs: returns the bytes of a cut."""
    asked = []
    for cut in cuts:
        asked.append(needs(cut))
        if asked[-1] <= memory:
            return cut
    raise DmlError(operator, "memory", f"{memory:,} bytes", f"at least {min(asked):,}")


class Buffer:
    """Memory that blocks reuse: the system would have to clear fresh memory for each."""

    def __init__(self) -> None:
        self._bytes = aligned_empty(0, np.uint8)

    def array(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Return an uninitialized array in the memory of the previous one."""
        nbytes = Tensor(shape, dtype).nbytes
        if nbytes > self._bytes.size:
            self._bytes = aligned_empty(0, np.uint8)  # frees the old memory before the new one is allocated
            self._bytes = aligned_empty(nbytes, np.uint8)
        return self._bytes[:nbytes].view(dtype).reshape(shape)


def read_blocks(
    source: Source,
    regions: Iterable[Region],
    stopping: Callable[[], bool],
    *,
    axis: int = 0,
    front: int = 0,
    copies: bool = False,
) -> Iterator[tuple[Region, Array]]:
    """Yield each region with its elements while a thread reads the next one. An array is valid until the next step.

    front: the number of elements to leave free before each block along the axis; all dimensions before it must be 1.
    copies: the caller may write to the arrays.
    """
    if isinstance(source, InMemory) and not front and not copies:
        for region in regions:
            _stop_if(stopping)
            yield region, source.read(region)
        return

    def read(region: Region, buffer: Buffer) -> tuple[Region, Array]:
        shape = extent(region)
        if 0 in shape:
            return region, np.empty(shape, source.dtype)
        if not front:
            return region, source.read(region, buffer.array(shape, source.dtype))
        block = buffer.array((*shape[:axis], shape[axis] + front, *shape[axis + 1 :]), source.dtype)
        source.read(region, block[(slice(None),) * axis + (slice(front, None),)])
        return region, block

    buffers = itertools.cycle((Buffer(), Buffer()))
    with ThreadPoolExecutor(1, "dmlcpu-read") as reader:
        coming = None
        for region in regions:
            ready, coming = coming, reader.submit(read, region, next(buffers))
            if ready:
                yield ready.result()
                _stop_if(stopping)
        if coming:
            yield coming.result()


class BlockReader:
    """Blocks of an array for one or more workers.

    A single worker has a thread that reads the next block while all threads of a kernel compute the current one.
    Several workers are threads that each read and compute their own blocks, which stay in their core's caches. A worker
    raises Stopped if `stopping` returns True before a block is read.
    """

    def __init__(self, source: Source, stopping: Callable[[], bool], workers: int) -> None:
        self.workers = workers
        self.most_threads = None if workers == 1 else 1  # threads that each worker may use in kernels; None: all
        self._source, self._stopping = source, stopping
        self._ended = False
        self._taking = threading.Lock()

    def take(self, regions: Iterator[Region]) -> Iterator[tuple[Region, Array]]:
        """Yield regions, none empty, with their elements, which are valid until the next is requested.

        Several workers may iterate over the same regions: each region goes to one of them.
        """
        if self.workers == 1:
            yield from read_blocks(self._source, regions, self._stopping)
            return
        buffer = Buffer()
        while True:
            with self._taking:
                region = None if self._ended else next(regions, None)
            if region is None:
                return
            _stop_if(self._stopping)
            yield region, self._source.read(region, buffer.array(extent(region), self._source.dtype))

    def in_workers(self, serve: Callable[[int], T]) -> list[T]:
        """Call a function with each worker's number; after one raises, the others get no more blocks."""
        if self.workers == 1:
            return [serve(0)]
        with ThreadPoolExecutor(self.workers, "dmlcpu-block") as pool:
            served = [pool.submit(serve, number) for number in range(self.workers)]
            try:
                for each in as_completed(served):
                    each.result()
            except BaseException:  # from a thread, or an interrupt
                self._ended = True
                raise
        return [each.result() for each in served]


def _stop_if(stopping: Callable[[], bool]) -> None:
    if stopping():
        raise Stopped
