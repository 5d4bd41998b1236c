"""The work record of products, and the workspace of a share.

Names are those of the GEMM literature: y = epilogue(a @ b), M x K by K x N. A tile is up to MR x NR accumulators, a
panel is NR columns of b, packed. NC panels stay in the second cache. K is cut into chunks of KC words of four bytes.
"""

from typing import NamedTuple

import numpy as np

from dmlcpu.kernels.gemm.microkernels.microkernel import KC, NR, PREFETCH, ROW_STEP, TALLEST
from dmlcpu.kernels.walk import STRIDES, WALK
from dmlcpu.runtime.jit import device, shared
from dmlcpu.runtime.records import CACHE_LINE, LINE_CELLS, cells_of, record

# Up to this K the final sum fits an int32, even if it wrapped before: 255 * 255 * 33025 < 2**31.
NARROW = 33_025
# At most this many panels have their columns prepared together: more gain nothing and take more space.
MOST_PANELS = 32

# Each array argument of a kernel has a record of the same name. start: its first element; strides: along the batch.
MATRIX = record(start=np.int64, row=np.int64, column=np.int64, strides=STRIDES)
PARAMETER = record(step=np.int64, strides=STRIDES)  # step: from row to row, or column to column; 0: one value for all
WORK = record(
    M=np.int64,
    N=np.int64,
    K=np.int64,
    groups=np.int64,  # words of four bytes along K
    row_words=np.int64,  # words of a packed row of a in the workspace: groups, or twice as many if it may be int16
    panels=np.int64,
    tasks=np.int64,
    run=np.int64,  # tasks that a thread takes at a time
    row_parts=np.int64,  # tasks along the rows of a product
    column_parts=np.int64,  # tasks along its columns
    NC=np.int64,  # panels of a block
    slots=np.int64,  # how many packed tiles of a fit the workspace
    keeps_rows=np.int64,  # whether all tiles of a task fit
    share_cells=np.int64,  # int64 of a share's workspace
    is_wide=np.int64,  # sums may exceed int32
    same_a_zero=np.int64,  # all rows have the same zero point
    same_multiplier=np.int64,  # all rows have the same scales of a and y
    same_rows=np.int64,  # all rows have the same scales and zero points of a and y
    same_start=np.int64,  # all rows of a tile start with the bias, unless b has zero points
    a_sign_flip=np.int64,  # exclusive or with it makes a's bytes unsigned
    b_sign_flip=np.int64,  # and b's bytes signed
    b_is_packed=np.int64,
    is_exact=np.int64,  # no pair of products saturates; see forms.py
    lowest=np.int64,  # of y's type
    highest=np.int64,
    walk=WALK,  # the batch
    a=MATRIX,
    b=MATRIX,  # if it is packed, its strides count matrices
    y=MATRIX,  # an epilogue that writes no y uses it to number elements
    a_scale=PARAMETER,
    a_zero=PARAMETER,
    b_scale=PARAMETER,
    b_zero=PARAMETER,
    y_scale=PARAMETER,
    y_zero=PARAMETER,
    y_bias=MATRIX,  # row: 0 if all rows have the same
)

