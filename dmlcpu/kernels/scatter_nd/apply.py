"""The writing pass: the copy of the input, and the updates.

    owned range = the share's part of the output, copied from the input unless in place
    for each block of updates:
        offsets = the index tuples, linearized
        own     = the offsets in the owned range
        out[own] is overwritten with the updates, or reduced with them

Every share reads all tuples and applies its own updates in index order. So no two threads touch the same element, the
last update wins, and sums have one order: the result does not depend on the number of shares.

Single elements, except 16-bit floats that are reduced, have no owned ranges. One share applies all updates, which takes
less time than a second share would need to find its own. The order does not matter for sums of integers and for
extremes. If the output is small as well, each share takes some of the updates and has an accumulator, and the plan
merges the accumulators, in order.
"""

import numpy as np

from dmlcpu.kernels.scatter_nd.linearize import linearize
from dmlcpu.kernels.scatter_nd.offsets import select_range
from dmlcpu.kernels.scatter_nd.owned import copy_owned, lines_of, owned_range
from dmlcpu.kernels.scatter_nd.places import Bounds, bounds_within, update_places
from dmlcpu.kernels.scatter_nd.reduction import ADD, OVERWRITE, Run, reduce_half, update_run
from dmlcpu.kernels.scatter_nd.rows import add_run, copy_run
from dmlcpu.kernels.scatter_nd.work import BLOCK, BY_BLOCK, CLIP, PLACES, RAISE, ROWS, SLICES, VALID, WORK, block_of
from dmlcpu.kernels.walk import offset, share
from dmlcpu.runtime.intrinsics import Strided, as_words, either, line_of, prefetch
from dmlcpu.runtime.jit import device, inlined
from dmlcpu.runtime.kernel import kernel
from dmlcpu.runtime.records import record_at

# Slices of LONG bytes and more are prefetched AHEAD slices ahead, up to MOST_AHEAD bytes of the first run, because each
# begins at another place. Measured on a Xeon with VNNI, 100,000 rows of 256 float32 added to 30,000: no prefetch 9.4
# ms, one ahead 7.8, two 7.2, four 7.9. Shorter slices are prefetched a block at once, like single elements: 131,072
# rows of 16 into 262,144 take 2.7 ms if each is in two cache lines, without prefetch 3.9; in one line, 2.6 either way.
LONG, AHEAD, MOST_AHEAD = 256, 2, 4096
HALF_BYTES = 2
NEAR = 1 << 14  # elements of the largest output that stays in the first caches


@kernel
def apply(part, parts, x, indices, updates, out, works, scratch):
    """Copy the share's range of x to out, unless x is empty, and write the updates in it.

    Serial work has one share, or `out` has an accumulator for each share. For sums, the accumulators of later shares
    begin with 0; for extremes, all begin with x.

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
    if work.is_serial:
        mine = out[part * work.accumulator :]
        if part > 0 and work.reduction == ADD:
            for i in range(x.size):
                mine[i] = 0
        elif x.size > 0:
            copy_owned(x, mine, np.intp(0), x.size)
        first, last = share(part, parts, count)
        scratch[part] = apply_places(first, last, indices, updates, mine, work, block)
        return
    owned = owned_range(part, parts, x.size > 0, indices, work, lines_of(out), block.own)
    if x.size > 0:
        copy_owned(x, out, min(owned.first, x.size), min(owned.last, x.size))
    for begin in range(0, count, BLOCK):
        report = apply_block(begin, min(begin + BLOCK, count), owned, indices, updates, out, work, block)
        if report != VALID:
            break
    scratch[part] = report


@device
def bounds_of(tuples):
    """Return the bounds of indices that are read in place; narrow ones are read as uint32."""
    return bounds_within(tuples.sizes[0], tuples.is_wide, tuples.is_signed)


@device
def apply_places(first, last, indices, updates, out, work, block):
    """Apply updates first, ..., last - 1 of single elements; return the place of a bad index, or VALID.

    Indices that are places are read directly. Others are linearized, unless the block has their offsets already.
    """
    tuples, u, step, is_wide = work.tuples, work.updates.start, work.updates.strides[0], work.tuples.is_wide != 0
    is_linearized = work.validation == BY_BLOCK
    is_direct = work.slices.kind == PLACES and work.writing_mode != CLIP and not is_linearized
    length, apart, stops = BLOCK, 1, False
    bounds = Bounds(np.int64(out.size), np.int64(out.size), np.int64(0))
    if is_direct:
        length, apart, stops = last - first, tuples.strides[0] // (1 + tuples.is_wide), work.writing_mode == RAISE
        bounds = bounds_of(tuples)
    for begin in range(first, last, max(length, 1)):
        end = min(begin + length, last)
        if not is_direct and not is_linearized:
            report = linearize(indices, tuples, begin, end, work.writing_mode, block.offsets)
            if report != VALID:
                return report
            # A processor cannot load these elements ahead, because it would first have to linearize the next block.
            for j in range(end - begin if out.size > NEAR else 0):
                prefetch(out, block.offsets[j])
        narrow = indices[tuples.start + tuples.strides[0] * begin :]
        wide = either(is_direct, as_words(narrow, 0, np.int64), 0, block.offsets)
        at, count = -1, end - begin
        values = Strided(updates, u + begin * step, step, count)
        while at < count:
            if is_direct and not is_wide:
                at = update_places(Strided(narrow, 0, apart, count), bounds, values, at + 1, out, work.reduction)
            else:
                at = update_places(Strided(wide, 0, apart, count), bounds, values, at + 1, out, work.reduction)
            if at < count and stops:
                return begin + at
    return VALID


# Inlined into its only caller, because a call took 20 ns a block.
@inlined
def apply_block(begin, end, owned, indices, updates, out, work, block):
    """Apply a block's updates that are in the owned range; return the place of a bad coordinate, or VALID."""
    count = end - begin
    if work.validation != BY_BLOCK:
        report = linearize(indices, work.tuples, begin, end, work.writing_mode, block.offsets)
        if report != VALID:
            return report
    found = select_range(block.offsets, count, owned.first, owned.last, block.own, block.numbers)
    if work.slices.kind in (ROWS, SLICES):
        apply_slices(found, begin, updates, out, work, block)
        return VALID
    step = work.updates.strides[0]
    u = work.updates.start + begin * step
    if out.itemsize != HALF_BYTES:  # other single elements are serial; this is a constant, and LLVM drops the rest
        return VALID
    for j in range(found if out.size > NEAR else 0):  # all are prefetched before the first is needed
        prefetch(out, block.own[j])
    for j in range(found):
        o, update = np.uintp(block.own[j]), updates[np.uintp(u + block.numbers[j] * step)]
        out[o] = reduce_half(np.uint32(out[o]), np.uint32(update), work.reduction, work.half)
    return VALID


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
        # Most updates are rows with so little work that a call would take half of the time.
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
    """Prefetch array[begin : begin + n], and one line more if it does not start at a cache line."""
    for i in range(0, n, line_of(array)):
        prefetch(array, begin + i)
    prefetch(array, begin + n - 1)
