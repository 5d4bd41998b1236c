"""gather_elements that reads its arrays, and writes its result, some lines at a time."""

from collections.abc import Callable
from functools import partial
from typing import Any

from dmlcpu.common.block_reader import Buffer, as_source, cut_within, extent, read_blocks, regions_of
from dmlcpu.common.forms import Form, Shape
from dmlcpu.common.regions import Estimate, Sink, Source, bind
from dmlcpu.indexing.blocks import along, converted_bytes, part_of, refuse_out, tiles_of
from dmlcpu.indexing.reductions import word_bytes
from dmlcpu.operators.gather_elements.function import gather_elements
from dmlcpu.operators.gather_elements.plan import NAME, Call, check, plan
from dmlcpu.runtime.threads import most_of_thread

SOURCES = ("x", "indices")


def estimate(**arguments: Any) -> Estimate:
    """Return the results and the memory of a call; refuse what the function refuses. Only indices may be read."""
    call, (_, indices) = _checked(arguments)
    refuse_out(NAME, call, indices)
    prepared = plan(call, most_of_thread())
    return Estimate(
        {"y": prepared.results[0]},
        call.x.nbytes + call.indices.nbytes + converted_bytes(call.indices) + call.y.nbytes + prepared.workspace_bytes,
        lambda: min(map(partial(_needs, call), tiles_of(call.indices, call.axis))),
        prepared.kernel,
    )


def _checked(arguments: dict[str, Any]) -> tuple[Call, tuple[Source, Source]]:
    """Return the checked call, x and the indices."""
    given = bind(gather_elements, arguments)
    x, x_form = as_source(NAME, "x", given["x"])
    indices, indices_form = as_source(NAME, "indices", given["indices"])
    options = (given["axis"], given["mode"], word_bytes(x_form.dtype))
    return check((x_form, indices_form, None), options), (x, indices)


def run(
    arguments: dict[str, Any], sinks: dict[str, Sink], memory: int, stopping: Callable[[], bool] = lambda: False
) -> None:
    """Write the result by blocks of whole lines."""
    call, (x, indices) = _checked(arguments)
    tile = cut_within(NAME, memory, tiles_of(call.indices, call.axis), partial(_needs, call))
    refuse_out(NAME, call, indices, stopping, memory)
    options: Any = {"axis": call.axis, "mode": "clip"}  # no index is out of range now
    out = Buffer()
    for region, block in read_blocks(indices, regions_of(call.indices.shape, tile), stopping):
        y = out.array(extent(region), call.x.dtype)
        if block.size:
            gather_elements(x.read(along(region, call.axis, call.x.shape)), block, **options, out=y)
        sinks["y"].write(region, y)


def _needs(call: Call, tile: Shape) -> int:
    """Return the bytes of two blocks of indices, and of the lines of x and of the result for one."""
    x, indices = Form(part_of(tile, call.axis, call.x.shape), call.x.dtype), Form(tile, call.indices.dtype)
    y = Form(tile, call.x.dtype)
    workspace = plan(call._replace(x=x, indices=indices, y=y), most_of_thread()).workspace_bytes
    return x.nbytes + 2 * indices.nbytes + converted_bytes(indices) + y.nbytes + workspace
