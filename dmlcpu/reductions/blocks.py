"""argmax and argmin in blocks: x is read, and positions are written, a block at a time; large sets are cut."""

import itertools
import math
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from dmlcpu.common.arguments import Array
from dmlcpu.common.block_reader import BLOCK, as_source, cut_within, extent, read_blocks, regions_of, tile_of
from dmlcpu.common.forms import Form, Shape
from dmlcpu.common.prepared import Prepared
from dmlcpu.common.regions import Estimate, Region, Sink, Source, bind
from dmlcpu.reductions.arguments import Call, check
from dmlcpu.reductions.call import request
from dmlcpu.reductions.plan import plan
from dmlcpu.runtime.threads import most_of_thread

SOURCES = ("x",)


def blocks_of(operator: Any) -> SimpleNamespace:
    """Return the functions of a blocks module, for a row of the table of operators."""
    function = operator.function
    return SimpleNamespace(SOURCES=SOURCES, estimate=partial(estimate, function), run=partial(run, function))


def estimate(function: Callable[..., Any], /, **arguments: Any) -> Estimate:
    """Return the results and the memory of a call; refuse what the function refuses. Nothing is read or compiled."""
    _, call = _checked(function, arguments)
    whole = _planned(call)
    memory = call.x.nbytes + call.y.nbytes + whole.workspace_bytes
    return Estimate({"y": call.y}, memory, lambda: min(map(partial(_needs, call), _tiles(call))), whole.kernel)


def run(
    function: Callable[..., Any],
    arguments: dict[str, Any],
    sinks: dict[str, Sink],
    memory: int,
    stopping: Callable[[], bool] = lambda: False,
) -> None:
    """Write the positions, block by block within `memory` bytes."""
    source, call = _checked(function, arguments)
    tile = cut_within(call.operator, memory, _tiles(call), partial(_needs, call))
    options = {"axis": call.axes or None, "select_last": call.select_last, "keepdims": True}
    best: Any = None  # elements and positions of the best so far of the current sets
    for region, block in read_blocks(source, _regions(call, tile), stopping):
        first, size = _place(call, region), math.prod([extent(region)[d] for d in call.axes])
        places = function(block, **options)
        if size < call.size:
            found = _elements(call, np.asarray(block), places), places + first
            best = found if first == 0 else _better(function, call, best, found)
            places = best[1]
        if first + size == call.size:
            where = _where(call, region)
            sinks["y"].write(where, places.reshape(extent(where)).astype(call.dtype, copy=False))


def _checked(function: Callable[..., Any], arguments: dict[str, Any]) -> tuple[Source, Call]:
    """Return x and the checked call."""
    operator, given = function.__name__, bind(function, arguments)
    source, given["x"] = as_source(operator, "x", given["x"])
    (_, x, _, *options), _ = request(operator, **given, out=None)
    return source, check(operator, Form(*x), *options)


def _planned(call: Call) -> Prepared:
    return plan(call, None, most_of_thread())


def _tiles(call: Call) -> Iterator[Shape]:
    """Yield the shapes of blocks: about BLOCK bytes, then smaller ones, down to one element."""
    most = max(1, BLOCK // call.x.dtype.itemsize)
    while most:
        yield tile_of(call.x.shape, most)
        most //= 2


def _regions(call: Call, tile: Shape) -> Iterator[Region]:
    """Yield regions of a tile's size: those of some sets in element order, then those of the next sets."""
    kept, axes = (
        list(regions_of(*[tuple([sizes[d] for d in dimensions]) for sizes in (call.x.shape, tile)]))
        for dimensions in (call.kept, call.axes)
    )
    for some, others in itertools.product(kept, axes):
        each = dict(zip((*call.kept, *call.axes), (*some, *others), strict=True))
        yield tuple([each[d] for d in range(len(each))])


def _where(call: Call, region: Region) -> Region:
    """Return the region of the results of a region's sets."""
    if call.keepdims:
        return tuple([slice(0, 1) if d in call.axes else each for d, each in enumerate(region)])
    return tuple([region[d] for d in call.kept])


def _place(call: Call, region: Region) -> int:
    """Return the position of a region's first element in its set."""
    place = 0
    for d in call.axes:
        place = place * call.x.shape[d] + region[d].start
    return place


def _elements(call: Call, block: Array, places: Array) -> Array:
    """Return the elements of a block at given positions of its sets."""
    indices: list[Any] = list(np.ogrid[tuple(map(slice, places.shape))])
    for d, own in zip(call.axes, np.unravel_index(places, [block.shape[d] for d in call.axes]), strict=True):
        indices[d] = own
    found: Array = block[tuple(indices)]
    return found


def _better(
    function: Callable[..., Any], call: Call, before: tuple[Array, Array], found: tuple[Array, Array]
) -> tuple[Array, Array]:
    """Return the better of two winners of each set, as elements and positions."""
    elements = np.stack([before[0], found[0]])
    is_found = function(elements, axis=0, select_last=call.select_last) == 1
    return np.where(is_found, found[0], before[0]), np.where(is_found, found[1], before[1])


def _needs(call: Call, tile: Shape) -> int:
    """Return the bytes of two blocks of x, of the workspace, and of the temporary arrays for a block's sets."""
    block = call._replace(x=Form(tile, call.x.dtype), keepdims=True)
    sets = math.prod(block.y.shape)
    if block.size == call.size:
        each = np.dtype(np.int64).itemsize + call.dtype.itemsize
    else:  # five arrays of elements, five of positions, an index for each axis, and a flag
        each = 5 * (call.x.dtype.itemsize + 8) + 8 * len(call.axes) + 1
    return 2 * block.x.nbytes + _planned(block).workspace_bytes + sets * each
