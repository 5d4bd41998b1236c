"""quantize_linear and dequantize_linear on an array that is read, and a result that is written, a block at a time."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from dmlcpu.common.arguments import Array
from dmlcpu.common.block_reader import BLOCK, Buffer, as_source, cut_within, extent, read_blocks, regions_of, tile_of
from dmlcpu.common.regions import Estimate, Region, Sink, Tensor
from dmlcpu.common.stand_ins import bind
from dmlcpu.quantizers.arguments import Call
from dmlcpu.quantizers.execution import execute
from dmlcpu.quantizers.layout import Shape
from dmlcpu.quantizers.plan import FLOAT, workspace_of
from dmlcpu.runtime.compilation import can_compile

SOURCES = ("x",)


def estimate(function: Callable[..., Any], check: Callable[..., Call], /, **arguments: Any) -> Estimate:
    """Return the results and the memory of a call; refuse what the function refuses. Nothing is read or compiled.

    check: the function's checks. Each operator's blocks.py fills in both.
    """
    call = check(**bind(function, arguments, SOURCES))
    y = Tensor(call.x.shape, call.dtype)
    kernel = call.operator.removesuffix("_linear") if can_compile() else "reference"
    parameters = call.scale.nbytes + (0 if call.zero_point is None else call.zero_point.nbytes)
    memory = call.x.nbytes + y.nbytes + parameters + workspace_of()
    return Estimate({"y": y}, memory, lambda: min(map(partial(_needs, call), tiles_of(call.x))), kernel)


def run(
    function: Callable[..., Any],
    check: Callable[..., Call],
    arguments: dict[str, Any],
    sinks: dict[str, Sink],
    memory: int,
    stopping: Callable[[], bool] = lambda: False,
) -> None:
    """Write the result, block by block within `memory` bytes."""
    call = check(**bind(function, arguments, SOURCES))
    tile, out = cut_within(call.operator, memory, tiles_of(call.x), partial(_needs, call)), Buffer()
    regions = regions_of(call.x.shape, tile)
    for region, block in read_blocks(as_source(arguments["x"], call.x), regions, stopping):
        y = out.array(extent(region), call.dtype)
        execute(_of_block(call, region, block), y)
        sinks["y"].write(region, y)


def tiles_of(x: Array) -> Iterator[Shape]:
    """Yield the shapes of blocks: about BLOCK bytes, then smaller ones, down to one element."""
    most = max(1, BLOCK // x.itemsize)
    while most:
        yield tile_of(x.shape, most)
        most //= 2


def _of_block(call: Call, region: Region, block: Array) -> Call:
    """Return the call on a block of x. Its scales and zero points are gone before those of the next are there."""
    scale = _part(call, call.scale, region)
    zero_point = None if call.zero_point is None else _part(call, call.zero_point, region)
    return call._replace(x=block, scale=scale, zero_point=zero_point, axis=None, block_size=None)


def _part(call: Call, array: Array, region: Region) -> Array:
    """Return the scales or zero points of a region of x, whose blocks are all of one size."""
    for d, (where, n) in enumerate(zip(region, call.x.shape, strict=True)):
        size = array.shape[d]
        if size in (1, n):
            each: Any = slice(None) if size == 1 else where
        else:
            block = call.block_size if d == call.axis and call.block_size else n // size
            is_even = where.start % block == 0 and where.stop % block == 0
            each = slice(where.start // block, where.stop // block)
            each = each if is_even else np.arange(where.start, where.stop) // block
        array = array[(slice(None),) * d + (each,)]
    return array


def _needs(call: Call, tile: Shape) -> int:
    """Return the bytes of two blocks of x, of one as float32, of its result, and of its scales and zero points."""
    of_x, of_y, floats = (Tensor(tile, dtype).nbytes for dtype in (call.x.dtype, call.dtype, FLOAT))
    several = [each for each in (call.scale, call.zero_point) if each is not None and each.size > 1]
    parameters = sum(Tensor(tile, each.dtype).nbytes for each in several)
    return 2 * of_x + of_y + floats * (call.x.dtype == np.float64) + parameters + workspace_of()
