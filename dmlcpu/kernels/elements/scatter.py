"""The writing pass of SCATTER_ELEMENTS.

    for each block of elements, in rows of the indices:
        offsets = where the indices point to
        out[offsets] is overwritten with the updates, or reduced with them

Updates of one element are all in one line, and a share has whole lines. So no two threads touch one element, and
updates are applied in index order, whatever the number of threads.
"""

from dmlcpu.kernels.elements.tiles import find_offsets, tile_of
from dmlcpu.kernels.elements.work import BLOCK, WORK, block_of
from dmlcpu.kernels.scatter_nd.reduction import MULTIPLY_COMPLEX, multiply_complex, update_elements
from dmlcpu.kernels.walk import offset, share
from dmlcpu.runtime.intrinsics import as_words, prefetch
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
        bad |= scatter_tile(tile, indices, updates, out, work, block)
        first += tile.units
    scratch[part] = bad


@device
def scatter_tile(tile, indices, updates, out, work, block):
    """Apply the updates of a tile; return whether an index was out of range."""
    table, lines, values = work.table, work.indices, work.values
    o = table.start + offset(work.walk, table.strides, tile.group)
    i = lines.start + offset(work.walk, lines.strides, tile.group)
    u = values.start + offset(work.walk, values.strides, tile.group)
    width = tile.last_column - tile.first_column
    together, offsets, near, found = BLOCK // max(width, 1), block.offsets, as_words(block.values, 0, updates), 0
    for row in range(tile.first_row, tile.last_row, max(together, 1)):
        for column in range(tile.first_column, tile.last_column, BLOCK):
            piece, count, bad = min(BLOCK, tile.last_column - column), 0, 0
            for r in range(row, min(row + max(together, 1), tile.last_row)):
                place = o + r * table.row + column * table.column
                first = i + r * lines.row + column * lines.column
                bad |= find_offsets(indices, first, lines.column, piece, place, table.column, work, offsets[count:])
                take(updates, u + r * values.row + column * values.column, values.column, piece, near[count:])
                count += piece
            found |= bad
            update_block(offsets, near, count, bad, out, work)
    return found


@device
def take(updates, first, step, count, near):
    """Write updates, `step` apart, to near[:count]."""
    for k in range(count):
        near[k] = updates[first + k * step]


@device
def update_block(offsets, values, count, has_skipped, out, work):
    """Update out at the first offsets of a block with its values."""
    reduction = work.reduction
    for j in range(count if work.is_far else 0):  # all are prefetched before the first is needed
        prefetch(out, offsets[j])
    if reduction == MULTIPLY_COMPLEX:
        for j in range(0, count, 2):  # real and imaginary parts lie side by side
            if offsets[j] >= 0:
                multiply_complex(out, offsets[j], values, j)
        return
    first = 0
    while first < count:
        last = count
        if has_skipped:  # whole runs between those that are skipped
            while first < count and offsets[first] < 0:
                first += 1
            last = first
            while last < count and offsets[last] >= 0:
                last += 1
        update_elements(offsets[first:], 1, values[first:], 1, last - first, out, reduction, work.half)
        first = last
