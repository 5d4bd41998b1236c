"""scatter_nd on arrays that are read, and a result that is written, a block at a time."""

import math
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from dmlcpu.common.arguments import Array
from dmlcpu.common.block_reader import BLOCK, as_source, cut_within, read_blocks, regions_of, tile_of
from dmlcpu.common.forms import Form
from dmlcpu.common.regions import Estimate, Region, Sink, Source, bind
from dmlcpu.indexing.ranges import is_out
from dmlcpu.indexing.reductions import word_bytes
from dmlcpu.indexing.scatters import as_updates
from dmlcpu.operators.scatter_nd.call import NAME, Call, check, out_of_range
from dmlcpu.operators.scatter_nd.function import scatter_nd, update
from dmlcpu.operators.scatter_nd.plan import plan
from dmlcpu.runtime.threads import most_of_thread

SOURCES = ("x", "indices", "updates")

# Bytes of x in a block for each tuple, at least: reading and writing them takes longer than a look at the tuple.
_LEAST_BYTES_A_TUPLE = 64
# Bytes for each coordinate that is converted: counted from the start of x, then of a block, and two flags.
_CONVERTED = 3 * 8 + 2
# Bytes for each byte of indices that are only checked: two blocks, and flags of coordinates out of range.
_SCANNED = 6


class BlockSize(NamedTuple):
    """How large blocks are."""

    rows: int  # of x along its first dimension
    tuples: int


def estimate(**arguments: Any) -> Estimate:
    """Return the results and the memory of a call; refuse what the function refuses. Only indices may be read."""
    call, (_, indices, _) = _checked(arguments)
    if call.mode == "raise":
        _refuse_out(call, indices, lambda: False, BLOCK)
    converted = 8 * math.prod(call.indices.shape) if call.indices.dtype.itemsize < 4 else 0
    prepared = plan(call, most_of_thread())
    return Estimate(
        {"y": prepared.results[0]},
        2 * call.x.nbytes + call.indices.nbytes + converted + call.updates.nbytes + prepared.workspace_bytes,
        lambda: min(map(partial(_needs, call), _cuts(call))),
        prepared.kernel,
    )


def _checked(arguments: dict[str, Any]) -> tuple[Call, tuple[Source, Source, Source]]:
    """Return the checked call, and x, indices and updates."""
    given = bind(scatter_nd, arguments)
    x, x_form = as_source(NAME, "x", given["x"])
    indices, indices_form = as_source(NAME, "indices", given["indices"])
    updates, updates_form = as_source(NAME, "updates", as_updates(NAME, given["updates"], x_form.dtype))
    forms = (x_form, indices_form, updates_form, None)
    options = (given["reduction"], given["mode"], False, word_bytes(x_form.dtype))
    return check(forms, options), (x, indices, updates)


