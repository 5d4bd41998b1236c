"""The cut of a product's work, and the workspace of a share, for plans and for compiled callers."""

from typing import NamedTuple

from dmlcpu.kernels.gemm.microkernels.dots import DEPTH_STEP
from dmlcpu.kernels.gemm.microkernels.microkernel import NR
from dmlcpu.kernels.gemm.microkernels.skinny import BLOCK
from dmlcpu.kernels.gemm.work import MOST_PANELS, NARROW, SPACE_CELLS, groups_of, lhs_cells, panels_of, rhs_cells
from dmlcpu.runtime.jit import shared

# With more rows, packing b pays (Xeon with VNNI). With AVX2 (Zen 4) and 8 to 32 rows, both ways take the same time for
# bytes of full range, and packing takes 1.2 times as long for bytes of 7 bits.
MOST_ROWS = 16
# With more rows, packing pays for contiguous columns as well: 4 rows by 384 x 100,000 take 0.85 ms without packing and
# 1.0 ms with it, 8 rows 1.5 and 1.1 ms (Zen 5).
MOST_DOT_ROWS = 4
# Up to this many bytes of a's rows stay packed from one block of columns to the next; more are packed again for each
# block. This and the next were measured on a Xeon with VNNI; with AVX2 on Zen 4 it makes no difference.
KEPT_LHS = 4 << 20
# Up to this many rows of a, a copy of b in another form takes longer than it saves (see forms.py). On Zen 4 both take
# the same time with some 50 rows if few pairs of bytes saturate; int16 gains a tenth there with any number of rows.
WIDENED_ROWS = 48
# Bytes of the sums of a few rows: they stay in a near cache while b is read. 16 KiB are slower, 256 KiB take the same
# time, also with AVX2 on Zen 4.
SKINNY_SUMS = 64 << 10


class Cut(NamedTuple):
    """How the work is cut; the work record describes the fields."""

    NC: int
    slots: int
    keeps_rows: bool
    row_words: int
    share_cells: int


@shared
def fits_few_rows(rows: int, columns: int, depth: int, column_step: int) -> bool:
    """Return whether the kernel for few rows can do a product: sums fit int32, and BLOCK bytes of b are contiguous."""
    return rows <= MOST_ROWS and 0 < depth <= NARROW and columns >= BLOCK and column_step == 1


@shared
def cut_tiles(
    rows: int,
    columns: int,
    depth: int,
    mr: int,
    row_parts: int,
    column_parts: int,
    is_packed: bool,
    has_forms: bool,
    cache: int,
) -> Cut:
    """Return how a product of packed operands is cut.

    mr: rows of the tallest tile; has_forms: bytes may become int16; cache: bytes of the second cache.
    """
    groups, panels = groups_of(depth), panels_of(columns)
    has_copies = has_forms and rows > WIDENED_ROWS
    row_words = 2 * groups if has_copies else groups
    NC = max(1, min(cache // 2 // max(1, 4 * row_words * NR), MOST_PANELS, -(-panels // column_parts)))
    tiles, tile = -(-rows // mr), lhs_cells(row_words, mr)
    slots = -(-tiles // row_parts)
    # Each block of columns reads all rows again.
    keeps_rows = panels > NC and 8 * slots * tile <= KEPT_LHS
    if not keeps_rows:
        slots = 1
    rhs = (0 if is_packed else rhs_cells(NC, groups)) + (rhs_cells(NC, row_words) if has_copies else 0)
    return Cut(NC, slots, keeps_rows, row_words, SPACE_CELLS + slots * tile + rhs)


@shared
def cut_skinny(rows: int, columns: int, depth: int, column_parts: int, sums: int) -> Cut:
    """Return how a product of few rows is cut. sums: bytes that the sums of a block of columns may take."""
    blocks = -(-columns // BLOCK)
    NC = BLOCK // NR * max(1, min(sums // ((rows + 1) * 4 * BLOCK), -(-blocks // column_parts)))
    return Cut(NC, 1, True, groups_of(depth), fixed_cells(rows, depth) + (rows + 1) * step_of(NC) // 2)


def cut_dots(rows: int, columns: int, depth: int, column_parts: int) -> Cut:
    """Return how a product of few rows and contiguous columns is cut."""
    line = -(-depth // DEPTH_STEP) * DEPTH_STEP
    NC = max(1, min(MOST_PANELS, -(-panels_of(columns) // column_parts)))
    return Cut(NC, 1, True, line // 4, SPACE_CELLS + (rows + 1 + NR) * line // 8)


def fits_dots(rows: int, depth: int) -> bool:
    """Return whether the kernel for contiguous columns can do a product: sums fit int32."""
    return rows <= MOST_DOT_ROWS and 0 < depth <= NARROW


@shared
def fixed_cells(rows: int, depth: int) -> int:
    """Return the cells that a share of few rows needs, without its sums: the record, and the packed rows of a."""
    return SPACE_CELLS + lhs_cells(groups_of(depth), rows + 1)


@shared
def step_of(NC: int) -> int:
    """Return the distance between rows of a block's accumulators; a whole panel after the block is readable."""
    return (NC + 1) * NR
