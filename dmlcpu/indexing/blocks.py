"""Blocks of whole lines for gather_elements and scatter_elements, and index checks before anything is written."""

from collections.abc import Callable, Iterator
from typing import Any

from dmlcpu.common.block_reader import BLOCK, read_blocks, regions_of, tile_of
from dmlcpu.common.forms import Form, Shape
from dmlcpu.common.regions import Region, Source
from dmlcpu.indexing.elements import out_of_range
from dmlcpu.indexing.lines import index_form
from dmlcpu.indexing.ranges import is_out

# Bytes for each byte of indices that are only checked: two blocks, and flags for those out of range.
_SCANNED = 6


def tiles_of(form: Form, axis: int) -> Iterator[Shape]:
    """Yield the shapes of blocks of whole lines: about BLOCK bytes, then smaller ones, down to a line."""
    shape = form.shape
    most, length = max(1, BLOCK // form.dtype.itemsize), max(1, shape[axis])
    others = (*shape[:axis], *shape[axis + 1 :])
    while True:
        tile = tile_of(others, max(1, most // length))
        yield (*tile[:axis], shape[axis], *tile[axis:])
        if most <= length:
            return
        most //= 2


def along(region: Region, axis: int, shape: Shape) -> Region:
    """Return the region of an array of another shape that corresponds to a region; along the axis it is whole."""
    return tuple(
        slice(0, n) if d == axis else slice(min(each.start, n), min(each.stop, n))
        for d, (each, n) in enumerate(zip(region, shape, strict=True))
    )


def part_of(tile: Shape, axis: int, shape: Shape) -> Shape:
    """Return the shape of the largest such part for a tile."""
    return tuple(n if d == axis else min(size, n) for d, (size, n) in enumerate(zip(tile, shape, strict=True)))


def converted_bytes(indices: Form) -> int:
    """Return the bytes of a copy of indices that kernels do not read directly."""
    return 0 if index_form(indices) is indices else index_form(indices).nbytes


def refuse_out(
    operator: str, call: Any, indices: Source, stopping: Callable[[], bool] = lambda: False, memory: int | None = None
) -> None:
    """Refuse the first index that is out of range, as the function does, if the mode is "raise"."""
    if call.mode != "raise":
        return
    axis, size = call.axis, call.x.shape[call.axis]
    most = BLOCK if memory is None else min(BLOCK, memory // _SCANNED)
    tile = tile_of(indices.shape, max(1, most // indices.dtype.itemsize))
    for region, block in read_blocks(indices, regions_of(indices.shape, tile), stopping):
        bad = is_out(block, (size,))
        if bad.any():
            place = [int(each[0]) for each in bad.nonzero()]
            where = tuple(each.start + at for each, at in zip(region, place, strict=True))
            raise out_of_range(operator, where, block[tuple(place)], indices.dtype, axis, size)
