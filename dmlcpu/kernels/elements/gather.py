"""GATHER_ELEMENTS: each share of the output is copied from the places that the indices name."""

import numpy as np

from dmlcpu.kernels.elements.tiles import find_offsets, prefetch_tile, rows_at_once, rows_of, tile_of
from dmlcpu.kernels.elements.vectors import InRows, Rows, fetch_rows
from dmlcpu.kernels.elements.work import NOTHING, WORK, block_of
from dmlcpu.kernels.scatter_nd.places import Table, bounds_within, fetch_lines
from dmlcpu.kernels.walk import offset, share
from dmlcpu.runtime.intrinsics import Strided, as_words
from dmlcpu.runtime.jit import device
from dmlcpu.runtime.kernel import kernel
from dmlcpu.runtime.records import record_at


@kernel
def gather_lines(part, parts, x, indices, y, works, scratch):
    """Write a share of y; report in scratch[part] whether an index was out of range, whose element is then undefined.

    x, y: words of elements; indices: as uint32.
    """
    work, bad = record_at(works, 0, WORK), 0
    found = block_of(part, parts, scratch).offsets
    first, last = share(part, parts, work.groups * work.units)
    while first < last:
        tile = tile_of(first, last, x, work)
        count = rows_at_once(tile, work)
        for top in range(tile.first_row, tile.last_row, count):
            if work.prefetched != NOTHING:
                prefetch_tile(rows_of(tile, top + count, count), x, indices, y, work)
            bad |= gather_tile(rows_of(tile, top, count), x, indices, y, work, found)
        first += tile.units
    scratch[part] = bad


@device
def gather_tile(tile, x, indices, y, work, found):
    """Write the elements of a tile; return whether an index was out of range. found: room for an offset."""
    table, lines, values = work.table, work.indices, work.values
    o = table.start + offset(work.walk, table.strides, tile.group) + tile.first_column * table.column
    i = lines.start + offset(work.walk, lines.strides, tile.group) + tile.first_column * lines.column
    v = values.start + offset(work.walk, values.strides, tile.group) + tile.first_column * values.column
    width, bad = tile.last_column - tile.first_column, 0
    bounds = bounds_within(work.size, work.is_wide, work.is_signed)
    source, written = InRows(x, o, table.row, table.column), InRows(y, v, values.row, values.column)
    short = InRows(indices, i, lines.row, lines.column)
    long = InRows(as_words(indices, 0, np.int64), i // 2, lines.row // 2, lines.column // 2)
    row = tile.first_row
    while row < tile.last_row:
        rows = Rows(row, tile.last_row, width)
        if work.is_wide:
            row = fetch_rows(rows, long, bounds, written, source, work.step)
        else:
            row = fetch_rows(rows, short, bounds, written, source, work.step)
        if row < tile.last_row:
            bad |= gather_row(row, width, short, long, bounds, written, source, work, found)
            row += 1
    return bad


@device
def gather_row(row, width, short, long, bounds, written, source, work, found):
    """Write a row that `fetch_rows` leaves; return whether an index was out of range. short, long: the indices."""
    line = Table(source.array, source.first + row * source.row, source.step, work.step)
    new = Strided(written.array, written.first + row * written.row, written.step, width)
    place, done, bad = short.first + row * short.row, 0, 0
    while done < width:
        if work.is_wide:
            done = fetch_lines(Strided(long.array, place // 2, long.step, width), bounds, new, done, line)
        else:
            done = fetch_lines(Strided(short.array, place, short.step, width), bounds, new, done, line)
        if done < width:
            bad, at = 1, line.first + done * line.step
            find_offsets(short.array, place + done * short.step, 0, 1, at, 0, work, found)
            if found[0] >= 0:
                written.array[new.first + done * new.step] = source.array[found[0]]
            done += 1
    return bad