def run(
    arguments: dict[str, Any], sinks: dict[str, Sink], memory: int, stopping: Callable[[], bool] = lambda: False
) -> None:
    """Write a copy of x with updates applied, by blocks of x; each reads all updates, unless memory holds them."""
    call, (x, indices, updates) = _checked(arguments)
    cut = cut_within(NAME, memory, _cuts(call), partial(_needs, call))
    if call.mode == "raise":
        _refuse_out(call, indices, stopping, min(BLOCK, memory // _SCANNED))
    shape = call.x.shape
    tiles = (cut.rows, *shape[1:])[: len(shape)]
    kept: list[tuple[Array, Array]] | None = None
    for region, block in read_blocks(x, regions_of(shape, tiles), stopping, copies=True):
        if block.size == 0:
            continue
        if kept is None and cut.tuples == call.number and call.coordinates:  # the same for all blocks
            kept = list(_pieces(call, cut, indices, updates, region, stopping))
        _apply_all(call, kept or _pieces(call, cut, indices, updates, region, stopping), region, block)
        sinks["y"].write(region, block)


def _pieces(
    call: Call, cut: BlockSize, indices: Source, updates: Source, region: Region, stopping: Callable[[], bool]
) -> Iterator[tuple[Array, Array]]:
    """Yield indices and updates, block by block; without coordinates, only the part that a block of x needs."""
    outer, coordinates = call.indices.shape[:-1], call.coordinates
    if 0 in call.updates.shape:
        return

    def regions(*rest: slice) -> Iterator[Region]:
        return ((*each, *rest) for each in regions_of(outer, tile_of(outer, cut.tuples)))

    if not coordinates:
        for _, values in read_blocks(updates, regions(*region), stopping):
            yield np.empty((*values.shape[: len(outer)], 0), np.int64), values
        return
    whole = [slice(0, size) for size in call.x.shape[coordinates:]]
    pairs = zip(
        read_blocks(indices, regions(slice(0, coordinates)), stopping),
        read_blocks(updates, regions(*whole), stopping),
        strict=True,
    )
    for (_, places), (_, values) in pairs:
        yield (places if cut.rows == call.x.shape[0] else _places(call, places)), values


def _places(call: Call, indices: Array) -> Array:
    """Return coordinates counted from the start, and -1 as the first of what is dropped."""
    shape = call.x.shape[: call.coordinates]
    sizes, bad = np.array(shape, np.int64), is_out(indices, shape)
    places = indices.astype(np.int64)
    if call.mode != "clip":
        np.add(places, sizes, out=places, where=places < 0)
        places[bad.any(-1), 0] = -1
        return places
    if indices.dtype.kind == "u":
        np.copyto(places, sizes - 1, where=bad)
    np.add(places, sizes, out=places, where=places < 0)
    return np.clip(places, 0, sizes - 1, out=places)


def _apply_all(call: Call, pieces: Iterable[tuple[Array, Array]], region: Region, block: Array) -> None:
    """Apply updates to a block of x, in place. pieces: indices, or if x is cut what `_places` makes of them."""
    is_cut = call.coordinates > 0 and block.shape[0] < call.x.shape[0]
    for places, values in pieces:
        if is_cut:
            # Indices before the block become huge numbers, and are dropped like those after it.
            places = places.copy()
            places[..., 0] -= region[0].start
            places = places.view(np.uint64)
        update(block, places, values, call.reduction, "drop" if is_cut else call.mode)


def _cuts(call: Call) -> Iterator[BlockSize]:
    """Yield cuts from the fastest to the one that needs least memory.

    First, updates are kept in memory, and blocks of x are large compared with the work on all tuples. Then both are
    cut, x as little as possible, because each of its blocks reads all updates again.
    """
    rows, count = _rows(call), call.number
    row = max(1, call.x.nbytes // max(1, rows))
    if call.coordinates:
        size = min(rows, -(-max(BLOCK, _LEAST_BYTES_A_TUPLE * count) // row))
        yield BlockSize(size, count)
        while size > 1 and size * row > BLOCK:
            size = size * 3 // 4
            yield BlockSize(size, count)
    each = max(1, call.indices.dtype.itemsize * call.coordinates + call.slice_bytes)
    tuples = max(1, min(count, BLOCK // each))
    size = rows if call.coordinates else min(rows, -(-BLOCK // row))
    yield BlockSize(size, tuples)
    while size > 1 or tuples > 1:
        # Blocks of x stay the larger ones: the fewer there are, the less often updates are read.
        if size > 1 and (size * row >= 4 * tuples * each or tuples == 1):
            size = size * 3 // 4
        else:
            tuples = max(1, tuples // 2)
        yield BlockSize(size, tuples)


def _needs(call: Call, cut: BlockSize) -> int:
    """Return the bytes that `run` takes with such blocks."""
    rows = _rows(call)
    row, coordinates = call.x.nbytes // max(1, rows), call.coordinates
    slices = call.slice_bytes if coordinates else cut.rows * row
    index: int = coordinates * call.indices.dtype.itemsize
    converted = coordinates * _CONVERTED if cut.rows < rows or call.indices.dtype.itemsize < 4 else 0
    blocks = (1 if cut.rows >= rows else 2) * cut.rows * row
    pieces = cut.tuples * ((1 if cut.tuples >= call.number else 2) * (index + slices) + converted)
    x = Form((cut.rows, *call.x.shape[1:])[: len(call.x.shape)], call.x.dtype)
    indices = Form((cut.tuples, coordinates), call.indices.dtype)
    updates = Form((cut.tuples, *x.shape[coordinates:]), x.dtype)
    part = call._replace(x=x, indices=indices, updates=updates, out=x)
    return blocks + pieces + (plan(part, most_of_thread()).workspace_bytes if x.nbytes else 0)


def _rows(call: Call) -> int:
    """Return the size of x's first dimension."""
    return call.x.shape[0] if call.x.shape else 1


def _refuse_out(call: Call, indices: Source, stopping: Callable[[], bool], most: int) -> None:
    """Refuse the first coordinate that is out of range, as the function does; most: bytes of a block."""
    start, sizes = 0, call.x.shape[: indices.shape[-1]]
    outer = tile_of(indices.shape[:-1], most // max(1, call.indices.dtype.itemsize * len(sizes)))
    for _, block in read_blocks(indices, regions_of(indices.shape, (*outer, max(1, len(sizes)))), stopping):
        bad = is_out(block, sizes)
        if bad.any():
            place = int(bad.argmax())
            raise out_of_range(block.flat[place], start + place, (indices.shape, indices.dtype), call.x.shape)
        start += block.size
