"""The work record of the scatter_nd kernels, the workspace of a share, and the terms of both.

An *update* is a slice of the updates. An index *tuple* names its place in the output. A tuple is *linearized*, as by
`numpy.ravel_multi_index`, to an *offset*: the number of words from the start of out's memory.
"""

import numpy as np

from dmlcpu.kernels.walk import MAX_DIMS, STRIDES, WALK
from dmlcpu.runtime.jit import device
from dmlcpu.runtime.records import CACHE_LINE, cells_of, record, record_at

BLOCK = 256  # updates that a share handles together
PAIRS = 8  # pairs of an offset and a value that are buffered in the nearest cache and written to memory together
MOST_BUCKETS = 256  # the buffers of more buckets would not fit the caches
MOST_BINS = 1024  # their table takes 2 KiB of the nearest cache
TABLES = 4  # finer tables, each of MOST_BINS parts of a bin

VALID = -1  # reported instead of a place by a share that finds no index out of range
SKIPPED = -1  # the offset of an update that is dropped

# What happens to an update whose index is out of range.
RAISE, DROP, CLIP = range(3)

# Where indices are validated in mode RAISE. No output may be written before an error.
BEFOREHAND = 0  # in a separate pass (also the value in other modes, which need no validation)
BY_BLOCK = 1  # in `apply`: all updates are one block, which is validated before it is written
SPECULATIVE = 2  # in `apply`, while it writes to a copy of the output, which is dropped if an index is bad

# The kind of an update.
ELEMENTS = 0  # one element, evenly spaced from the next
PLACES = 1  # the same, with one index, evenly spaced; the indexed dimension is packed
ROWS = 2  # one packed run, evenly spaced from the next, that is overwritten or added in vectors
SLICES = 3  # anything else: runs of elements

WORK = record(
    tuples=record(
        count=np.int64,
        coordinates=np.int64,  # of a tuple
        start=np.int64,  # of the first, in uint32 words, like steps and strides of indices
        step=np.int64,  # from one coordinate to the next
        walk=WALK,  # from tuple to tuple
        strides=STRIDES,
        is_wide=np.int64,  # whether indices have 64 bits
        is_signed=np.int64,
        sizes=(np.int64, MAX_DIMS),  # of the indexed dimensions
        out_start=np.int64,
        out_steps=(np.int64, MAX_DIMS),  # along these dimensions
    ),
    updates=record(start=np.int64, walk=WALK, strides=STRIDES),  # from update to update
    slices=record(
        kind=np.int64,
        is_packed=np.int64,  # whether a run is contiguous in out and in updates
        in_vectors=np.int64,  # whether, in addition, the reduction has a vector form
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
    writing_mode=np.int64,  # of the kernels that write; RAISE only if they validate
    validation=np.int64,
    is_serial=np.int64,  # whether a share applies its updates one by one, wherever they are: single elements
    accumulator=np.int64,  # words from one share's accumulator to the next one's; 0 for one share
    ranges=record(
        count=np.int64,  # of the smallest pieces of out that a share can own
        size=np.int64,  # words of such a piece
        copied=np.int64,  # how many of BLOCK parts of the work are the copy; BLOCK: copied ranges have equal lengths
    ),
    buckets=record(
        evens=np.int64,  # ranges of equal length; 0: updates are not partitioned
        steps=np.int64,  # ranges with about equally many updates
        samples=np.int64,  # how many offsets are sampled to find the latter
        bits=np.int64,  # of an offset within a bin
        span=np.int64,  # words of out
        shares=np.int64,  # of the updates
        turn=np.int64,  # how many updates are partitioned in a turn
        counter=np.int64,  # cells of the workspace: places in the order of buckets and turns, CUTS, SHARE_SPACEs, pairs
        cuts=np.int64,
        spaces=np.int64,
        pairs=np.int64,
        of_update=np.int64,  # the work of an update
        of_word=np.int64,  # the work of copying a word of out, 0 if x is not copied with the updates
    ),
)

# A share's workspace for a block of updates.
BLOCK_SPACE = record(
    offsets=(np.int64, BLOCK),
    own=(np.int64, BLOCK),  # the offsets in the share's own range
    numbers=(np.int64, BLOCK),  # their positions in the block
    guard=(np.int64, 16),  # against false sharing
)

# A share's workspace for buckets. The extra last bucket is for skipped updates.
SHARE_SPACE = record(
    CACHE_LINE,
    counts=(np.int64, MOST_BUCKETS + 1),  # the histogram of its updates
    limits=(np.int64, MOST_BUCKETS + 1),  # where its pairs must end
    ends=(np.int64, MOST_BUCKETS + 1),  # where they end so far
    buffers=(np.int64, 2 * PAIRS * (MOST_BUCKETS + 1)),  # pairs not yet written: software write-combining
)

# How the output is cut into the ranges of buckets.
CUTS = record(
    CACHE_LINE,
    count=np.int64,  # of buckets
    fullest=np.int64,  # updates of this turn in the bucket that has most
    firsts=(np.int64, MOST_BUCKETS + 2),  # the first offset of each, then the ends of the last and of skipped updates
    order=(np.int64, MOST_BUCKETS),  # in which threads take them: most work first, so that none is late with a long one
    bins=(np.int16, MOST_BINS + 1),  # the bucket of each bin's first offset, or ~table; last, that of skipped updates
    tables=(np.int16, TABLES * MOST_BINS),  # the same for parts of a bin
)

BLOCK_CELLS, SHARE_CELLS, CUTS_CELLS = cells_of(BLOCK_SPACE), cells_of(SHARE_SPACE), cells_of(CUTS)


@device
def block_of(part, parts, scratch):
    """Return a share's BLOCK_SPACE. The reports of all shares come before them."""
    return record_at(scratch, parts + part * BLOCK_CELLS, BLOCK_SPACE)


@device
def share_space_of(part, buckets, scratch):
    """Return a share's SHARE_SPACE."""
    return record_at(scratch, buckets.spaces + part * SHARE_CELLS, SHARE_SPACE)


@device
def cuts_of(buckets, scratch):
    """Return the CUTS of a call."""
    return record_at(scratch, buckets.cuts, CUTS)
