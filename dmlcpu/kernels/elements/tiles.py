"""How a share walks through its elements, and which places its indices name."""

from typing import NamedTuple

import numpy as np

from dmlcpu.kernels.elements.work import NEXT_ROWS, NOTHING
from dmlcpu.kernels.scatter_nd.offsets import LANES, Indices, add_lines, load_index
from dmlcpu.kernels.scatter_nd.owned import FALSE_SHARING
from dmlcpu.kernels.scatter_nd.work import SKIPPED
from dmlcpu.kernels.walk import offset
from dmlcpu.runtime.intrinsics import line_of, prefetch_element, prefetch_to_second
from dmlcpu.runtime.jit import device

_AHEAD = 16  # rows that are prefetched while as many are read


class Tile(NamedTuple):
    """Rows and columns of one group, and how many of a share's units they contain."""

    group: int
    first_row: int
    last_row: int
    first_column: int
    last_column: int
    units: int


@device
def tile_of(first, last, table, work):
    """Return the tile at the start of a share's units [first, last), which ends with its group. table: its words."""
    group = first // work.units
    begin = first - group * work.units
    end = min(begin + last - first, work.units)
    count = work.rows if work.cuts_rows else work.columns
    skew = 0
    if work.is_aligned:
        place = table.ctypes.data // table.itemsize + work.table.start
        place += offset(work.walk, work.table.strides, group)
        skew = place % (FALSE_SHARING // table.itemsize)
    start = min(max(begin * work.unit - skew, 0), count)
    stop = count if end == work.units else min(max(end * work.unit - skew, 0), count)
    if work.cuts_rows:
        return Tile(group, start, stop, 0, work.columns, end - begin)
    return Tile(group, 0, work.rows, start, stop, end - begin)


@device
def rows_at_once(tile, work):
    """Return how many rows are read before later ones are prefetched."""
    return max(tile.last_row - tile.first_row, 1) if work.prefetched == NOTHING else _AHEAD


@device
def rows_of(tile, first, count):
    """Return `count` rows of a tile, or fewer at its end."""
    last = min(first + count, tile.last_row)
    return Tile(tile.group, first, last, tile.first_column, tile.last_column, tile.units)


@device
def prefetch_tile(tile, array, indices, values, work):
    """Prefetch the rows of a tile, or the elements of the table that their indices name. array: the table's words."""
    table, lines, new, width = work.table, work.indices, work.values, tile.last_column - tile.first_column
    o = table.start + offset(work.walk, table.strides, tile.group) + tile.first_column * table.column
    i = lines.start + offset(work.walk, lines.strides, tile.group) + tile.first_column * lines.column
    v = new.start + offset(work.walk, new.strides, tile.group) + tile.first_column * new.column
    for row in range(tile.first_row, tile.last_row):
        place = i + row * lines.row
        if work.prefetched == NEXT_ROWS:
            for k in range(0, width * lines.column, line_of(indices)):
                prefetch_to_second(indices, place + k)
            for k in range(0, width * new.column, line_of(values)):
                prefetch_to_second(values, v + row * new.row + k)
        else:
            for k in range(width):
                index = np.int64(np.int32(indices[place + k * lines.column]))  # the low half of a wide one
                index = index + work.size if index < 0 else index
                prefetch_element(array, o + row * table.row + k * table.column + index * work.step)


@device
def find_offsets(indices, first, step, count, place, place_step, work, offsets):
    """Write where in the table `count` elements lie; the lines of consecutive indices begin `place_step` apart.

    indices: as uint32, from indices[first] on, `step` words apart. Return whether one is out of range; its offset is
    clipped or SKIPPED.
    """
    size, scale, is_wide, is_signed = work.size, work.step, work.is_wide, work.is_signed
    whole, bad = count // LANES * LANES, 0
    for k in range(whole):
        offsets[k] = place + k * place_step
    if whole > 0:
        bad = add_lines(Indices(indices, first, step, is_wide, is_signed, size), scale, offsets, whole)
    for k in range(0 if bad else whole, count):
        index = load_index(indices, first + k * step, is_wide, is_signed)
        if index < 0:  # counts from the end; a uint64 above 2**63 - 1 is too large, not negative
            index = index + size if is_signed else size
        is_out = index < 0 or index >= size
        bad |= is_out
        offset = place + k * place_step + min(max(index, 0), size - 1) * scale
        offsets[k] = SKIPPED if is_out and work.clips == 0 else offset
    return bad
