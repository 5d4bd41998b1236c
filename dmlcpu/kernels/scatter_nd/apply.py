"""The writing pass: the copy of the input, and the updates.

    owned range = the share's part of the output, copied from the input unless in place
    for each block of updates:
        offsets = the index tuples, linearized
        own     = the offsets in the owned range
        out[own] is overwritten with the updates, or reduced with them

Every share reads all tuples and applies its own updates in index order. So no two threads touch one element, the last
update wins, and sums have one order: the result does not depend on the number of shares.
"""

import numpy as np

from dmlcpu.kernels.scatter_nd.linearize import linearize
from dmlcpu.kernels.scatter_nd.offsets import LANES, select_indices, select_range, select_values
from dmlcpu.kernels.scatter_nd.owned import copy_owned, even_range, lines_of, sampled_range
from dmlcpu.kernels.scatter_nd.reduction import OVERWRITE, Run, update_elements, update_run
from dmlcpu.kernels.scatter_nd.rows import add_run, copy_run
from dmlcpu.kernels.scatter_nd.work import BLOCK, BY_BLOCK, PACKED_ELEMENTS, ROWS, SLICES, VALID, WORK, block_of
from dmlcpu.kernels.walk import offset
from dmlcpu.runtime.intrinsics import as_words, line_of, prefetch
from dmlcpu.runtime.jit import device, inlined
from dmlcpu.runtime.kernel import kernel
from dmlcpu.runtime.records import record_at

# Slices of LONG bytes and more are prefetched AHEAD slices ahead, up to MOST_AHEAD bytes of the first run, because each
# begins somewhere else. Measured on a Xeon with VNNI, 100,000 rows of 256 float32 added to 30,000: no prefetch 9.4 ms,
# one ahead 7.8, two 7.2, four 7.9. Shorter slices are prefetched a block at once, like single elements: 131,072 rows of
# 16 into 262,144, each in two cache lines, take 2.7 ms, without it 3.9; each in one line, 2.6 either way.
LONG, AHEAD, MOST_AHEAD = 256, 2, 4096
NEAR = 1 << 14  # elements of an output that stays in the first caches


@kernel
def apply(part, parts, x, indices, updates, out, works, scratch):
    """Copy the share's range of x to out, unless x is empty, and write the updates in it.

    x, updates, out: elements of one type; x: laid out like out. indices: as uint32. If this kernel validates, it
    reports the place of the first bad coordinate, or VALID, in scratch[part].
    """
    work = record_at(works, 0, WORK)
    block = block_of(part, parts, scratch)
    count, report = work.tuples.count, VALID
    if work.validation == BY_BLOCK:
        report = linearize(indices, work.tuples, np.intp(0), count, work.writing_mode, block.offsets)
        if report != VALID:
            scratch[part] = report
            return
    if x.size > 0:
        owned = even_range(part, parts, work.ranges, lines_of(out))
        copy_owned(x, out, min(owned.first, x.size), min(owned.last, x.size))
    else:
        owned = sampled_range(part, parts, indices, work, lines_of(out), block.own)
    for begin in range(0, count, BLOCK):
        report = apply_block(begin, min(begin + BLOCK, count), owned, indices, updates, out, work, block)
        if report != VALID:
            break
    scratch[part] = report


# Inlined into its one caller: a call took 20 ns a block, 12 % of the time of float64 added to 1,000 elements.
@inlined
def apply_block(begin, end, owned, indices, updates, out, work, block):
    """Apply a block's updates that are in the owned range; return the place of a bad coordinate, or VALID."""
    kind, count, is_linearized = work.slices.kind, end - begin, work.validation == BY_BLOCK
    values, found = as_words(block.values, 0, updates), -1
    if kind == PACKED_ELEMENTS and count % LANES == 0 and not is_linearized:
        found = select_packed(begin, count, owned, indices, updates, work, block, values)
    if found < 0 and not is_linearized:
        report = linearize(indices, work.tuples, begin, end, work.writing_mode, block.offsets)
        if report != VALID:
            return report
    if kind in (ROWS, SLICES):
        found = select_range(block.offsets, count, owned.first, owned.last, block.own, block.numbers)
        apply_slices(found, begin, updates, out, work, block)
        return VALID
    if found < 0:
        found = select_elements(begin, count, owned, updates, work, block, values)
    if out.size > NEAR:  # elements are far apart: all are prefetched before the first is needed
        for j in range(found):
            prefetch(out, block.own[j])
    update_elements(block.own, 1, values, 1, found, out, work.reduction, work.half)
    return VALID


@device
def select_packed(begin, count, owned, indices, updates, work, block, values):
    """Write own offsets and their elements; return their number, or -1 if an index is out of range."""
    tuples = work.tuples
    start = tuples.start + begin * (1 + tuples.is_wide)
    return select_indices(indices, start, tuples.is_wide, tuples.is_signed, tuples.sizes[0], tuples.out_start, updates,
                          work.updates.start + begin, count, owned.first, owned.last, block.own, values)  # fmt: skip


@device
def select_elements(begin, count, owned, updates, work, block, values):
    """Write the block's own offsets and their elements; return their number."""
    first, last, offsets, own, numbers = owned.first, owned.last, block.offsets, block.own, block.numbers
    step = work.updates.strides[0]
    u = work.updates.start + begin * step
    if step != 1:
        found = select_range(offsets, count, first, last, own, numbers)
        for j in range(found):
            values[j] = updates[np.uintp(u + numbers[j] * step)]
        return found
    lines = count // LANES * LANES
    found = select_values(offsets, lines, first, last, updates, u, own, values)
    for i in range(lines, count):
        if first <= offsets[i] < last:
            own[found], values[found] = offsets[i], updates[u + i]
            found += 1
    return found


@device
def apply_slices(found, begin, updates, out, work, block):
    """Apply the slices of the `found` own offsets of the block that begins at update `begin`."""
    own, sources, slices = block.own, block.numbers, work.slices
    for j in range(found):
        sources[j] = work.updates.start + offset(work.updates.walk, work.updates.strides, begin + sources[j])
    length, is_row = slices.length, slices.kind == ROWS
    run = Run(length, slices.out_step, slices.updates_step, slices.in_vectors)
    is_long, most = length * out.itemsize >= LONG, min(length, MOST_AHEAD // out.itemsize)
    for j in range(0 if is_long else found):
        prefetch_run(out, own[j], length)
    for j in range(found):
        if is_long and slices.is_packed and j + AHEAD < found:
            prefetch_run(updates, sources[j + AHEAD], most)
            prefetch_run(out, own[j + AHEAD], most)
        # Most updates are rows, of so little work that a call would take half of the time.
        if is_row and work.reduction == OVERWRITE:
            copy_run(out, own[j], updates, sources[j], length)
        elif is_row:
            add_run(out, own[j], updates, sources[j], length)
        else:
            for i in range(slices.runs):
                update_run(out, own[j] + offset(slices.walk, slices.out_strides, i),
                           updates, sources[j] + offset(slices.walk, slices.updates_strides, i),
                           run, work.reduction, work.half)  # fmt: skip


@device
def prefetch_run(array, begin, n):
    """Prefetch array[begin : begin + n]; if it does not start a cache line, it ends in one line more."""
    for i in range(0, n, line_of(array)):
        prefetch(array, begin + i)
    prefetch(array, begin + n - 1)
