"""The ranges of buckets: how the output is cut, so that threads can share even updates that meet.

Some ranges are of even length, as long as the caches like. The others are quantiles of a sample of offsets: each holds
about as many updates. An element, or slice, that gets more than that has a range of its own.

The bucket of an offset is looked up: the output is cut into bins, and a table has the first bucket of each bin. Ranges
begin where bins do, unless a bin holds the updates of several ranges; only there are buckets searched.
"""

import numpy as np

from dmlcpu.kernels.scatter_nd.linearize import linearize_singly
from dmlcpu.kernels.scatter_nd.owned import sort_by_insertion
from dmlcpu.kernels.scatter_nd.work import WORK, cuts_of
from dmlcpu.runtime.jit import device
from dmlcpu.runtime.kernel import kernel
from dmlcpu.runtime.records import record_at


@kernel
def sample(_, parts, indices, works, scratch):
    """Write offsets of updates at even steps to where pairs will be. indices: as uint32."""
    work = record_at(works, 0, WORK)
    samples, count, found = work.buckets.samples, work.tuples.count, scratch[work.buckets.pairs :]
    for i in range(samples):
        number = i * count // samples
        linearize_singly(indices, work.tuples, number, number + 1, work.writing_mode, found, i)


@kernel
def cut(_, parts, works, scratch):
    """Write the CUTS that follow from a sample, which is sorted."""
    work = record_at(works, 0, WORK)
    buckets, cuts = work.buckets, cuts_of(work.buckets, scratch)
    firsts, size = cuts.firsts, work.ranges.size
    found = find_firsts(scratch[buckets.pairs :], size, buckets, firsts)
    sort_by_insertion(firsts, found)
    count = 0
    for i in range(found):
        if firsts[i] < buckets.span and (count == 0 or firsts[i] > firsts[count - 1]):
            firsts[count] = firsts[i]
            count += 1
    firsts[count], firsts[count + 1] = buckets.span, np.iinfo(np.int64).max
    cuts.count, bucket, bins = count, 0, bins_of(buckets)
    for number in range(bins):
        first = slice_from(number << buckets.bits, size)
        while bucket + 1 < count and firsts[bucket + 1] <= first:
            bucket += 1
        cuts.bins[number] = bucket
    cuts.bins[bins] = count


@device
def bins_of(buckets):
    """Return into how many bins the output is cut."""
    return (buckets.span - 1 >> buckets.bits) + 1


@device
def slice_from(offset, size):
    """Return where the first slice begins at or behind an offset."""
    return -(-offset // size) * size


@device
def find_firsts(sampled, size, buckets, firsts):
    """Write where ranges may begin, in no order and some twice; return how many. sampled: sorted offsets."""
    bits, steps, found, before = buckets.bits, buckets.steps, 0, -1
    for i in range(buckets.evens):
        firsts[found] = slice_from(i * bins_of(buckets) // buckets.evens << bits, size)
        found += 1
    for i in range(steps):
        at = sampled[i * buckets.samples // steps]
        if at == before or at < 0:  # offsets below 0 are of skipped updates
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
def bucket_of(offset, bits, bins, cuts):
    """Return the bucket of an offset; that of skipped updates, whose offset is negative, is the extra last one."""
    bucket = np.intp(cuts.bins[np.uintp(min(np.uint64(offset) >> np.uint64(bits), np.uint64(bins)))])
    while offset >= cuts.firsts[bucket + 1]:
        bucket += 1
    return bucket