# Space for the tallest tile and the longest block, each part on separate cache lines.
SPACE = record(
    CACHE_LINE,
    acc=(np.int32, (TALLEST, NR)),  # the accumulators
    wide=(np.float64, (TALLEST, NR)),  # exact for integers up to 2**53
    is_int16=(np.int64, 1),  # the form of the packed rows of a; see forms.py
    rows=record(
        CACHE_LINE,
        a_zero=(np.int64, TALLEST),
        sums=(np.int64, TALLEST),  # sums of the bytes, for dots.py
        a_scale=(np.float32, TALLEST),
        y_scale=(np.float32, TALLEST),
        y_zero=(np.uint8, TALLEST),
        lowest=(np.float32, TALLEST),  # limits of the rounded product, before y_zero is added
        highest=(np.float32, TALLEST),
    ),
    columns=record(
        CACHE_LINE,
        sums=(np.int64, MOST_PANELS * NR),  # of b's columns, unless b is packed
        bias=(np.int32, MOST_PANELS * NR),  # -a_zero * sums if all rows have the same a_zero, else -sums
        b_zero=(np.int32, MOST_PANELS * NR),
        scale=(np.float32, MOST_PANELS * NR),  # of b, or the multipliers if all rows have the same
        y_bias=(np.float32, MOST_PANELS * NR),  # if all rows have the same
    ),
    multipliers=(np.float32, (TALLEST, NR)),  # of a tile whose rows have different scales
    bytes=(np.uint8, (TALLEST, NR)),  # of a tile that is not written to y directly
    floats=(np.float32, (TALLEST, NR)),  # the same, if y has floats
    y_bias=(np.float32, (TALLEST, NR)),  # of a tile whose bias is not read from the array itself
)
COUNTER = 0  # the cell with the number of the next run of tasks, on a separate cache line
SHARES = LINE_CELLS  # the cell where the workspaces of the shares begin


class Problem(NamedTuple):
    """The facts that decide the kernel and the cut of the work."""

    batches: int
    rows: int
    columns: int
    depth: int
    column_step: int  # of b


class Operands(NamedTuple):
    """What every product reads of its two matrices: flat byte arrays; packed panels and their sums are int64."""

    a: np.ndarray
    b: np.ndarray
    packed: np.ndarray
    packed_sums: np.ndarray
    a_zero: np.ndarray
    b_zero: np.ndarray


class Origin(NamedTuple):
    """Where one product of the batch begins in each array; `packed` is the number of its matrix."""

    a: int
    b: int
    y: int
    a_scale: int
    a_zero: int
    b_scale: int
    b_zero: int
    y_scale: int
    y_zero: int
    y_bias: int


@device
def origin_of(batch, work):
    """Return where product number `batch` begins."""
    a, b, y, y_bias = work.a.start, work.b.start, work.y.start, work.y_bias.start
    a_scale = a_zero = b_scale = b_zero = y_scale = y_zero = 0
    for d in range(work.walk.dims - 1, -1, -1):
        size = work.walk.sizes[d]
        i, batch = batch % size, batch // size
        a += i * work.a.strides[d]
        b += i * work.b.strides[d]
        y += i * work.y.strides[d]
        a_scale += i * work.a_scale.strides[d]
        a_zero += i * work.a_zero.strides[d]
        b_scale += i * work.b_scale.strides[d]
        b_zero += i * work.b_zero.strides[d]
        y_scale += i * work.y_scale.strides[d]
        y_zero += i * work.y_zero.strides[d]
        y_bias += i * work.y_bias.strides[d]
    return Origin(a, b, y, a_scale, a_zero, b_scale, b_zero, y_scale, y_zero, y_bias)


@shared
def groups_of(depth: int) -> int:
    """Return how many words a row of `depth` bytes takes."""
    return (depth + 3) // 4


@shared
def panels_of(columns: int) -> int:
    """Return how many panels `columns` columns take."""
    return (columns + NR - 1) // NR


@device
def space_of(part, work):
    """Return where the workspace of a share begins: with a SPACE, then packed rows (`lhs_of`)."""
    return SHARES + part * work.share_cells


@device
def lhs_of(part, work):
    """Return where the packed rows of a share begin: for each tile the sums of its rows, then its words."""
    return space_of(part, work) + SPACE_CELLS


@shared
def lhs_cells(groups: int, rows: int) -> int:
    """Return the workspace of a packed tile of a."""
    return TALLEST + (groups + KC - 1) // KC * rows * ROW_STEP // 2


@shared
def rhs_cells(panels: int, groups: int) -> int:
    """Return the workspace of packed panels, and of the gap after them.

    Microkernels prefetch beyond the end. Without a gap they would take cache lines of the next share from another core.
    """
    return (panels * groups + PREFETCH) * NR // 2


WORK_CELLS, SPACE_CELLS = cells_of(WORK), cells_of(SPACE)
