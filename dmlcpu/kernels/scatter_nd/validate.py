"""The pass that looks for an index out of range before anything is written."""

from dmlcpu.kernels.scatter_nd.linearize import indices_of, linearize
from dmlcpu.kernels.scatter_nd.offsets import LANES, is_any_out
from dmlcpu.kernels.scatter_nd.partition import WHOLE, add_to_histogram, clear_histogram, share_of_turn, turn_of
from dmlcpu.kernels.scatter_nd.work import BLOCK, VALID, WORK, block_of
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

    If updates will be partitioned, do this for the updates of a turn, and count those of each bucket; before the first
    turn, do it for all updates, and count none. indices: as uint32.
    """
    work = record_at(works, 0, WORK)
    block = block_of(part, parts, scratch)
    first, last = share(part, parts, work.tuples.count)
    counts = False
    if work.buckets.evens > 0:
        first, last = share_of_turn(part, parts, work, scratch)
        counts = turn_of(work.buckets, scratch) != WHOLE
    if counts:
        clear_histogram(part, work.buckets, scratch)
    report = VALID
    for begin in range(first, last, BLOCK):
        end = min(begin + BLOCK, last)
        if not counts and is_in_range(indices, work.tuples, begin, end):
            continue
        report = linearize(indices, work.tuples, begin, end, work.mode, block.offsets)
        if report != VALID:
            break
        if counts:
            add_to_histogram(part, block, end - begin, work.buckets, scratch)
    scratch[part] = report
