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
    """Write a share of y; report in scratch[part] whether an index was out of range, whose element is then not written.

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
    longs, bounds = as_words(indices, 0, np.int64), bounds_within(work.size, work.is_wide, work.is_signed)
    is_wide = work.is_wide
    source, written = InRows(x, o, table.row, table.column), InRows(y, v, values.row, values.column)
    row = tile.first_row
    while row < tile.last_row:
        rows = Rows(row, tile.last_row, width)
        if is_wide:
            long = InRows(longs, i // 2, lines.row // 2, lines.column // 2)
            row = fetch_rows(rows, long, bounds, written, source, work.step)
        else:
            short = InRows(indices, i, lines.row, lines.column)
            row = fetch_rows(rows, short, bounds, written, source, work.step)
        if row < tile.last_row:
            bad |= gather_row(row, width, x, o, indices, longs, i, bounds, y, v, work, found)
            row += 1
    return bad


@device
def gather_row(row, width, x, o, indices, longs, i, bounds, y, v, work, found):
    """Write a row that `fetch_rows` leaves. x[o], indices[i] and y[v] are the first elements of row 0."""
    table, lines, values = work.table, work.indices, work.values
    line = Table(x, o + row * table.row, table.column, work.step)
    new, place, done, bad = Strided(y, v + row * values.row, values.column, width), i + row * lines.row, 0, 0
    while done < width:
        if work.is_wide:
            places = Strided(longs, place // 2, lines.column // 2, width)
            done = fetch_lines(places, bounds, new, done, line)
        else:
            done = fetch_lines(Strided(indices, place, lines.column, width), bounds, new, done, line)
        if done < width:
            bad = 1
            find_offsets(indices, place + done * lines.column, 0, 1, line.first + done * line.step, 0, work, found)
            if found[0] >= 0:
                y[new.first + done * new.step] = x[found[0]]
            done += 1
    return bad
