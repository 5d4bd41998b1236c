"""The pass that finds an index out of range before anything is written."""

from dmlcpu.kernels.scatter_nd.linearize import indices_of, linearize
from dmlcpu.kernels.scatter_nd.offsets import LANES, is_any_out
from dmlcpu.kernels.scatter_nd.partition import add_to_histogram
from dmlcpu.kernels.scatter_nd.work import BLOCK, VALID, WORK, block_of, share_space_of
from dmlcpu.kernels.walk import share
from dmlcpu.runtime.jit import device
from dmlcpu.runtime.kernel import kernel
from dmlcpu.runtime.records import record_at


@device
def is_in_range(indices, tuples, first, last):
    """Return whether all coordinates of tuples first, ..., last - 1 are in range; False also if that is not known."""
    count, bad = last - first, 0
    if tuples.walk.dims != 1 or count % LANES != 0:
        return False
    for t in range(tuples.coordinates):
        bad |= is_any_out(indices_of(indices, tuples, first, t), count)
    return bad == 0


@kernel
def validate(part, parts, indices, works, scratch):
    """Report the place of the first bad coordinate of a share of the tuples, or VALID, in scratch[part].

    If updates will be partitioned, count the updates of each bucket. indices: as uint32.
    """
    work = record_at(works, 0, WORK)
    block = block_of(part, parts, scratch)
    buckets = work.buckets.count
    if buckets > 0:
        counts = share_space_of(part, work.buckets, scratch).counts
        for bucket in range(buckets + 1):
            counts[bucket] = 0
    first, last = share(part, parts, work.tuples.count)
    report = VALID
    for begin in range(first, last, BLOCK):
        end = min(begin + BLOCK, last)
        if buckets == 0 and is_in_range(indices, work.tuples, begin, end):
            continue
        report = linearize(indices, work.tuples, begin, end, work.mode, block.offsets)
        if report != VALID:
            break
        if buckets > 0:
            add_to_histogram(part, block.offsets, end - begin, work.buckets, scratch)
    scratch[part] = report
