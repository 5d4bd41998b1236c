"""The writing pass for updates that were partitioned: threads take buckets, the fullest first, until none is left.

A thread copies the range of its bucket, unless the call is in place, and applies the bucket's updates in index order.
So no two threads touch the same element, and the result is that of a plain loop.

A short range is updated in the thread's workspace and then written once, because it may share cache lines with
neighboring ranges, and short ranges are those that get the most updates.
"""

import numpy as np

from dmlcpu.kernels.scatter_nd.apply import apply_slices
from dmlcpu.kernels.scatter_nd.owned import copy_owned
from dmlcpu.kernels.scatter_nd.partition import pair_of, turn_of
from dmlcpu.kernels.scatter_nd.reduction import update_elements
from dmlcpu.kernels.scatter_nd.rows import copy_range
from dmlcpu.kernels.scatter_nd.work import BLOCK, WORK, block_of, cuts_of, share_space_of
from dmlcpu.runtime.atomics import fetch_add
from dmlcpu.runtime.intrinsics import as_words, either
from dmlcpu.runtime.jit import device
from dmlcpu.runtime.kernel import kernel
from dmlcpu.runtime.records import record_at


@device
def take_bucket(buckets, scratch):
    """Return the number of a bucket that no thread has taken, or -1."""
    cuts, taken = cuts_of(buckets, scratch), fetch_add(scratch, buckets.counter)
    return cuts.order[taken] if taken < cuts.count else -1


@device
def pairs_of(part, bucket, buckets, scratch):
    """Return where a share's pairs of a bucket begin, and how many there are."""
    its = share_space_of(part, buckets, scratch)
    begin = its.limits[bucket] - its.counts[bucket]
    return begin, its.ends[bucket] - begin


@device
def move(count, source, target):
    """Copy count words."""
    for i in range(count):
        target[i] = source[i]


@kernel
def apply_buckets(part, parts, x, updates, out, works, scratch):
    """Apply the updates of buckets: single elements. x, out: of one type; x: empty, or laid out like out."""
    work = record_at(works, 0, WORK)
    buckets, near = work.buckets, as_words(block_of(part, parts, scratch).offsets, 0, out)
    offsets, values = as_words(scratch, buckets.pairs, np.uint32(0)), as_words(scratch, buckets.pairs, out)
    pair, firsts = pair_of(values), cuts_of(buckets, scratch).firsts
    while True:
        bucket = take_bucket(buckets, scratch)
        if bucket < 0:
            break
        first, last = firsts[bucket], firsts[bucket + 1]
        if x.size > 0:  # by way of the caches, because it is written to next
            copy_range(x, out, first, last)
        owned, short = out[first:last], last - first if last - first <= BLOCK else 0
        move(short, owned, near)
        target = either(short > 0, near, 0, owned)
        for other in range(buckets.shares):
            begin, count = pairs_of(other, bucket, buckets, scratch)
            update_elements(offsets[begin * pair.offset_step :], pair.offset_step,
                            values[begin * pair.value_step + pair.value_at :], pair.value_step,
                            count, target, work.reduction, work.half)  # fmt: skip
        move(short, near, owned)


@kernel
def apply_bucket_slices(part, parts, x, updates, out, works, scratch):
    """Apply the updates of buckets: slices. x, updates, out: of one type; x: empty, or laid out like out, in order."""
    work = record_at(works, 0, WORK)
    buckets, block = work.buckets, block_of(part, parts, scratch)
    words, near = as_words(scratch, buckets.pairs, np.uint32(0)), as_words(block.offsets, 0, out)
    firsts, before = cuts_of(buckets, scratch).firsts, turn_of(buckets, scratch) * buckets.turn
    while True:
        bucket = take_bucket(buckets, scratch)
        if bucket < 0:
            break
        first, last = firsts[bucket], firsts[bucket + 1]
        if x.size > 0:
            copy_owned(x, out, first, last)
        # Slices that are not in order have words outside the range, perhaps before it.
        is_short = work.ranges.size > 1 and last - first <= BLOCK
        owned, short = out[first:last], last - first if is_short else 0
        move(short, owned, near)
        target, start = either(short > 0, near, 0, out), 0 if short > 0 else first
        found = np.intp(0)  # a literal 0 would compile `apply_slices` twice
        for other in range(buckets.shares):
            begin, count = pairs_of(other, bucket, buckets, scratch)
            for i in range(begin, begin + count):
                block.own[found], block.numbers[found] = start + words[2 * i], words[2 * i + 1]
                found += 1
                if found == BLOCK:
                    apply_slices(found, before, updates, target, work, block)
                    found = np.intp(0)
        apply_slices(found, before, updates, target, work, block)
        move(short, near, owned)
