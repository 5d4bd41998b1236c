"""How a share walks through its elements, and which places its indices name."""

from typing import NamedTuple

import numpy as np

from dmlcpu.kernels.scatter_nd.offsets import LANES, Indices, add_lines, load_index
from dmlcpu.kernels.scatter_nd.owned import FALSE_SHARING
from dmlcpu.kernels.scatter_nd.work import SKIPPED
from dmlcpu.kernels.walk import offset
from dmlcpu.runtime.intrinsics import line_of, prefetch_to_second
from dmlcpu.runtime.jit import device

# Rows of up to _SHORT words are prefetched _AHEAD rows before they are read, because processors do not read on where
# streams alternate, or have gaps. To read 64 indices and 64 updates of each row took one thread 14.8 ms for 77 MB, and
# 7.6 with prefetches; a half of each row 20 and 4.4 (Zen 4). If the table is beyond the caches, its elements in the
# next row are prefetched instead: to add 64 to each of 4,096 lines of 50,000 takes two threads 1.05 instead of 1.7 ms.
_AHEAD, _SHORT = 16, 1024


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
def prefetch_row(x, first, row, step, count, work):
    """Prefetch `count` elements, `step` words apart, of the row that is _AHEAD rows after x[first]."""
    if work.is_near and 0 < step <= 2 and count * step <= _SHORT:  # indices of 64 bits have two words
        for k in range(0, count * step, line_of(x)):
            prefetch_to_second(x, first + _AHEAD * row + k)


@device
def prefetch_places(table, indices, place, step, count, work):
    """Prefetch what `count` indices from indices[place] on name in a Table. One that is negative does no harm."""
    if work.is_near == 0 and count <= _SHORT:
        for k in range(count):
            index = np.int64(indices[place + k * step])
            prefetch_to_second(table.array, table.first + k * table.step + index * table.scale)


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
