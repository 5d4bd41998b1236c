"""What the scatter_nd kernels are told, what a share of the work keeps to itself, and the terms of both.

An *update* is a slice of the updates, and an index *tuple* says where in the output it goes. A tuple is *linearized*
to an *offset*, as `numpy.ravel_multi_index` does: words from the start of out's memory.
"""

import numpy as np

from dmlcpu.kernels.walk import MAX_DIMS, STRIDES, WALK
from dmlcpu.runtime.jit import device
from dmlcpu.runtime.records import CACHE_LINE, cells_of, record, record_at

BLOCK = 256  # updates that a share looks at together
PAIRS = 8  # of an offset and a value that gather in the nearest cache before they go to memory together
MOST_BUCKETS = 256  # more would not find room in the caches while they are filled

VALID = -1  # what a share reports if it finds no index out of range, in place of where the first is
SKIPPED = -1  # the offset of an update that is dropped

# What is done about an index out of range.
RAISE, DROP, CLIP = range(3)

# Who looks for those that shall raise an error. Nothing of the output may be written then.
BEFOREHAND = 0  # a pass of its own (or nobody, where none raises)
BY_BLOCK = 1  # `apply`: all updates are one block, and it validates them before it writes
SPECULATIVE = 2  # `apply`, while it writes: to a copy of the output, which is given up if an index is bad

# What an update is.
ELEMENTS = 0  # one element, evenly spaced from the next
PACKED_ELEMENTS = 1  # and one index; updates, indices and the dimension these name are packed
ROWS = 2  # one packed run, evenly spaced from the next, that is overwritten or added in vectors
SLICES = 3  # anything else: runs of elements

WORK = record(
    tuples=record(
        count=np.int64,
        coordinates=np.int64,  # of a tuple
        start=np.int64,  # of the first, in uint32 words, as are the steps and strides in indices
        step=np.int64,  # from one coordinate to the next
        walk=WALK,  # from tuple to tuple
        strides=STRIDES,
        is_wide=np.int64,  # whether indices have 64 bits
        is_signed=np.int64,
        sizes=(np.int64, MAX_DIMS),  # of the dimensions that are indexed
        out_start=np.int64,
        out_steps=(np.int64, MAX_DIMS),  # along these dimensions
    ),
    updates=record(start=np.int64, walk=WALK, strides=STRIDES),  # from update to update
    slices=record(
        kind=np.int64,
        is_packed=np.int64,  # whether a run's elements lie side by side in out and in updates
        in_vectors=np.int64,  # and the reduction can take them as vectors
        runs=np.int64,
        length=np.int64,  # of a run
        walk=WALK,  # from run to run
        out_step=np.int64,  # from element to element
        out_strides=STRIDES,
        updates_step=np.int64,
        updates_strides=STRIDES,
    ),
    reduction=np.int64,
    half=np.int64,  # FLOAT16 or BFLOAT16 if elements are the bits of such numbers, else PLAIN
    mode=np.int64,
    writing_mode=np.int64,  # of the kernels that write: it is RAISE only if they validate
    validation=np.int64,
    ranges=record(count=np.int64, size=np.int64),  # pieces of out that can be owned, and the words of one
    buckets=record(
        count=np.int64,  # 0: updates are not partitioned
        bits=np.int64,  # of an offset within a bucket
        span=np.int64,  # words of out
        shares=np.int64,  # of the updates
        counter=np.int64,  # cells of the workspace: the next bucket, the shares' SHARE_SPACE, and pairs
        spaces=np.int64,
        pairs=np.int64,
    ),
)

# What a share keeps of a block of updates.
BLOCK_SPACE = record(
    offsets=(np.int64, BLOCK),
    own=(np.int64, BLOCK),  # those in the share's own range
    numbers=(np.int64, BLOCK),  # where in the block they stand
    values=(np.int64, BLOCK),  # room for as many elements
    guard=(np.int64, 16),  # keeps the shares of two threads apart
)

# What a share keeps of the buckets it fills. One more is for updates that are skipped.
SHARE_SPACE = record(
    CACHE_LINE,
    counts=(np.int64, MOST_BUCKETS + 1),  # the histogram of its updates
    limits=(np.int64, MOST_BUCKETS + 1),  # where its pairs must end
    ends=(np.int64, MOST_BUCKETS + 1),  # where they end so far
    buffers=(np.int64, 2 * PAIRS * (MOST_BUCKETS + 1)),  # pairs on their way: software write-combining
)

BLOCK_CELLS, SHARE_CELLS = cells_of(BLOCK_SPACE), cells_of(SHARE_SPACE)


@device
def block_of(part, parts, scratch):
    """Return a share's BLOCK_SPACE, which lies behind the reports of all shares."""
    return record_at(scratch, parts + part * BLOCK_CELLS, BLOCK_SPACE)


@device
def share_space_of(part, buckets, scratch):
    """Return a share's SHARE_SPACE."""
    return record_at(scratch, buckets.spaces + part * SHARE_CELLS, SHARE_SPACE)
