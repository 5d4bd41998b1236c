"""The writing pass for many single elements all over a large output: a radix partition by offset comes first.

Elements far apart wait for memory one by one. A bucket holds the updates of a range of the output that fits the second
cache. Each share puts its updates into the buckets, in index order, behind the updates of earlier shares. Then each
free thread takes the next bucket, copies its range and applies its updates. So the result is a plain loop's.
"""

from typing import NamedTuple

import numpy as np

from dmlcpu.kernels.scatter_nd.linearize import linearize
from dmlcpu.kernels.scatter_nd.reduction import update_elements
from dmlcpu.kernels.scatter_nd.rows import copy_range, fence, stream
from dmlcpu.kernels.scatter_nd.work import BLOCK, PAIRS, WORK, block_of, share_space_of
from dmlcpu.kernels.walk import share
from dmlcpu.runtime.atomics import fetch_add
from dmlcpu.runtime.intrinsics import as_words
from dmlcpu.runtime.jit import device
from dmlcpu.runtime.kernel import kernel
from dmlcpu.runtime.records import record_at


class Pair(NamedTuple):
    """The layout of an offset's lower bits and its value in one or two cells."""

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
def bucket_of(offset, bits, count):
    """Return the bucket of an offset. The extra last bucket is for skipped updates, whose offset is negative."""
    return np.uintp(min(np.uint64(offset) >> np.uint64(bits), np.uint64(count)))


@device
def add_to_histogram(part, offsets, count, buckets, scratch):
    """Count offsets[:count] into a share's histogram."""
    counts, bits, most = share_space_of(part, buckets, scratch).counts, buckets.bits, buckets.count
    for i in range(count):
        counts[bucket_of(offsets[i], bits, most)] += 1


@device
def find_bounds(part, buckets, scratch):
    """Write where a share's pairs of each bucket must end, and where they end so far, which is where they begin.

    They follow all earlier buckets and the pairs of earlier shares, and start a cache line.
    """
    mine = share_space_of(part, buckets, scratch)
    filled = 0
    for bucket in range(buckets.count):
        for other in range(buckets.shares):
            if other == part:
                mine.ends[bucket] = filled
            filled += share_space_of(other, buckets, scratch).counts[bucket]
            if other == part:
                mine.limits[bucket] = filled
            filled += -filled % PAIRS
    mine.limits[buckets.count] = 0  # skipped updates are not written
    mine.ends[buckets.count] = 0


@kernel
def partition(part, parts, indices, updates, works, scratch):
    """Put a share of the updates into buckets. indices: as uint32; updates: of one element each."""
    work = record_at(works, 0, WORK)
    block = block_of(part, parts, scratch)
    find_bounds(part, work.buckets, scratch)
    first, last = share(part, parts, work.tuples.count)
    for begin in range(first, last, BLOCK):
        end = min(begin + BLOCK, last)
        linearize(indices, work.tuples, begin, end, work.writing_mode, block.offsets)
        put_pairs(part, begin, end - begin, block.offsets, updates, work, scratch)
    flush(part, updates, work.buckets, scratch)
    fence()


@device
def put_pairs(part, begin, count, offsets, updates, work, scratch):
    """Put the block of updates that begins at update `begin` into the buckets of a share."""
    mine = share_space_of(part, work.buckets, scratch)
    buckets, bits, step = work.buckets.count, work.buckets.bits, work.updates.strides[0]
    limits, ends, buffers, pairs = mine.limits, mine.ends, mine.buffers, scratch[work.buckets.pairs :]
    near_offsets, near_values = as_words(buffers, 0, np.uint32(0)), as_words(buffers, 0, updates)
    pair = pair_of(near_values)
    low_bits, u, a_line = (1 << bits) - 1, work.updates.start + begin * step, PAIRS * pair.cells
    for i in range(count):
        bucket = bucket_of(offsets[i], bits, buckets)
        to = ends[bucket]
        at = bucket * np.uintp(PAIRS) + np.uintp(to & PAIRS - 1)
        near_offsets[at * np.uintp(pair.offset_step)] = offsets[i] & low_bits
        near_values[at * np.uintp(pair.value_step) + np.uintp(pair.value_at)] = updates[np.uintp(u + i * step)]
        ends[bucket] = to + 1
        # If another thread changed indices since they were counted, do not write beyond the counted pairs.
        if to & PAIRS - 1 == PAIRS - 1 and to < limits[bucket] + PAIRS - 1:
            stream(buffers, np.intp(bucket) * a_line, pairs, (to - PAIRS + 1) * pair.cells, a_line)


@device
def flush(part, updates, buckets, scratch):
    """Write the pairs left in the buffers of a share to its buckets."""
    mine, pairs = share_space_of(part, buckets, scratch), scratch[buckets.pairs :]
    cells = pair_of(as_words(mine.buffers, 0, updates)).cells
    for bucket in range(buckets.count):
        to = mine.ends[bucket] = min(mine.ends[bucket], mine.limits[bucket])
        left = to % PAIRS
        stream(mine.buffers, bucket * PAIRS * cells, pairs, (to - left) * cells, PAIRS * cells if left > 0 else 0)


@kernel
def apply_buckets(_, parts, x, out, works, scratch):
    """Take buckets until none is left: copy the range of each and apply its updates.

    x, out: elements of one type; x: empty, or laid out like out.
    """
    work = record_at(works, 0, WORK)
    buckets = work.buckets
    offsets, values = as_words(scratch, buckets.pairs, np.uint32(0)), as_words(scratch, buckets.pairs, out)
    pair = pair_of(values)
    while True:
        bucket = fetch_add(scratch, buckets.counter)
        if bucket >= buckets.count:
            break
        first, last = bucket << buckets.bits, min((bucket + 1) << buckets.bits, buckets.span)
        if x.size > 0:  # into the caches: it is written to next
            copy_range(x, out, first, last)
        owned = out[first:last]
        for part in range(buckets.shares):
            its = share_space_of(part, buckets, scratch)
            begin = its.limits[bucket] - its.counts[bucket]
            update_elements(offsets[begin * pair.offset_step :], pair.offset_step,
                            values[begin * pair.value_step + pair.value_at :], pair.value_step,
                            its.ends[bucket] - begin, owned, work.reduction, work.half)  # fmt: skip
