"""scatter_elements that reads its arrays, and writes its result, some lines at a time."""

from collections.abc import Callable
from functools import partial
from typing import Any

from dmlcpu.common.block_reader import as_source, cut_within, read_blocks, regions_of
from dmlcpu.common.forms import Form, Shape
from dmlcpu.common.regions import Estimate, Sink, Source, bind
from dmlcpu.indexing.blocks import along, converted_bytes, part_of, refuse_out, tiles_of
from dmlcpu.indexing.reductions import word_bytes
from dmlcpu.indexing.scatters import as_updates
from dmlcpu.operators.scatter_elements.call import NAME, Call, check
from dmlcpu.operators.scatter_elements.function import scatter_elements
from dmlcpu.operators.scatter_elements.plan import plan
from dmlcpu.runtime.threads import most_of_thread

SOURCES = ("x", "indices", "updates")


def estimate(**arguments: Any) -> Estimate:
    """Return the results and the memory of a call; refuse what the function refuses. Only indices may be read."""
    call, (_, indices, _) = _checked(arguments)
    refuse_out(NAME, call, indices)
    prepared = plan(call, most_of_thread())
    read = call.indices.nbytes + converted_bytes(call.indices) + call.updates.nbytes
    return Estimate(
        {"y": prepared.results[0]},
        2 * call.x.nbytes + read + prepared.workspace_bytes,
        lambda: min(map(partial(_needs, call), tiles_of(call.x, call.axis))),
        prepared.kernel,
    )


def _checked(arguments: dict[str, Any]) -> tuple[Call, tuple[Source, Source, Source]]:
    """Return the checked call, and x, indices and updates."""
    given = bind(scatter_elements, arguments)
    x, x_form = as_source(NAME, "x", given["x"])
    indices, indices_form = as_source(NAME, "indices", given["indices"])
    updates, updates_form = as_source(NAME, "updates", as_updates(NAME, given["updates"], x_form.dtype))
    options = (given["axis"], given["reduction"], given["mode"], False, word_bytes(x_form.dtype))
    return check((x_form, indices_form, updates_form, None), options), (x, indices, updates)


def run(
    arguments: dict[str, Any], sinks: dict[str, Sink], memory: int, stopping: Callable[[], bool] = lambda: False
) -> None:
    """Write a copy of x with updates applied, by blocks of whole lines of x."""
    call, (x, indices, updates) = _checked(arguments)
    tile = cut_within(NAME, memory, tiles_of(call.x, call.axis), partial(_needs, call))
    refuse_out(NAME, call, indices, stopping, memory)
    mode = "drop" if call.mode == "raise" else call.mode  # no index is out of range now
    options: Any = {"axis": call.axis, "reduction": call.reduction, "mode": mode}
    for region, block in read_blocks(x, regions_of(call.x.shape, tile), stopping, copies=True):
        lines = along(region, call.axis, call.indices.shape)
        if block.size and all(each.start < each.stop for each in lines):
            scatter_elements(block, indices.read(lines), updates.read(lines), **options, out=block)
        sinks["y"].write(region, block)


def _needs(call: Call, tile: Shape) -> int:
    """Return the bytes of two blocks of x, and of the indices and updates of one."""
    x, lines = Form(tile, call.x.dtype), part_of(tile, call.axis, call.indices.shape)
    indices, updates = Form(lines, call.indices.dtype), Form(lines, x.dtype)
    part = call._replace(x=x, indices=indices, updates=updates, out=x, in_place=True)
    read = indices.nbytes + converted_bytes(indices) + updates.nbytes
    return 2 * x.nbytes + read + plan(part, most_of_thread()).workspace_bytes
