"""The writing pass for single elements of large outputs: shares own ranges, without branches.

On one thread such updates wait for memory. Here every share reads all indices and selects its own updates in vectors:
one instruction moves the selected lanes to the front, where a branch would be mispredicted for every other update.
Without that instruction this is slower than one thread (AVX2, Zen 3 and Zen 4).
"""

import numpy as np

from dmlcpu.kernels.scatter_nd.linearize import indices_of, linearize
from dmlcpu.kernels.scatter_nd.offsets import LANES, select_places, select_range
from dmlcpu.kernels.scatter_nd.owned import copy_owned, lines_of, owned_range
from dmlcpu.kernels.scatter_nd.places import Bounds, update_places
from dmlcpu.kernels.scatter_nd.work import BLOCK, PLACES, WORK, block_of
from dmlcpu.runtime.intrinsics import Strided, as_words, prefetch
from dmlcpu.runtime.jit import device
from dmlcpu.runtime.kernel import kernel
from dmlcpu.runtime.records import record_at


@kernel
def apply_selected(part, parts, x, indices, updates, out, works, scratch):
    """Copy the share's range of x to out, unless x is empty, and apply the updates in it. Indices are validated.

    x, updates, out: elements of one type; x: laid out like out. indices: as uint32.
    """
    work = record_at(works, 0, WORK)
    block = block_of(part, parts, scratch)
    owned = owned_range(part, parts, x.size > 0, indices, work, lines_of(out), block.own)
    if x.size > 0:
        copy_owned(x, out, min(owned.first, x.size), min(owned.last, x.size))
    bounds = Bounds(np.int64(out.size), np.int64(out.size), np.int64(0))
    count, values = work.tuples.count, as_words(block.numbers, 0, updates)
    for begin in range(0, count, BLOCK):
        found = select_own(begin, min(begin + BLOCK, count), owned, indices, updates, work, block, values)
        for j in range(found):  # all are prefetched before the first is needed
            prefetch(out, block.own[j])
        update_places(Strided(block.own, 0, 1, found), bounds, Strided(values, 0, 1, found), 0, out, work.reduction)


@device
def select_own(begin, end, owned, indices, updates, work, block, values):
    """Write the offsets in the owned range of updates begin, ..., end - 1 to block.own, and their elements to values.

    Return how many there are. values: the memory of block.numbers.
    """
    tuples, step, count = work.tuples, work.updates.strides[0], end - begin
    u, width = work.updates.start + begin * step, 1 + tuples.is_wide
    is_packed = work.slices.kind == PLACES and step == 1 and tuples.strides[0] == width
    if is_packed and count % LANES == 0:
        found = select_places(indices_of(indices, tuples, begin, 0), updates, u, count, owned, block.own, values)
        if found >= 0:
            return found
    linearize(indices, tuples, begin, end, work.writing_mode, block.offsets)
    found = select_range(block.offsets, count, owned.first, owned.last, block.own, block.numbers)
    for j in range(found):  # an element is at most as wide as its number, so it overwrites only numbers already read
        values[j] = updates[np.uintp(u + block.numbers[j] * step)]
    return found
