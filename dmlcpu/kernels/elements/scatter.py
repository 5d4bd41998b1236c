"""The writing pass of SCATTER_ELEMENTS.

    for each row of the indices:
        for each index of the row:
            the element of its line is overwritten with the update, or reduced with it

All updates of an element are in one line, and a share has whole lines. So no two threads touch the same element, and
updates are applied in index order, whatever the number of threads.

Loading an index, checking it and applying its update are one step of a loop, as in `update_places`. Reductions of
16-bit floats, products of complex numbers and indices out of range are done block by block: first all offsets of a
block, then its updates.
"""

import numpy as np

from dmlcpu.kernels.elements.tiles import find_offsets, prefetch_tile, rows_at_once, rows_of, tile_of
from dmlcpu.kernels.elements.work import BLOCK, NOTHING, WORK, block_of
from dmlcpu.kernels.scatter_nd.places import Table, bounds_within, update_lines
from dmlcpu.kernels.scatter_nd.reduction import MULTIPLY_COMPLEX, PLAIN, multiply_complex, update_elements
from dmlcpu.kernels.walk import offset, share
from dmlcpu.runtime.intrinsics import Strided, as_words
from dmlcpu.runtime.jit import device
from dmlcpu.runtime.kernel import kernel
from dmlcpu.runtime.records import record_at


@kernel
def scatter_lines(part, parts, indices, updates, out, works, scratch):
    """Apply the updates of a share of the lines; report in scratch[part] whether an index was out of range.

    updates, out: elements of one type, or their words; indices: as uint32.
    """
    work = record_at(works, 0, WORK)
    block, bad = block_of(part, parts, scratch), 0
    first, last = share(part, parts, work.groups * work.units)
    while first < last:
        tile = tile_of(first, last, out, work)
        count = rows_at_once(tile, work)
        for top in range(tile.first_row, tile.last_row, count):
            if work.prefetched != NOTHING:
                prefetch_tile(rows_of(tile, top + count, count), out, indices, updates, work)
            bad |= scatter_tile(rows_of(tile, top, count), indices, updates, out, work, block)
        first += tile.units
    scratch[part] = bad


@device
def scatter_tile(tile, indices, updates, out, work, block):
    """Apply the updates of a tile; return whether an index was out of range."""
    table, lines, values = work.table, work.indices, work.values
    o = table.start + offset(work.walk, table.strides, tile.group) + tile.first_column * table.column
    i = lines.start + offset(work.walk, lines.strides, tile.group) + tile.first_column * lines.column
    u = values.start + offset(work.walk, values.strides, tile.group) + tile.first_column * values.column
    width, found = tile.last_column - tile.first_column, 0
    is_plain = work.half == PLAIN and work.reduction != MULTIPLY_COMPLEX
    o_row, o_step, i_row, i_step = table.row, table.column, lines.row, lines.column
    u_row, u_step, scale, reduction, is_wide = values.row, values.column, work.step, work.reduction, work.is_wide
    bounds, longs = bounds_within(work.size, is_wide, work.is_signed), as_words(indices, 0, np.int64)
    for row in range(tile.first_row, tile.last_row):
        line = Table(out, o + row * o_row, o_step, scale)
        new, done = Strided(updates, u + row * u_row, u_step, width), 0
        place = i + row * i_row
        while done < width:
            left = min(width - done, BLOCK)
            if is_plain and is_wide:
                done = update_lines(Strided(longs, place // 2, i_step // 2, width), bounds, new, done, line, reduction)
            elif is_plain:
                done = update_lines(Strided(indices, place, i_step, width), bounds, new, done, line, reduction)
            if done < width:
                left = 1 if is_plain else left
                first = place + done * i_step
                found |= update_block(indices, first, i_step, left, line, done, new, work, block)
                done += left
    return found


@device
def update_block(indices, first, step, count, line, done, new, work, block):
    """Apply `count` updates, of which `done` come before; return whether an index was out of range.

    indices: from indices[first] on, `step` words apart; line: a Table; new: the updates of the row.
    """
    reduction, offsets, out = work.reduction, block.offsets, line.array
    place = line.first + done * line.step
    bad = find_offsets(indices, first, step, count, place, line.step, work, offsets)
    u = new.first + done * new.step
    if reduction == MULTIPLY_COMPLEX:
        for j in range(0, count, 2):  # real and imaginary parts are adjacent
            if offsets[j] >= 0:
                multiply_complex(out, offsets[j], new.array, u + j * new.step)
        return bad
    at, has_skipped = 0, bad and work.clips == 0
    while at < count:
        end = count
        if has_skipped:  # apply the runs between skipped updates
            while at < count and offsets[at] < 0:
                at += 1
            end = at
            while end < count and offsets[end] >= 0:
                end += 1
        update_elements(offsets[at:], 1, new.array[u + at * new.step :], new.step, end - at, out, reduction, work.half)
        at = end
    return bad
