"""top_k that reads its array, and writes its results, a block at a time."""

import itertools
import math
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from dmlcpu.common.arguments import Array
from dmlcpu.common.block_reader import (
    BLOCK,
    BlockReader,
    Buffer,
    as_source,
    cut_within,
    extent,
    read_blocks,
    regions_of,
    tile_of,
)
from dmlcpu.common.forms import Form, Shape
from dmlcpu.common.prepared import Prepared
from dmlcpu.common.regions import Estimate, Region, Sink, Source, bind, is_source
from dmlcpu.kernels.top_k.choose import ELEMENTS_A_WINNER
from dmlcpu.operators.top_k.call import INT64, Call, check, fill_rest, rest_of
from dmlcpu.operators.top_k.function import request, top_k
from dmlcpu.operators.top_k.plan import plan, select
from dmlcpu.operators.top_k.search import Search, search_bytes
from dmlcpu.runtime import threads

SOURCES = ("x",)

# At least this many bytes are read at once if the inner dimensions are cut, and if memory suffices.
_RUN = 1 << 16
# At least this many places along the axis are read at once if sequences are adjacent. 8 to 64 take the same time, with
# lines of 1 and 4 MiB (k 5, one file of 2 GiB, one worker, Zen 4).
_LINES = 32
# Bytes for each winner of sequences that are cut: its positions in this block and in the one before, the positions that
# are kept, NumPy's temporaries, and a flag.
_MERGING = 6 * 8 + 1

Filling = tuple[Array, ...]  # for an array of k: how many winners each sequence has, and what fills the rest; or empty
Write = Callable[[Region, Array, Array], None]  # writes the winners of a region's sequences


def estimate(**arguments: Any) -> Estimate:
    """Return the results and the memory of a call; refuse what the function refuses. Nothing is read or compiled."""
    call, _, filling = _checked(arguments)
    chosen = _planned(call, call.x)
    return Estimate(
        dict(zip(("values", "indices"), chosen.results, strict=True)),
        call.x.nbytes + _working(call, filling, call.x),
        lambda: min(map(partial(_needs, call, filling), _tiles(call))),
        chosen.kernel,
    )


def _checked(arguments: dict[str, Any]) -> tuple[Call, Source, Filling]:
    """Return the checked call, x, and an array of k with what fills the rest. Winners are always sorted."""
    given = bind(top_k, arguments)
    source, given["x"] = as_source("top_k", "x", given["x"])
    ((x, _, _), options), (_, *filling) = request(*given.values(), None)
    return check(x, options)._replace(sorted=True), source, tuple(filling)


