"""What the quantized_matmul kernels are told, and how their scratch is laid out; see kernels/brief.py."""

from typing import NamedTuple

import numpy as np

from dmlcpu.kernels import brief as briefs
from dmlcpu.kernels.brief import Brief
from dmlcpu.kernels.gemm.microkernels.amx import MR as ROWS
from dmlcpu.kernels.gemm.microkernels.microkernel import KC, NR, PREFETCH, ROW_STEP
from dmlcpu.kernels.grid import Grid, flatten, offset
from dmlcpu.runtime.compilation import in_python
from dmlcpu.runtime.intrinsics import as_words
from dmlcpu.runtime.jit import device, viewer

# What the rows of the batch grid mean. B: elements, or whole matrices if they are packed.
A, B, A_SCALE, A_ZERO, B_SCALE, B_ZERO, Y_SCALE, Y_ZERO, Y = range(1, 10)

# Up to this K every sum fits an int32 in the end, whatever wrapped on the way: 255 * 255 * 33025 < 2**31.
NARROW = 33_025

# The scratch of a share, in cells of eight bytes. First what a tile needs, each part on a cache line and big enough for
# the tallest: its sums as int32, and as float64; of each row a's zero point (int64), y's zero point (a byte), the
# limits (float32) and the multipliers (float32); the bytes of the result. Then what is kept of each column of a block
# of panels, the packed left rows with their sums, and the block of panels itself unless it is packed, or the sums of
# the `direct` kernel.
HEAD = 8  # cells before the first share
WIDE = ROWS * NR // 2
A_ZEROS = WIDE + ROWS * NR
ZEROS = A_ZEROS + ROWS
LEAST = ZEROS + ROWS // 4
MOST = LEAST + ROWS // 2
ROW_MULTIPLIERS = MOST + ROWS // 2
LINES = ROW_MULTIPLIERS + ROWS * NR // 2
PANELS = LINES + ROWS * NR // 8
# Of each column: its sum (int64), what its sums start with (int32), its zero point (int32), its scale or multiplier
# (float32).
A_PANEL = NR + 3 * NR // 2
SUMS = ROWS  # room for the sums of a tile's left rows, which stand before them


class Numbers(NamedTuple):
    """The first section of the brief."""

    rows: int  # M
    columns: int  # N
    depth: int  # K
    batches: int
    row_parts: int  # into how many parts the rows of a product are cut
    column_parts: int
    block: int  # panels that are worked on together
    share: int  # cells of scratch a share
    kept: int  # tiles of left rows there is room for: all that a share needs, or one
    a_start: int
    a_row: int
    a_depth: int
    a_flip: int  # what turns a's bytes into unsigned ones, by exclusive or
    b_start: int
    b_depth: int
    b_column: int
    b_flip: int  # what turns b's bytes into signed ones
    b_packed: int
    a_scale_step: int  # from row to row, or column to column
    a_zero_step: int
    b_scale_step: int
    b_zero_step: int
    y_scale_step: int
    y_zero_step: int
    lowest: int
    highest: int
    y_start: int
    y_row: int
    y_column: int


def make_brief(numbers: Numbers, grid: Grid) -> Brief:
    """Return the brief of a product."""
    return briefs.make_brief(numbers, flatten(grid))


@device
def unpack(brief):
    """Return the numbers, in the order of their names."""
    n = brief[brief[0] :]
    return (n[0], n[1], n[2], n[3], n[4], n[5], n[6], n[7], n[8], n[9], n[10], n[11], n[12], n[13], n[14],
            n[15], n[16], n[17], n[18], n[19], n[20], n[21], n[22], n[23], n[24], n[25], n[26], n[27],
            n[28])  # fmt: skip


@viewer
def share_of(scratch, part, share, block):
    """Return the parts of a share's scratch, but for left rows and panels; see above."""
    mine = HEAD + part * share
    panels = mine + PANELS
    return (
        as_words(scratch, mine, np.int32),  # all of it, and the tile at its beginning
        as_words(scratch, mine + WIDE, np.float64),
        scratch[mine + A_ZEROS :],
        as_words(scratch, mine + ZEROS, np.uint8),
        as_words(scratch, mine + LEAST, np.float32),
        as_words(scratch, mine + MOST, np.float32),
        as_words(scratch, mine + ROW_MULTIPLIERS, np.float32),
        as_words(scratch, mine + LINES, np.uint8),
        scratch[panels:],  # the sums of columns
        as_words(scratch, panels + block * NR, np.int32),  # what the sums of a tile start with
        as_words(scratch, panels + 3 * block * NR // 2, np.int32),  # zero points of columns
        as_words(scratch, panels + 2 * block * NR, np.float32),  # scales or multipliers
    )


@viewer
def parameters_of(grid, batch, a_scale, a_zero, b_scale, b_zero, y_scale, y_zero):
    """Return the scales and zero points of one product of a batch, in that order."""
    return (
        a_scale[offset(grid, A_SCALE, batch) :],
        a_zero[offset(grid, A_ZERO, batch) :],
        b_scale[offset(grid, B_SCALE, batch) :],
        b_zero[offset(grid, B_ZERO, batch) :],
        y_scale[offset(grid, Y_SCALE, batch) :],
        y_zero[offset(grid, Y_ZERO, batch) :],
    )


@device
def groups_of(depth):
    """Return how many words a row of so many bytes takes."""
    return (depth + 3) // 4


@device
def panels_of(columns):
    """Return how many panels so many columns take."""
    return (columns + NR - 1) // NR


@device
def left_cells(groups, rows):
    """Return the scratch that so many left rows take."""
    return SUMS + (groups + KC - 1) // KC * rows * ROW_STEP // 2


def share_cells(depth: int, block: int, rows: int, kept: int, packs: bool) -> int:
    """Return how much scratch a share needs for blocks of so many panels; `packs`: and for packing them."""
    groups = in_python(groups_of)(depth)
    left: int = kept * in_python(left_cells)(groups, rows)
    # Multipliers ask for words so far ahead: were those the next share's tile, they would take it from its core.
    own = (block * groups + PREFETCH) * NR // 2 if packs else 0
    return PANELS + block * A_PANEL + left + own


@device
def sums_step(block):
    """Return how far rows of the sums of a block of columns are apart: beyond its end a whole panel can be read."""
    return (block + 1) * NR


def direct_cells(depth: int, block: int, rows: int) -> int:
    """Return how much scratch a share needs for products that are done without packing."""
    left: int = in_python(left_cells)(in_python(groups_of)(depth), rows + 1)
    sums: int = (rows + 1) * in_python(sums_step)(block) // 2
    return PANELS + block * A_PANEL + left + sums
