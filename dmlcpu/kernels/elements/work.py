"""The work record of the kernels of elements, and the workspace of a share.

Indices whose positions differ only along the axis form a *line*. The *table* is the array that indices refer to: the
output of a scatter, the input of a gather. The *values* have the shape of the indices: the updates of a scatter, the
output of a gather.

The place of an element in the table is an offset from the other dimensions, plus the index times the step of the axis.
So along the axis the table has a stride of 0, and all three tensors are walked through in the same way: by groups, rows
and columns. The axis of a scatter is the columns or, if neighboring lines are adjacent in memory, the rows. It is
never among the groups.
"""

import numpy as np

from dmlcpu.kernels.walk import STRIDES, WALK
from dmlcpu.runtime.jit import device
from dmlcpu.runtime.records import cells_of, record, record_at

BLOCK = 256  # elements that a share handles together
PIECE = 4096  # indices that are validated together
# What a share prefetches: nothing, the next rows of indices and values, or the table's elements that these indices
# name.
NOTHING, NEXT_ROWS, NEXT_ELEMENTS = range(3)

# Where the elements of a tensor lie, in words; words of indices have 4 bytes.
_TENSOR = record(
    start=np.int64,  # the first
    strides=STRIDES,  # from group to group
    row=np.int64,  # from row to row
    column=np.int64,
)

WORK = record(
    size=np.int64,  # of the table along the axis
    step=np.int64,  # along the axis
    prefetched=np.int64,  # NOTHING, NEXT_ROWS or NEXT_ELEMENTS
    is_wide=np.int64,  # whether indices have 64 bits
    is_signed=np.int64,
    clips=np.int64,  # whether indices out of range are clipped, else skipped
    reduction=np.int64,
    half=np.int64,  # FLOAT16 or BFLOAT16 if elements are the bits of such numbers, else PLAIN
    walk=WALK,  # from group to group
    groups=np.int64,
    rows=np.int64,
    columns=np.int64,
    cuts_rows=np.int64,  # whether shares are ranges of rows, else of columns
    unit=np.int64,  # the rows or columns that are never divided
    units=np.int64,  # in a group
    is_aligned=np.int64,  # whether units of columns begin where pairs of the table's cache lines begin
    table=_TENSOR,
    indices=_TENSOR,
    values=_TENSOR,
    # The indices as the fewest runs, in any order.
    checked=record(runs=np.int64, length=np.int64, step=np.int64, walk=WALK, strides=STRIDES),
    # Packed indices as rows, which have all dimensions after the axis; a row may repeat one index.
    repeated=record(rows=np.int64, length=np.int64),
)

# A share's workspace for a block of elements.
BLOCK_SPACE = record(
    offsets=(np.int64, BLOCK),
    guard=(np.int64, 16),  # against false sharing
)
BLOCK_CELLS = cells_of(BLOCK_SPACE)


@device
def block_of(part, parts, scratch):
    """Return a share's BLOCK_SPACE. The reports of all shares come before them."""
    return record_at(scratch, parts + part * BLOCK_CELLS, BLOCK_SPACE)