def run(
    arguments: dict[str, Any], sinks: dict[str, Sink], memory: int, stopping: Callable[[], bool] = lambda: False
) -> None:
    """Write the winners of x, always sorted, block by block within `memory` bytes. Long sequences are cut."""
    call, x, filling = _checked(arguments)
    if 0 in call.winners(call.x.shape):
        return
    needs = partial(_needs, call, filling)
    tile = cut_within("top_k", memory, _tiles(call), needs)
    write = partial(_write, call, filling, sinks)
    blocks = BlockReader(x, stopping, _workers(call, tile, memory // needs(tile)) if is_source(arguments["x"]) else 1)
    if tile[call.axis] == call.x.shape[call.axis]:
        _whole(call, tile, blocks, write)
    elif _filters(call):
        for region in _sequences(call, tile):
            write(region, *_searched(call, tile, region, blocks))
    else:
        n = call.x.shape[call.axis]
        regions = (part for whole in _sequences(call, tile) for part in _cut(call, tile, whole, 0, n))
        joined = read_blocks(x, regions, stopping, axis=call.axis, front=call.k)
        for region, values, indices in _joined(call, joined):
            write(region, values, indices)


def _workers(call: Call, tile: Shape, most: int) -> int:
    """Return the number of threads that read separate blocks: all, or one if blocks are few or memory is short.

    most: how many threads the memory suffices for.
    """
    workers, n, size = threads.budget().threads, call.x.shape[call.axis], tile[call.axis]
    counts = (-(-whole // part) for whole, part in zip(call.x.shape, tile, strict=True))
    blocks = n // size if size < n else math.prod(counts)
    return workers if blocks >= 2 * workers and workers <= most else 1


def _whole(call: Call, tile: Shape, blocks: BlockReader, write: Write) -> None:
    """Write the winners of blocks of whole sequences. 8 GiB take 1.15 s, and 1.8 s with one worker (Zen 4)."""
    regions, writing = _sequences(call, tile), threading.Lock()

    def serve(_number: int) -> None:
        values, indices = Buffer(), Buffer()
        for region, block in blocks.take(regions):
            shape = call.winners(block.shape)
            found = values.array(shape, call.x.dtype), indices.array(shape, call.index_dtype)
            select(call, block, *found, blocks.most_threads)
            with writing:
                write(region, *found)

    blocks.in_workers(serve)


def _searched(call: Call, tile: Shape, region: Region, blocks: BlockReader) -> tuple[Array, Array]:
    """Return the winners of adjacent sequences; each thread searches a part. 8 GiB: 1.5 s, by one 2.5 s (Zen 4)."""
    n, columns = call.x.shape[call.axis], math.prod(extent(region[call.axis + 1 :]))
    shares: list[Array | None] = [None] * blocks.workers
    of_columns = call._replace(x=Form((n, columns), call.x.dtype), axis=0, index_dtype=INT64)

    def search(own: int) -> Search:
        search = Search(of_columns, blocks.most_threads, shares, own)
        start, stop = n * own // blocks.workers, n * (own + 1) // blocks.workers
        for part, block in blocks.take(_cut(call, tile, region, start, stop)):
            search.look_at(block.reshape(-1, columns), part[call.axis].start)
        return search

    first, *others = blocks.in_workers(search)
    for other in others:
        first.add(other)
    values, indices = first.winners()
    shape = call.winners(extent(region))
    return values.reshape(shape), indices.reshape(shape)


def _joined(call: Call, blocks: Iterator[tuple[Region, Array]]) -> Iterator[tuple[Region, Array, Array]]:
    """Yield the winners of sequences whose parts come in blocks, which have space in front for the winners so far."""
    axis, n, of_block = call.axis, call.x.shape[call.axis], call._replace(index_dtype=INT64)
    values, positions, spare = Buffer(), Buffer(), Buffer()
    winners = indices = np.empty(0)  # none yet
    for region, block in blocks:
        start = region[axis].start
        if start:
            block[(slice(None),) * axis + (slice(call.k),)] = winners
        else:
            block = block[(slice(None),) * axis + (slice(call.k, None),)]
        shape = call.winners(block.shape)
        winners = values.array(shape, call.x.dtype)
        found = positions.array(shape, INT64)
        select(of_block, block, winners, found)
        if start:
            kept = np.take_along_axis(indices, np.minimum(found, call.k - 1), axis)
            found += start - call.k
            np.copyto(found, kept, where=found < start)
        indices, positions, spare = found, spare, positions
        if region[axis].stop == n:
            yield region, winners, indices


def _write(call: Call, filling: Filling, sinks: dict[str, Sink], region: Region, values: Array, indices: Array) -> None:
    """Write the winners of a region's sequences."""
    axis = call.axis
    indices = indices.astype(call.index_dtype, copy=False)
    if filling:
        counts, fill = filling
        rest = rest_of(counts[region[:axis] + region[axis + 1 :]], values.shape[axis], axis)
        fill_rest(values, indices, rest, fill)
    written = (*region[:axis], slice(0, call.k), *region[axis + 1 :])
    sinks["values"].write(written, values)
    sinks["indices"].write(written, indices)


def _sequences(call: Call, tile: Shape) -> Iterator[Region]:
    axis = call.axis
    return regions_of(call.x.shape, (*tile[:axis], call.x.shape[axis], *tile[axis + 1 :]))


def _cut(call: Call, tile: Shape, region: Region, start: int, stop: int) -> Iterator[Region]:
    """Yield the parts of a region's sequences, from one place along the axis to another."""
    axis = call.axis
    size = step = tile[axis]
    if _filters(call):  # only the first part has to have all winners
        step = min(size, max(_LINES, BLOCK // (math.prod(tile[axis + 1 :]) * call.x.dtype.itemsize)))
    for first, last in itertools.pairwise([start, *range(min(start + size, stop), stop, step), stop]):
        yield (*region[:axis], slice(first, last), *region[axis + 1 :])


def _tiles(call: Call) -> Iterator[Shape]:
    """Yield blocks from the fastest to the smallest.

    Sequences are cut only if a block has one place of each dimension before the axis. Then the places before the block
    in memory are those before it along the axis.
    """
    shape, axis, width = call.x.shape, call.axis, call.x.dtype.itemsize
    n, inner = shape[axis], list(shape[axis + 1 :])
    row = math.prod(inner) * width  # bytes of all inner elements at one place along the axis
    # With fewer elements at a time kernels take longer, except the filter, which only compares with the last winners.
    efficient = min(n, (2 if _filters(call) else ELEMENTS_A_WINNER) * call.k)
    outer = list(tile_of(shape[:axis], BLOCK // max(1, n * row)))
    size = n if math.prod(outer) > 1 else _even(n, max(efficient, BLOCK // max(1, row)))
    yield (*outer, size, *inner)
    for tile in _halvings(outer, 1):
        yield (*tile, size, *inner)
    outer = [1] * axis
    for smaller in _sizes(n, size, efficient):
        size = smaller
        yield (*outer, size, *inner)
    for tile in _halvings(inner, _RUN // width):
        inner = tile
        yield (*outer, size, *inner)
    for smaller in _sizes(n, size, call.k):
        size = smaller
        yield (*outer, size, *inner)
    for tile in _halvings(inner, 1):
        yield (*outer, size, *tile)


def _filters(call: Call) -> bool:
    """Return whether the filter searches parts of sequences, which must be adjacent."""
    n, columns = call.x.shape[call.axis], math.prod(call.x.shape[call.axis + 1 :])
    return threads.most() != threads.REFERENCE and columns > 1 and n >= ELEMENTS_A_WINNER * call.k


def _even(n: int, least: int) -> int:
    """Return the size of about equal parts of n elements, of `least` elements or more."""
    return -(-n // max(1, n // max(1, least)))


def _sizes(n: int, size: int, least: int) -> Iterator[int]:
    """Yield smaller and smaller sizes of parts of n elements, down to about `least`."""
    while (smaller := _even(n, max(least, size // 2))) < size:
        yield smaller
        size = smaller


def _halvings(tile: list[int], least: int) -> Iterator[list[int]]:
    """Yield smaller and smaller tiles, down to `least` elements, by halving the first dimension that exceeds 1."""
    tile = list(tile)
    while math.prod(tile) > least and max(tile, default=1) > 1:
        first = next(place for place, size in enumerate(tile) if size > 1)
        tile[first] = -(-tile[first] // 2)
        yield list(tile)


def _needs(call: Call, filling: Filling, tile: Shape) -> int:
    """Return the bytes that `run` takes with such blocks of x."""
    axis = call.axis
    is_cut = tile[axis] < call.x.shape[axis]
    if is_cut and _filters(call):
        block = Form((tile[axis], math.prod(tile[axis + 1 :])), call.x.dtype)
        searching = search_bytes(block.shape[1], call.k, block.dtype)
        return 2 * block.nbytes + _working(call._replace(axis=0), filling, block) + searching
    front = call.k if is_cut else 0
    block = Form((*tile[:axis], tile[axis] + front, *tile[axis + 1 :]), call.x.dtype)
    merging = _MERGING * math.prod(call.winners(tile)) if front else 0
    return 2 * block.nbytes + _working(call, filling, block) + merging


def _planned(call: Call, block: Form) -> Prepared:
    """Return the plan for a block of x."""
    return plan(call._replace(x=block), (None, None), threads.most_of_thread())


def _working(call: Call, filling: Filling, block: Form) -> int:
    """Return the bytes that the work on a block takes, without the block itself."""
    chosen = _planned(call, block)
    rest = math.prod(chosen.results[0].shape) if filling else 0  # a bool each
    return sum(each.nbytes for each in chosen.results) + chosen.workspace_bytes + rest
