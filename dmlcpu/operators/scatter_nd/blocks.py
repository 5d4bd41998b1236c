"""scatter_nd on arrays that are read, and a result that is written, a block at a time."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from dmlcpu.common.arguments import Array
from dmlcpu.common.block_reader import BLOCK, as_source, cut_within, read_blocks, regions_of, tile_of
from dmlcpu.common.regions import Estimate, Region, Sink, Source, Tensor
from dmlcpu.common.stand_ins import bind, strides_of
from dmlcpu.operators.scatter_nd.function import Call, check, execute, is_out, out_of_range, scatter_nd
from dmlcpu.operators.scatter_nd.layout import element_type
from dmlcpu.operators.scatter_nd.plan import BY_KERNEL, Plan, plan
from dmlcpu.runtime import threads
from dmlcpu.runtime.compilation import can_compile
from dmlcpu.runtime.records import CELL

SOURCES = ("x", "indices", "updates")

# Bytes of x in a block for each tuple, at least: reading and writing them takes longer than a look at the tuple.
_LEAST_BYTES_A_TUPLE = 64
# Bytes for each coordinate that is converted: counted from the start of x, then of a block, and two flags.
_CONVERTED = 3 * 8 + 2
# Bytes for each byte of indices that are only checked: two blocks, and flags of coordinates out of range.
_SCANNED = 6


class Cut(NamedTuple):
    """How large blocks are."""

    rows: int  # of x along its first dimension
    tuples: int


def estimate(**arguments: Any) -> Estimate:
    """Return the results and the memory of a call; refuse what the function refuses. Only indices may be read."""
    call = check(**bind(scatter_nd, arguments, SOURCES))
    if call.mode == "raise":
        _refuse_out(call, as_source(arguments["indices"], call.indices), lambda: False, BLOCK)
    converted = 8 * call.indices.size if call.indices.itemsize < 4 else 0
    chosen = _plan(call) if can_compile() else None
    workspace = CELL * chosen.workspace.cells if chosen else 0
    name = "reference" if chosen is None else chosen.kernel
    return Estimate(
        {"y": Tensor(call.x.shape, call.x.dtype)},
        2 * call.x.nbytes + call.indices.nbytes + converted + call.updates.nbytes + workspace,
        lambda: min(map(partial(_needs, call), _cuts(call))),
        name,
    )


def run(
    arguments: dict[str, Any], sinks: dict[str, Sink], memory: int, stopping: Callable[[], bool] = lambda: False
) -> None:
    """Write a copy of x with updates applied, by blocks of x; each reads all updates, unless memory holds them."""
    call = check(**bind(scatter_nd, arguments, SOURCES))
    cut = cut_within("scatter_nd", memory, _cuts(call), partial(_needs, call))
    x, indices, updates = (as_source(arguments[name], getattr(call, name)) for name in SOURCES)
    if call.mode == "raise":
        _refuse_out(call, indices, stopping, min(BLOCK, memory // _SCANNED))
    tiles = (cut.rows, *call.x.shape[1:])[: call.x.ndim]
    kept: list[tuple[Array, Array]] | None = None
    for region, block in read_blocks(x, regions_of(call.x.shape, tiles), stopping, copies=True):
        if block.size == 0:
            continue
        if kept is None and cut.tuples == call.number and call.coordinates:  # the same for all blocks
            kept = list(_pieces(call, cut, indices, updates, region, stopping))
        _apply_all(call, kept or _pieces(call, cut, indices, updates, region, stopping), region, block)
        sinks["y"].write(region, block)


def _pieces(
    call: Call, cut: Cut, indices: Source, updates: Source, region: Region, stopping: Callable[[], bool]
) -> Iterator[tuple[Array, Array]]:
    """Yield indices and updates, block by block; without coordinates, only the part that a block of x needs."""
    outer, coordinates = call.indices.shape[:-1], call.coordinates
    if call.updates.size == 0:
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
            # Indices before the block become huge numbers, and are dropped like those behind it.
            places = places.copy()
            places[..., 0] -= region[0].start
            places = places.view(np.uint64)
        execute(Call(block, places, values, call.reduction, "drop" if is_cut else call.mode), block)


def _cuts(call: Call) -> Iterator[Cut]:
    """Yield cuts from the fastest to the one that needs least memory.

    First, updates are kept in memory, and blocks of x are large beside the work on all tuples. Then both are cut, x as
    little as possible: for each of its blocks all updates are read again.
    """
    rows, count = call.x.shape[0] if call.x.ndim else 1, call.number
    row = max(1, call.x.nbytes // max(1, rows))
    if call.coordinates:
        size = min(rows, -(-max(BLOCK, _LEAST_BYTES_A_TUPLE * count) // row))
        yield Cut(size, count)
        while size > 1 and size * row > BLOCK:
            size = size * 3 // 4
            yield Cut(size, count)
    each = max(1, call.indices.itemsize * call.coordinates + call.slice_bytes)
    tuples = max(1, min(count, BLOCK // each))
    size = rows if call.coordinates else min(rows, -(-BLOCK // row))
    yield Cut(size, tuples)
    while size > 1 or tuples > 1:
        # Blocks of x stay the larger ones: the fewer there are, the less often updates are read.
        if size > 1 and (size * row >= 4 * tuples * each or tuples == 1):
            size = size * 3 // 4
        else:
            tuples = max(1, tuples // 2)
        yield Cut(size, tuples)


def _needs(call: Call, cut: Cut) -> int:
    """Return the bytes that `run` takes with such blocks."""
    rows = call.x.shape[0] if call.x.ndim else 1
    row, coordinates = call.x.nbytes // max(1, rows), call.coordinates
    slices = call.slice_bytes if coordinates else cut.rows * row
    index = coordinates * call.indices.itemsize
    converted = coordinates * _CONVERTED if cut.rows < rows or call.indices.itemsize < 4 else 0
    blocks = (1 if cut.rows >= rows else 2) * cut.rows * row
    pieces = cut.tuples * ((1 if cut.tuples >= call.number else 2) * (index + slices) + converted)
    x = np.broadcast_to(call.x[:1], (cut.rows, *call.x.shape[1:])) if call.x.ndim else call.x
    indices = np.broadcast_to(np.zeros((), call.indices.dtype), (cut.tuples, coordinates))
    updates = np.broadcast_to(np.zeros((), call.x.dtype), (cut.tuples, *x.shape[coordinates:]))
    part = call._replace(x=x, indices=indices, updates=updates)
    workspace = CELL * _plan(part).workspace.cells if can_compile() and x.size else 0
    return blocks + pieces + workspace


def _plan(call: Call) -> Plan:
    x, indices, updates, reduction, mode = call
    element = element_type(x, updates, x, reduction)
    strides = (strides_of(x), strides_of(indices), strides_of(updates))
    index_type = indices.dtype if indices.itemsize >= 4 else np.dtype(np.int64)
    budget = threads.most_of_thread()
    return plan(x.shape, x.dtype, element, indices.shape, index_type, strides, reduction, mode, BY_KERNEL, budget)


def _refuse_out(call: Call, indices: Source, stopping: Callable[[], bool], most: int) -> None:
    """Refuse the first coordinate that is out of range, as the function does; most: bytes of a block."""
    start, sizes = 0, call.x.shape[: indices.shape[-1]]
    outer = tile_of(indices.shape[:-1], most // max(1, call.indices.itemsize * len(sizes)))
    for _, block in read_blocks(indices, regions_of(indices.shape, (*outer, max(1, len(sizes)))), stopping):
        bad = is_out(block, sizes)
        if bad.any():
            place = int(bad.argmax())
            raise out_of_range(block.flat[place], start + place, (indices.shape, indices.dtype), call.x.shape)
        start += block.size
