"""GATHER_ELEMENTS: a share of the output is copied from where the indices point to."""

import numpy as np

from dmlcpu.kernels.elements.tiles import find_offsets, tile_of
from dmlcpu.kernels.elements.work import BLOCK, WORK, block_of
from dmlcpu.kernels.walk import offset, share
from dmlcpu.runtime.intrinsics import prefetch
from dmlcpu.runtime.jit import device
from dmlcpu.runtime.kernel import kernel
from dmlcpu.runtime.records import record_at


@kernel
def gather_lines(part, parts, x, indices, y, works, scratch):
    """Write a share of y; report in scratch[part] whether an index was out of range: its element is left as it is.

    x, y: words of elements; indices: as uint32.
    """
    work = record_at(works, 0, WORK)
    block, bad = block_of(part, parts, scratch), 0
    first, last = share(part, parts, work.groups * work.units)
    while first < last:
        tile = tile_of(first, last, x, work)
        bad |= gather_tile(tile, x, indices, y, work, block)
        first += tile.units
    scratch[part] = bad


@device
def gather_tile(tile, x, indices, y, work, block):
    """Write the elements of a tile; return whether an index was out of range."""
    table, lines, values, offsets, found = work.table, work.indices, work.values, block.offsets, 0
    o = table.start + offset(work.walk, table.strides, tile.group)
    i = lines.start + offset(work.walk, lines.strides, tile.group)
    v = values.start + offset(work.walk, values.strides, tile.group)
    for row in range(tile.first_row, tile.last_row):
        for column in range(tile.first_column, tile.last_column, BLOCK):
            count = min(BLOCK, tile.last_column - column)
            place = o + row * table.row + column * table.column
            first = i + row * lines.row + column * lines.column
            bad = find_offsets(indices, first, lines.column, count, place, table.column, work, offsets)
            found |= bad
            for j in range(count if work.is_far else 0):
                prefetch(x, offsets[j])
            copy_elements(x, offsets, count, bad, y, v + row * values.row + column * values.column, values.column)
    return found


@device
def copy_elements(x, offsets, count, has_skipped, y, first, step):
    """Write x at the first offsets to places of y that are `step` apart."""
    if has_skipped:
        for k in range(count):
            if offsets[k] >= 0:
                y[first + k * step] = x[offsets[k]]
        return
    for k in range(count):
        y[np.uintp(first + k * step)] = x[np.uintp(offsets[np.uintp(k)])]
