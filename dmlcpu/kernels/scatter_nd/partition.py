"""Updates are put into buckets: one for each range of the output, with its updates in index order.

A bucket has pairs of an offset within its range and a value: the update itself if it is one element, else its number.
Each share puts its updates after those of earlier shares. Very many updates are partitioned and applied in several
*turns*, so that the pairs take little memory.
"""

from typing import NamedTuple

import numpy as np

from dmlcpu.kernels.scatter_nd.cuts import bin_of, bins_of, find_buckets
from dmlcpu.kernels.scatter_nd.linearize import linearize
from dmlcpu.kernels.scatter_nd.rows import fence, stream
from dmlcpu.kernels.scatter_nd.work import BLOCK, PAIRS, ROWS, SLICES, WORK, block_of, cuts_of, share_space_of
from dmlcpu.kernels.walk import share
from dmlcpu.runtime.intrinsics import as_words
from dmlcpu.runtime.jit import device
from dmlcpu.runtime.kernel import kernel
from dmlcpu.runtime.records import record_at

WHOLE = -1  # instead of a turn: all updates, which are validated and not yet counted


class Pair(NamedTuple):
    """The layout of a pair, an offset within a range and a value, in one or two cells."""

    cells: int
    offset_step: int  # uint32 words from pair to pair
    value_step: int  # values from pair to pair
    value_at: int  # the position of the value in a pair


@device
def pair_of(values):
    """Return the layout of pairs with these values; a constant for an array that `as_words` returns."""
    cells = 2 if values.itemsize == 8 else 1
    return Pair(cells, 2 * cells, 8 * cells // values.itemsize, 1 if values.itemsize == 8 else 4 // values.itemsize)


@device
def turn_of(buckets, scratch):
    """Return the turn that is made now."""
    return scratch[buckets.counter + 1]


@device
def share_of_turn(part, parts, work, scratch):
    """Return the range [first, last) of a share's updates in this turn."""
    count, turn = work.tuples.count, turn_of(work.buckets, scratch)
    begin = 0 if turn == WHOLE else turn * work.buckets.turn
    first, last = share(part, parts, count if turn == WHOLE else min(count - begin, work.buckets.turn))
    return begin + first, begin + last


@device
def clear_histogram(part, buckets, scratch):
    """Begin to count a share's updates."""
    counts = share_space_of(part, buckets, scratch).counts
    for bucket in range(cuts_of(buckets, scratch).count + 1):
        counts[bucket] = 0


@device
def add_to_histogram(part, block, count, buckets, scratch):
    """Count the first offsets of a block into a share's histogram."""
    counts, found, offsets = share_space_of(part, buckets, scratch).counts, block.numbers, block.offsets
    if buckets.samples == 0:  # one loop, because two took 1 ns more for an offset
        bits, bins = buckets.bits, np.uint64(bins_of(buckets))
        for i in range(count):
            counts[bin_of(offsets[i], bits, bins)] += 1
        return
    find_buckets(block.offsets, count, buckets, scratch, found)
    for i in range(count):
        counts[np.uintp(found[i])] += 1


@device
def find_bounds(part, buckets, scratch):
    """Write where a share's pairs of each bucket must end, and where they end so far, which is where they begin.

    They come after all earlier buckets and the pairs of earlier shares, and start at a cache line.
    """
    mine, count = share_space_of(part, buckets, scratch), cuts_of(buckets, scratch).count
    ends, limits = mine.ends, mine.limits
    for bucket in range(count):
        ends[bucket] = limits[bucket] = 0
    for other in range(buckets.shares):  # one after the other, as reading another thread's memory moves whole lines
        counts = share_space_of(other, buckets, scratch).counts
        for bucket in range(count):
            pairs = counts[bucket] + PAIRS - 1 & -PAIRS
            ends[bucket] += pairs if other < part else 0
            limits[bucket] += pairs
    filled = 0
    for bucket in range(count):
        pairs = limits[bucket]
        ends[bucket] += filled
        limits[bucket] = ends[bucket] + mine.counts[bucket]
        filled += pairs
    limits[count] = 0  # skipped updates are not written
    ends[count] = 0


@kernel
def partition(part, parts, indices, updates, works, scratch):
    """Put a share of the updates of this turn into buckets. indices: as uint32."""
    work = record_at(works, 0, WORK)
    block = block_of(part, parts, scratch)
    find_bounds(part, work.buckets, scratch)
    first, last = share_of_turn(part, parts, work, scratch)
    is_numbered = work.slices.kind in (ROWS, SLICES)
    numbers, step = as_words(block.own, 0, np.uint32(0)), work.updates.strides[0]
    before = turn_of(work.buckets, scratch) * work.buckets.turn
    for begin in range(first, last, BLOCK):
        count = min(BLOCK, last - begin)
        linearize(indices, work.tuples, begin, begin + count, work.writing_mode, block.offsets)
        find_buckets(block.offsets, count, work.buckets, scratch, block.numbers)
        if is_numbered:
            for i in range(count):
                numbers[i] = begin + i - before
            put_pairs(part, count, block, numbers, np.intp(0), np.intp(1), work.buckets, scratch)
        else:
            u = work.updates.start + begin * step
            put_pairs(part, count, block, updates, u, step, work.buckets, scratch)
    if is_numbered:
        flush(part, numbers, work.buckets, scratch)
    else:
        flush(part, updates, work.buckets, scratch)
    fence()


@device
def put_pairs(part, count, block, values, u, step, buckets, scratch):
    """Put a block's offsets within ranges, and its values, which are `step` apart from u on, into a share's buckets."""
    mine, offsets, found = share_space_of(part, buckets, scratch), block.offsets, block.numbers
    limits, ends, buffers, pairs = mine.limits, mine.ends, mine.buffers, scratch[buckets.pairs :]
    near_offsets, near_values = as_words(buffers, 0, np.uint32(0)), as_words(buffers, 0, values)
    pair = pair_of(near_values)
    a_line = PAIRS * pair.cells
    for i in range(count):
        bucket = np.uintp(found[i])
        to = ends[bucket]
        at = bucket * np.uintp(PAIRS) + np.uintp(to & PAIRS - 1)
        near_offsets[at * np.uintp(pair.offset_step)] = offsets[i]
        near_values[at * np.uintp(pair.value_step) + np.uintp(pair.value_at)] = values[np.uintp(u + i * step)]
        ends[bucket] = to + 1
        # If another thread changed indices after they were counted, do not write beyond the counted pairs.
        if to & PAIRS - 1 == PAIRS - 1 and to < limits[bucket] + PAIRS - 1:
            stream(buffers, np.intp(bucket) * a_line, pairs, (to - PAIRS + 1) * pair.cells, a_line)


@device
def flush(part, values, buckets, scratch):
    """Write the pairs left in the buffers of a share to its buckets."""
    mine, pairs = share_space_of(part, buckets, scratch), scratch[buckets.pairs :]
    cells = pair_of(as_words(mine.buffers, 0, values)).cells
    for bucket in range(cuts_of(buckets, scratch).count):
        to = mine.ends[bucket] = min(mine.ends[bucket], mine.limits[bucket])
        left = to % PAIRS
        stream(mine.buffers, bucket * PAIRS * cells, pairs, (to - left) * cells, PAIRS * cells if left > 0 else 0)
