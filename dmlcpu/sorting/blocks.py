"""Sorts of an array that is read, and results that are written, a block of whole sequences at a time."""

from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

from dmlcpu.common.block_reader import BLOCK, as_source, cut_within, read_blocks, regions_of, tile_of
from dmlcpu.common.forms import Form, Shape
from dmlcpu.common.regions import Estimate, Sink, Source, bind
from dmlcpu.runtime.threads import most_of_thread
from dmlcpu.sorting.call import Call, check
from dmlcpu.sorting.plan import plan

SOURCES = ("x",)


def blocks_of(operator: Any) -> SimpleNamespace:
    """Return what a module of blocks has, for a row of the table of operators."""
    return SimpleNamespace(SOURCES=SOURCES, estimate=partial(estimate, operator), run=partial(run, operator))


def estimate(operator: Any, /, **arguments: Any) -> Estimate:
    """Return the results and the memory of a call; refuse what the function refuses. Nothing is read or compiled."""
    call, _ = _checked(operator, arguments)
    whole = plan(call, (None,) * len(operator.results), most_of_thread())
    results = dict(zip(operator.results, whole.results, strict=True))
    return Estimate(
        results,
        _needs(call, call.x.shape) - call.x.nbytes,
        lambda: min(map(partial(_needs, call), _tiles(call))),
        whole.kernel,
    )


def run(
    operator: Any,
    arguments: dict[str, Any],
    sinks: dict[str, Sink],
    memory: int,
    stopping: Callable[[], bool] = lambda: False,
) -> None:
    """Write the results, block by block within `memory` bytes."""
    call, source = _checked(operator, arguments)
    options = {name: value for name, value in bind(operator.function, arguments).items() if name not in ("x", "axis")}
    tile = cut_within(operator.name, memory, _tiles(call), partial(_needs, call))
    for region, block in read_blocks(source, regions_of(call.x.shape, tile), stopping):
        found = operator.function(block, call.axis, **options)
        for name, result in zip(operator.results, found if operator.result else (found,), strict=True):
            sinks[name].write(region, result)
        del found, result  # before there are those of the next block


def _checked(operator: Any, arguments: dict[str, Any]) -> tuple[Call, Source]:
    """Return the checked call, and x."""
    given = bind(operator.function, arguments)
    source, given["x"] = as_source(operator.name, "x", given["x"])
    (_, (form, *_), options), _ = operator.calls.request(*given.values())
    return check(operator.name, form, options), source


def _tiles(call: Call) -> Iterator[Shape]:
    """Yield the shapes of blocks: about BLOCK bytes, then smaller ones, down to one sequence."""
    shape, axis, n = call.x.shape, call.axis, call.x.shape[call.axis]
    most = max(1, BLOCK // max(1, n * call.x.dtype.itemsize))
    while most:
        others = tile_of((*shape[:axis], *shape[axis + 1 :]), most)
        yield (*others[:axis], n, *others[axis:])
        most //= 2


def _needs(call: Call, tile: Shape) -> int:
    """Return the bytes of two blocks of x, of the results of one, and of the workspace."""
    block = Form(tile, call.x.dtype)
    outputs = call.has_values + (call.index_dtype is not None)
    prepared = plan(call._replace(x=block), (None,) * outputs, most_of_thread())
    return 2 * block.nbytes + sum(each.nbytes for each in prepared.results) + prepared.workspace_bytes
