"""quantize_linear and dequantize_linear in blocks: x is read, and the result is written, a block at a time."""

import math
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from dmlcpu.common.arguments import Array
from dmlcpu.common.block_reader import BLOCK, Buffer, as_source, cut_within, extent, read_blocks, regions_of, tile_of
from dmlcpu.common.forms import Form, Shape, form_of
from dmlcpu.common.parameters import check_scale
from dmlcpu.common.regions import Estimate, Region, Sink, Source, Tensor, bind
from dmlcpu.quantizers.arguments import FLOAT, Call, check, operands_of
from dmlcpu.quantizers.plan import plan, workspace_of
from dmlcpu.runtime.threads import most_of_thread, plan_for_now

SOURCES = ("x",)


def blocks_of(operator: Any) -> SimpleNamespace:
    """Return the functions of a blocks module, for a row of the table of operators."""
    function = operator.function
    return SimpleNamespace(SOURCES=SOURCES, estimate=partial(estimate, function), run=partial(run, function))


def estimate(function: Callable[..., Any], /, **arguments: Any) -> Estimate:
    """Return the results and the memory of a call; refuse what the function refuses. Nothing is read or compiled."""
    call, _, scale, zero_point = _checked(function, arguments)
    y = Tensor(call.x.shape, call.dtype)
    memory = call.x.nbytes + y.nbytes + _nbytes(scale) + _nbytes(zero_point) + workspace_of()
    kernel = plan(call, None, most_of_thread()).kernel
    return Estimate({"y": y}, memory, lambda: min(map(partial(_needs, call), tiles_of(call.x))), kernel)


def _nbytes(array: Array | None) -> int:
    return 0 if array is None else array.nbytes


def run(
    function: Callable[..., Any],
    arguments: dict[str, Any],
    sinks: dict[str, Sink],
    memory: int,
    stopping: Callable[[], bool] = lambda: False,
) -> None:
    """Write the result, block by block within `memory` bytes."""
    call, source, scale, zero_point = _checked(function, arguments)
    tile, out = cut_within(call.operator, memory, tiles_of(call.x), partial(_needs, call)), Buffer()
    for region, block in read_blocks(source, regions_of(call.x.shape, tile), stopping):
        y = out.array(extent(region), call.dtype)
        scales: Any = _part(call, scale, region)
        zeros = _part(call, zero_point, region)
        zero = None if zeros is None else Form(*form_of(zeros))
        known: dict[str, Any] = {"scale": Form(*form_of(scales)), "zero_point": zero, "is_checked": True}
        part = call._replace(x=Form(*form_of(block)), block_size=0, **known)
        plan_for_now(plan, (part, None)).run(block, scales, zeros, y)
        scales = zeros = None  # freed before the next block's are allocated
        sinks["y"].write(region, y)


def _checked(function: Callable[..., Any], arguments: dict[str, Any]) -> tuple[Call, Source, Array, Array | None]:
    """Return the checked call, x, and scale and zero point with x's dimensions."""
    operator, given = function.__name__, bind(function, arguments)
    source, x = as_source(operator, "x", given["x"])
    axis, block_size, out_dtype = given["axis"], given["block_size"], given["out_dtype"]
    scale, zero_point, *forms = operands_of(operator, x.dtype, given["scale"], given["zero_point"], out_dtype)
    call, converters = check(operator, (x, *forms), (axis, block_size, out_dtype))
    arrays = [source, scale, zero_point]
    for place, convert in converters:
        arrays[place] = convert(arrays[place])
    _, scale, zero_point = arrays
    if not call.is_checked:
        check_scale(operator, "scale", scale, given["scale"])
    zeros = zero_point.reshape(call.zero_point.shape) if call.zero_point else None
    return call, source, scale.reshape(call.scale.shape), zeros


def tiles_of(x: Form) -> Iterator[Shape]:
    """Yield the shapes of blocks: about BLOCK bytes, then smaller ones, down to one element."""
    most = max(1, BLOCK // x.dtype.itemsize)
    while most:
        yield tile_of(x.shape, most)
        most //= 2


def _part(call: Call, array: Array | None, region: Region) -> Array | None:
    """Return the scales or zero points of a region of x, whose blocks are all of one size."""
    if array is None:
        return None
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
    several = [each for each in (call.scale, call.zero_point) if each is not None and math.prod(each.shape) > 1]
    parameters = sum(Tensor(tile, each.dtype).nbytes for each in several)
    return 2 * of_x + of_y + (floats if call.x.dtype == np.float64 else 0) + parameters + workspace_of()
