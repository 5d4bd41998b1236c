"""dynamic_quantize_linear on an array that is read twice, for the range and for the result, a block at a time."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from dmlcpu.common.arguments import Array
from dmlcpu.common.block_reader import as_source, cut_within, extent, read_blocks, regions_of
from dmlcpu.common.regions import Estimate, Sink, Tensor
from dmlcpu.common.stand_ins import bind
from dmlcpu.operators.dynamic_quantize_linear.function import (
    Call,
    check,
    check_limits,
    check_range,
    dynamic_quantize_linear,
)
from dmlcpu.operators.table import OPERATORS
from dmlcpu.quantizers.blocks import tiles_of
from dmlcpu.quantizers.plan import FLOAT, workspace_of
from dmlcpu.runtime.compilation import can_compile

SOURCES = ("x",)
_NAME = "dynamic_quantize_linear"


def estimate(**arguments: Any) -> Estimate:
    """Return the results and the memory of a call; refuse what the function refuses. Nothing is read or compiled."""
    call = check(**bind(dynamic_quantize_linear, arguments, SOURCES))
    shape, one = call.x.shape, Tensor((), call.dtype)
    results = {"y": Tensor(shape, call.dtype), "scale": Tensor((), FLOAT), "zero_point": one}
    return Estimate(
        results,
        call.x.nbytes + sum(each.nbytes for each in results.values()) + workspace_of(),
        lambda: min(map(partial(_needs, call), tiles_of(call.x))),
        "quantize" if can_compile() else "reference",
    )


def run(
    arguments: dict[str, Any], sinks: dict[str, Sink], memory: int, stopping: Callable[[], bool] = lambda: False
) -> None:
    """Find the range block by block within `memory` bytes, and read all blocks again to quantize them."""
    call = check(**bind(dynamic_quantize_linear, arguments, SOURCES))
    tile, source = cut_within(_NAME, memory, tiles_of(call.x), partial(_needs, call)), as_source(arguments["x"], call.x)
    limits = np.zeros(2, FLOAT)
    for region, block in read_blocks(source, regions_of(call.x.shape, tile), stopping):
        low, high = _limits(block, tuple(each.start for each in region))
        limits[:] = min(limits[0], low), max(limits[1], high)
    check_limits(limits[0], limits[1], _NAME, "x")
    _, scale, zero_point = dynamic_quantize_linear(limits, out_dtype=call.dtype)
    quantize_linear = OPERATORS["quantize_linear"].function
    for region, block in read_blocks(source, regions_of(call.x.shape, tile), stopping):
        y = np.empty(extent(region), call.dtype)
        quantize_linear(block, scale, zero_point, out=y)
        sinks["y"].write(region, y)
    sinks["scale"].write((), scale)
    sinks["zero_point"].write((), zero_point)


def _limits(block: Array, start: tuple[int, ...]) -> tuple[Any, Any]:
    """Return the least and the greatest element of a block, and refuse those that are not finite."""
    if block.size == 0:
        return FLOAT.type(0), FLOAT.type(0)
    with np.errstate(all="ignore"):
        values = block.astype(FLOAT, copy=False)
        low, high = values.min(), values.max()
        if not (np.isfinite(low) and np.isfinite(high)):
            check_range(block, _NAME, "x", start)
    return low, high


def _needs(call: Call, tile: tuple[int, ...]) -> int:
    """Return the bytes of two blocks of x, one as float32, and of the result of one."""
    x, floats, y = (Tensor(tile, dtype).nbytes for dtype in (call.x.dtype, FLOAT, call.dtype))
    return 2 * x + floats + y + workspace_of()
