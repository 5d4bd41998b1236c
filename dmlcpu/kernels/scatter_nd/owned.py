"""The owner computes: only one share writes to a range of the output, and the thread that copies a range updates it."""

from typing import NamedTuple

import numpy as np

from dmlcpu.kernels.scatter_nd.linearize import linearize_singly
from dmlcpu.kernels.scatter_nd.rows import copy_range, fence, stream
from dmlcpu.kernels.scatter_nd.work import BLOCK, DROP, RAISE
from dmlcpu.kernels.walk import share
from dmlcpu.runtime.jit import device
from dmlcpu.runtime.kernel import kernel
from dmlcpu.runtime.records import CACHE_LINE

FALSE_SHARING = 128  # bytes: processors fetch cache lines in pairs
# Outputs of this many bytes are copied past the caches, which saves reading them first. The system's memcpy also does
# this, but decides by the bytes of one thread. Milliseconds of two threads, by memcpy and past the caches: 16 MB 0.74
# and 0.51, 64 MB 5.7 and 3.4, 154 MB 14.0 and 7.9, 256 MB 13.1 and 12.9. If all of it is read afterwards: 8 MB 0.76 and
# 0.88, 16 MB 2.14 and 1.82, 154 MB 25.9 and 19.7.
NON_TEMPORAL = 16_000_000


class Owned(NamedTuple):
    """A range of offsets."""

    first: int
    last: int


class Lines(NamedTuple):
    """Where pairs of cache lines start in an output of any type."""

    size: int  # words of a pair
    skew: int  # words from the start of a pair to offset 0


@device
def lines_of(out):
    """Return where pairs of cache lines start in out."""
    return Lines(FALSE_SHARING // out.itemsize, out.ctypes.data % FALSE_SHARING // out.itemsize)


@device
def owned_range(part, parts, copies, indices, work, lines, sample):
    """Return the range of a share. All ranges get about the same work: updates, and the copy if shares copy.

    Copied ranges have equal lengths if that shares the work evenly. Other bounds are quantiles of a sample of offsets,
    the same in every share. sample: int64, room for BLOCK. `last` may be after the last word of the output.
    """
    if parts == 1:
        return Owned(0, np.iinfo(np.int64).max)
    tuples, mode = work.tuples, DROP if work.writing_mode == RAISE else work.writing_mode
    copied = work.ranges.copied if copies else 0
    # One offset for 4,096 elements costs little. With a sample of 16 offsets of a permutation, one of two shares got
    # 68 % of the updates; with 256, 53 %.
    most = min(BLOCK, max(8 * parts, tuples.count * work.slices.length >> 12))
    count = min(max(most * (BLOCK - copied) // BLOCK, 1), tuples.count)
    for i in range(count):
        number = i * tuples.count // count
        linearize_singly(indices, tuples, number, number + 1, mode, sample, i)
    if copies and is_spread(sample, count, parts, work.ranges):
        begin, end = share(part, parts, work.ranges.count)
        begin, end = begin * work.ranges.size, end * work.ranges.size
    else:
        evens = min(count * copied // max(BLOCK - copied, 1), BLOCK - count)
        for i in range(evens):  # these represent the copy
            sample[count + i] = i * work.ranges.count // evens * work.ranges.size
        sort_by_insertion(sample, count + evens)
        begin, end = share(part, parts, count + evens)
        begin, end = sample[begin], sample[end]
    first = bound_at(begin, copies, work.ranges, lines) if part > 0 else 0
    last = bound_at(end, copies, work.ranges, lines) if part + 1 < parts else np.iinfo(np.int64).max
    return Owned(first, last)


@device
def is_spread(sample, count, parts, ranges):
    """Return whether ranges of equal length get about the same work, by the first `count` offsets of a sample."""
    for part in range(1, parts):
        bound, before = part * ranges.count // parts * ranges.size, 0
        for i in range(count):
            before += sample[i] < bound
        # 8 is the standard deviation of how many of 256 offsets of a permutation are before the middle.
        if abs(before * parts - part * count) * (BLOCK - ranges.copied) * 8 > parts * count * BLOCK:
            return False
    return True


@device
def bound_at(offset, copies, ranges, lines):
    """Return where ranges meet near the offset of an update; skipped updates have negative offsets.

    A share that copies owns whole slices if these lie in order. Otherwise it owns whole pairs of cache lines.
    """
    if copies and ranges.size != 1:
        return max(offset, 0)
    return line_before(max(offset, 0), lines)


@device
def sort_by_insertion(numbers, count):
    """Sort numbers[:count], ascending."""
    for i in range(1, count):
        number = numbers[i]
        at = i
        while at > 0 and numbers[at - 1] > number:
            numbers[at] = numbers[at - 1]
            at -= 1
        numbers[at] = number


@device
def line_before(offset, lines):
    """Return the last offset up to this one that starts a pair of cache lines, at least 0.

    Ranges end there, because an update of a line that two threads write to takes a hundred times as long.
    """
    return max(offset - (offset + lines.skew) % lines.size, 0)


@device
def copy_owned(x, out, first, last):
    """Copy x[first:last] to the same place in out."""
    if out.size * out.itemsize < NON_TEMPORAL:
        copy_range(x, out, first, last)
        return
    line = CACHE_LINE // out.itemsize
    begin = min(first + -(out.ctypes.data // out.itemsize + first) % line, last)
    end = last - (last - begin) % line
    copy_range(x, out, first, begin)
    stream(x, begin, out, begin, end - begin)
    copy_range(x, out, end, last)
    fence()


@kernel
def copy(part, parts, x, out):
    """Copy a share of x to out. Both have the same layout."""
    first, last = share(part, parts, x.size)
    copy_owned(x, out, first, last)
