"""The work record of the scatter_nd kernels, the workspace of a share, and the terms of both.

An *update* is a slice of the updates. An index *tuple* gives its place in the output. A tuple is *linearized* to an
*offset*, as by `numpy.ravel_multi_index`: words from the start of out's memory.
"""

import numpy as np

from dmlcpu.kernels.walk import MAX_DIMS, STRIDES, WALK
from dmlcpu.runtime.jit import device
from dmlcpu.runtime.records import CACHE_LINE, cells_of, record, record_at

BLOCK = 256  # updates that a share handles together
PAIRS = 8  # pairs of an offset and a value that are buffered in the nearest cache and written to memory together
MOST_BUCKETS = 256  # the buffers of more would not fit the caches
MOST_BINS = 1024  # their table takes 2 KiB of the nearest cache
TABLES = 4  # finer ones, of as many parts of a bin

VALID = -1  # the report of a share that finds no index out of range, instead of a place
SKIPPED = -1  # the offset of an update that is dropped

# What happens to an update whose index is out of range.
RAISE, DROP, CLIP = range(3)

# Where indices are validated in mode RAISE. Nothing of the output may be written before an error.
BEFOREHAND = 0  # in a separate pass (also the value in other modes, which need no validation)
BY_BLOCK = 1  # in `apply`: all updates are one block, which is validated before it is written
SPECULATIVE = 2  # in `apply`, while it writes to a copy of the output, which is dropped if an index is bad

# The kind of an update.
ELEMENTS = 0  # one element, evenly spaced from the next
PLACES = 1  # and one index, evenly spaced; the indexed dimension is packed
ROWS = 2  # one packed run, evenly spaced from the next, that is overwritten or added in vectors
SLICES = 3  # anything else: runs of elements

WORK = record(
    tuples=record(
        count=np.int64,
        coordinates=np.int64,  # of a tuple
        start=np.int64,  # of the first, in uint32 words, like the steps and strides in indices
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
        in_vectors=np.int64,  # and the reduction has a vector form
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
    accumulator=np.int64,  # words from the accumulator of a share to the next; 0: there is one share
    ranges=record(
        count=np.int64,  # the smallest pieces of out that a share can own
        size=np.int64,  # their words
        copied=np.int64,  # of BLOCK parts of the work, those that are the copy; BLOCK: copied ranges are even
    ),
    buckets=record(
        evens=np.int64,  # ranges of even length; 0: updates are not partitioned
        steps=np.int64,  # ranges of about as many updates
        samples=np.int64,  # of the offsets, to find these
        bits=np.int64,  # of an offset within a bin
        span=np.int64,  # words of out
        shares=np.int64,  # of the updates
        turn=np.int64,  # updates that are partitioned in one turn
        counter=np.int64,  # cells of the workspace: places in the order of buckets and turns, CUTS, SHARE_SPACEs, pairs
        cuts=np.int64,
        spaces=np.int64,
        pairs=np.int64,
        of_update=np.int64,  # the work of an update, and of copying a word of out, or 0 if x is not copied with them
        of_word=np.int64,
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
    firsts=(np.int64, MOST_BUCKETS + 2),  # the first offset of each, and ends for the last and for skipped updates
    order=(np.int64, MOST_BUCKETS),  # in which threads take them: those with most work first, so none is left with one
    bins=(np.int16, MOST_BINS + 1),  # the bucket of the first offset in each bin; ~ a table; that of skipped updates
    tables=(np.int16, TABLES * MOST_BINS),  # such buckets for parts of a bin
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
