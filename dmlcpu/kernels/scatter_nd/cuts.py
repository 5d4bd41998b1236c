"""The ranges of buckets: how the output is cut, so that threads share the work even if many updates meet.

Some ranges have equal lengths that suit the caches. The bounds of the others are quantiles of a sample of offsets, so
each gets about equally many updates. An element, or slice, that gets more updates has its own range.

A table gives the bucket of an offset: the output is cut into bins, and the table has the first bucket of each bin.
Ranges begin where bins begin, unless a bin has the updates of several ranges; only in such bins buckets are searched.
A few bins with very many ranges have finer tables: with Zipf indices a search took 22 ns more for each update (Zen 3).
Without a sample, bins are the ranges, and no table is read, which would take 3 ns more.
"""

import numpy as np

from dmlcpu.kernels.scatter_nd.linearize import linearize_singly
from dmlcpu.kernels.scatter_nd.owned import sort_by_insertion
from dmlcpu.kernels.scatter_nd.work import MOST_BINS, MOST_BUCKETS, TABLES, WORK, cuts_of, share_space_of
from dmlcpu.kernels.walk import share
from dmlcpu.runtime.jit import device
from dmlcpu.runtime.kernel import kernel
from dmlcpu.runtime.records import record_at

FINE_BITS = MOST_BINS.bit_length() - 1
FEW = 4  # with fewer ranges in a bin, a search takes no longer than a finer table


@kernel
def sample(part, parts, indices, works, scratch):
    """Write a share of a sample, offsets of updates at even steps, to where pairs will be. indices: as uint32."""
    work = record_at(works, 0, WORK)
    samples, count, found = work.buckets.samples, work.tuples.count, scratch[work.buckets.pairs :]
    first, last = share(part, parts, samples)
    for i in range(first, last):
        number = i * count // samples
        linearize_singly(indices, work.tuples, number, number + 1, work.writing_mode, found, i)


@kernel
def cut(_, parts, works, scratch):
    """Write the CUTS of a sorted sample, or of none."""
    work = record_at(works, 0, WORK)
    buckets, cuts = work.buckets, cuts_of(work.buckets, scratch)
    firsts, bins, count = cuts.firsts, bins_of(buckets), 0
    found = find_firsts(scratch[buckets.pairs :], work.ranges.size, buckets, firsts)
    if buckets.samples > 0:
        sort_by_insertion(firsts, found)
    for i in range(found):
        if firsts[i] < buckets.span and (count == 0 or firsts[i] > firsts[count - 1]):
            firsts[count] = firsts[i]
            count += 1
    firsts[count], firsts[count + 1] = buckets.span, np.iinfo(np.int64).max
    cuts.count = count
    if buckets.samples > 0:
        fill_tables(work.ranges.size, buckets, cuts)
    cuts.bins[bins] = count


@kernel
def order(_, parts, works, scratch):
    """Write the order in which threads take the buckets of a turn, and the number of updates in the fullest."""
    buckets = record_at(works, 0, WORK).buckets
    cuts, shares = cuts_of(buckets, scratch), buckets.shares
    count, firsts, keys = cuts.count, cuts.firsts, cuts.order
    for bucket in range(count):
        keys[bucket] = 0
    for part in range(shares):
        counts = share_space_of(part, buckets, scratch).counts
        for bucket in range(count):
            keys[bucket] += counts[bucket]
    cuts.fullest = 0
    for bucket in range(count):
        cuts.fullest = max(cuts.fullest, keys[bucket])
        work = keys[bucket] * buckets.of_update + (firsts[bucket + 1] - firsts[bucket]) * buckets.of_word
        keys[bucket] = bucket - work * MOST_BUCKETS
    if buckets.samples > 0:
        sort_by_insertion(keys, count)
    for i in range(count):
        keys[i] %= MOST_BUCKETS


@device
def fill_tables(size, buckets, cuts):
    """Write the first bucket of each bin or, if many ranges begin in the bin, the number of its finer table."""
    firsts, count, bits, bucket, tables = cuts.firsts, cuts.count, buckets.bits, 0, 0
    shift = fine_shift(bits)
    for number in range(bins_of(buckets)):
        bucket = bucket_from(slice_from(number << bits, size), bucket, count, firsts)
        cuts.bins[number] = bucket
        last = bucket_from((number + 1 << bits) - 1, bucket, count, firsts)
        if last - bucket < FEW or tables == TABLES:
            continue
        cuts.bins[number] = ~tables
        for i in range(1 << bits - shift):
            first = slice_from((number << bits) + (i << shift), size)
            bucket = bucket_from(first, bucket, count, firsts)
            cuts.tables[tables * MOST_BINS + i] = bucket
        tables += 1


@device
def bucket_from(offset, bucket, count, firsts):
    """Return the bucket of an offset, which is this one or a later one."""
    while bucket + 1 < count and firsts[bucket + 1] <= offset:
        bucket += 1
    return bucket


@device
def fine_shift(bits):
    """Return how many of the lower bits of an offset a finer table ignores."""
    return max(bits - FINE_BITS, 0)


@device
def bins_of(buckets):
    """Return how many bins the output is cut into."""
    return (buckets.span - 1 >> buckets.bits) + 1


@device
def slice_from(offset, size):
    """Return where the first slice at or after an offset begins."""
    return -(-offset // size) * size


@device
def find_firsts(sampled, size, buckets, firsts):
    """Write where ranges may begin, unsorted and some of them twice; return how many. sampled: sorted offsets."""
    bits, steps, found, before = buckets.bits, buckets.steps, 0, -1
    for i in range(buckets.evens):
        firsts[found] = slice_from(i * bins_of(buckets) // buckets.evens << bits, size)
        found += 1
    for i in range(steps):
        at = sampled[i * buckets.samples // steps]
        if at == before or at < 0:  # skipped updates have negative offsets
            continue
        if i + 1 < steps and sampled[(i + 1) * buckets.samples // steps] == at:
            firsts[found], firsts[found + 1] = at, at + size
            found += 2
        else:
            start = slice_from(at >> bits << bits, size)
            firsts[found] = start if start > before else at
            found += 1
        before = at
    return found


@device
def bin_of(offset, bits, bins):
    """Return the bin of an offset; skipped updates, whose offset is negative, have an extra bin, the last."""
    return np.uintp(min(np.uint64(offset) >> np.uint64(bits), bins))


@device
def find_buckets(offsets, count, buckets, scratch, found):
    """Write the buckets of offsets[:count] to found, and make each offset relative to its range.

    Skipped updates have negative offsets and an extra bucket, the last.
    """
    cuts, bits, bins = cuts_of(buckets, scratch), buckets.bits, np.uint64(bins_of(buckets))
    if buckets.samples == 0:
        low_bits = (1 << bits) - 1
        for i in range(count):
            found[i] = np.int64(bin_of(offsets[i], bits, bins))
            offsets[i] &= low_bits
        return
    low_bits, shift = (1 << bits) - 1, fine_shift(bits)
    for i in range(count):
        offset = offsets[i]
        bucket = np.intp(cuts.bins[bin_of(offset, bits, bins)])
        if bucket < 0:
            bucket = np.intp(cuts.tables[np.uintp(~bucket * MOST_BINS + ((offset & low_bits) >> shift))])
        while offset >= cuts.firsts[bucket + 1]:
            bucket += 1
        found[i] = bucket
        offsets[i] = offset - cuts.firsts[bucket]
