"""dynamic_quantize_linear on an array that is read twice, for the range and for the result, a block at a time."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from dmlcpu.common.arguments import Array
from dmlcpu.common.block_reader import as_source, cut_within, extent, read_blocks, regions_of
from dmlcpu.common.forms import Form
from dmlcpu.common.prepared import Prepared
from dmlcpu.common.regions import Estimate, Sink, Source, Tensor, bind
from dmlcpu.operators.dynamic_quantize_linear.function import check_limits, check_range, dynamic_quantize_linear
from dmlcpu.operators.dynamic_quantize_linear.plan import NAME, prepare
from dmlcpu.operators.table import OPERATORS
from dmlcpu.quantizers.arguments import FLOAT
from dmlcpu.quantizers.blocks import tiles_of
from dmlcpu.quantizers.plan import workspace_of
from dmlcpu.runtime.threads import most_of_thread

SOURCES = ("x",)


def estimate(**arguments: Any) -> Estimate:
    """Return the results and the memory of a call; refuse what the function refuses. Nothing is read or compiled."""
    _, x, prepared = _prepared(arguments)
    y, scale, zero_point = prepared.results
    memory = x.nbytes + sum(each.nbytes for each in prepared.results) + workspace_of()
    results = {"y": y, "scale": scale, "zero_point": zero_point}
    return Estimate(results, memory, lambda: min(map(partial(_needs, x, y.dtype), tiles_of(x))), prepared.kernel)


def _prepared(arguments: dict[str, Any]) -> tuple[Source, Form, Prepared]:
    """Return x, its form, and the call in one piece."""
    given = bind(dynamic_quantize_linear, arguments)
    source, x = as_source(NAME, "x", given["x"])
    return source, x, prepare.__wrapped__((x, None), (given["out_dtype"],), most_of_thread())


def run(
    arguments: dict[str, Any], sinks: dict[str, Sink], memory: int, stopping: Callable[[], bool] = lambda: False
) -> None:
    """Find the range block by block within `memory` bytes, and read all blocks again to quantize them."""
    source, x, prepared = _prepared(arguments)
    dtype = prepared.results[0].dtype
    tile = cut_within(NAME, memory, tiles_of(x), partial(_needs, x, dtype))
    limits = np.zeros(2, FLOAT)
    for region, block in read_blocks(source, regions_of(x.shape, tile), stopping):
        low, high = _limits(block, tuple(each.start for each in region))
        limits[:] = min(limits[0], low), max(limits[1], high)
    check_limits(limits[0], limits[1], NAME, "x")
    _, scale, zero_point = dynamic_quantize_linear(limits, out_dtype=dtype)
    quantize_linear = OPERATORS["quantize_linear"].function
    for region, block in read_blocks(source, regions_of(x.shape, tile), stopping):
        y = np.empty(extent(region), dtype)
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
            check_range(block, NAME, "x", start)
    return low, high


def _needs(x: Form, dtype: np.dtype[Any], tile: tuple[int, ...]) -> int:
    """Return the bytes of two blocks of x, one as float32, and of the result of one."""
    block, floats, y = (Tensor(tile, each).nbytes for each in (x.dtype, FLOAT, dtype))
    return 2 * block + floats + y + workspace_of()
