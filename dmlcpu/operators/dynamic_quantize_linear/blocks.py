"""dynamic_quantize_linear that reads its array twice, a block at a time: for ranges, then for the result."""

from collections.abc import Callable
from typing import Any

import numpy as np

from dmlcpu.common.arguments import as_axis
from dmlcpu.common.block_reader import as_source, cut_within, extent, read_blocks, regions_of
from dmlcpu.common.prepared import Prepared
from dmlcpu.common.regions import Estimate, Sink, Source, Tensor, bind
from dmlcpu.operators.dynamic_quantize_linear.function import dynamic_quantize_linear
from dmlcpu.quantizers.dynamic import NAME, prepare
from dmlcpu.quantizers.plan import workspace_of
from dmlcpu.quantizers.ranges import Quantized
from dmlcpu.runtime.threads import most_of_thread

SOURCES = ("x",)


def estimate(**arguments: Any) -> Estimate:
    """Return the results and the memory of a call; refuse what the function refuses. Nothing is read or compiled."""
    x, quantized, prepared = _prepared(arguments)
    memory = (
        Tensor(x.shape, x.dtype).nbytes
        + sum(each.nbytes for each in prepared.results)
        + quantized.scale.size * 5
        + workspace_of()
    )
    results = dict(zip(("y", "scale", "zero_point"), prepared.results, strict=True))
    return Estimate(results, memory, lambda: min(map(quantized.needs, quantized.tiles())), prepared.kernel)


def _prepared(arguments: dict[str, Any]) -> tuple[Source, Quantized, Prepared]:
    """Return x, its quantized form, and the call in one piece."""
    given = bind(dynamic_quantize_linear, arguments)
    source, x = as_source(NAME, "x", given["x"])
    axis = given["axis"]
    prepared = prepare.__wrapped__(x, axis, given["out_dtype"], None, most_of_thread())
    axis = None if axis is None else as_axis(NAME, "axis", axis, "x", len(x.shape))
    return source, Quantized(NAME, source, axis, prepared.results[0].dtype), prepared


def run(
    arguments: dict[str, Any], sinks: dict[str, Sink], memory: int, stopping: Callable[[], bool] = lambda: False
) -> None:
    """Find the ranges block by block within `memory` bytes, and read all blocks again to quantize them."""
    source, quantized, _ = _prepared(arguments)
    quantized.find(memory, stopping)
    tile = cut_within(NAME, memory, quantized.tiles(), quantized.needs)
    for region, block in read_blocks(source, regions_of(source.shape, tile), stopping):
        y = np.empty(extent(region), quantized.dtype)
        quantized.quantize(region, block, y)
        sinks["y"].write(region, y)
    for name, each in (("scale", quantized.scale), ("zero_point", quantized.zero_point)):
        sinks[name].write(tuple(slice(0, n) for n in each.shape), each)
