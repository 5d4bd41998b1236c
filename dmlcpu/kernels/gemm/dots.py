"""Few rows times a matrix with contiguous columns, such as transposed vectors: each column is read once, in order.

    for each task (batch, columns):                              product.py
        for each NC panels:                                      run_task
            for each panel: sums = rows of a @ columns of b      multiply, microkernels/dots.py
                y = epilogue(sums + the zero points' terms)      hand_over

Here the bytes of a are signed and those of b unsigned. So an int8 a without a zero point needs no sums of columns.
Otherwise a row of ones below the rows of a gives these sums.
"""

import numpy as np

from dmlcpu.kernels.gemm.epilogue import REQUANTIZE, Epilogue, Tile
from dmlcpu.kernels.gemm.microkernels.dots import DEPTH_STEP, make_dots
from dmlcpu.kernels.gemm.microkernels.generic import GENERIC
from dmlcpu.kernels.gemm.microkernels.microkernel import NR, Microkernel
from dmlcpu.kernels.gemm.microkernels.rows import add_product, copy_bytes
from dmlcpu.kernels.gemm.product import make_kernel
from dmlcpu.kernels.gemm.work import SPACE, lhs_of, origin_of, space_of
from dmlcpu.kernels.gemm.zero_points import a_zero_of
from dmlcpu.kernels.walk import share
from dmlcpu.runtime.intrinsics import Strided, as_words
from dmlcpu.runtime.jit import device, inlined
from dmlcpu.runtime.kernel import Kernel
from dmlcpu.runtime.records import record_at
from dmlcpu.runtime.variants import specialized

MIDDLE = 128  # a signed byte is the unsigned one less this

# Each variant replaces these names.
dots, LANES = make_dots(GENERIC), GENERIC.unit.lanes
prepare_columns, prepare_rows, epilogue = REQUANTIZE.steps().values()


@inlined
def run_task(number, part, has_rows, operands, terms, work, scratch):
    """Multiply all rows and a part of the columns of one product. has_rows: the rows are packed."""
    batch, column_part = number // work.column_parts, number % work.column_parts
    origin, space = origin_of(batch, work), record_at(scratch, space_of(part, work), SPACE)
    step = 4 * work.row_words  # bytes of a row in the workspace
    rows = as_words(scratch, lhs_of(part, work), np.uint8)
    words, apart = as_words(rows, 0, np.uint32), as_words(rows, (work.M + 1) * step, np.uint8)
    if not has_rows:
        load_rows(origin, operands, work, rows, step, space.rows)
    prepare_rows(0, work.M, work.M, origin, terms, work, space.rows)
    needs_sums = False
    for row in range(work.M):
        needs_sums |= space.rows.a_zero[row] != 0
    first_panel, last_panel = share(column_part, work.column_parts, work.panels)
    for first in range(first_panel, last_panel, work.NC):
        last = min(first + work.NC, last_panel)
        load_columns(first * NR, (last - first) * NR, origin, operands, work, space.columns)
        prepare_columns(first * NR, (last - first) * NR, origin, terms, work, space.columns)
        for panel in range(first, last):
            multiply(panel, work.M + needs_sums, origin, operands.b, words, apart, work, space)
            hand_over(panel, (panel - first) * NR, needs_sums, origin, terms, work, space)


@device
def load_rows(origin, operands, work, rows, step, row_terms):
    """Copy the rows of a as signed bytes, zero after K, and a row of ones; fill their sums and zero points."""
    flip = np.uint8(work.a_sign_flip ^ MIDDLE)
    for row in range(work.M + 1):
        place, total = origin.a + row * work.a.row, np.int64(0)
        for k in range(step):
            byte = np.uint8(0)
            if k < work.K:
                byte = operands.a[place + k * work.a.column] ^ flip if row < work.M else np.uint8(1)
            rows[row * step + k] = byte
            total += np.int64(np.int8(byte))
        if row < work.M:
            row_terms.sums[row] = total
            row_terms.a_zero[row] = a_zero_of(row, origin, operands, work) - MIDDLE


@device
def load_columns(first, count, origin, operands, work, columns):
    """Fill the zero points of `count` columns, of unsigned bytes, from `first` on."""
    flip = np.uint8(work.b_sign_flip ^ MIDDLE)
    for j in range(count):
        place = origin.b_zero + min(first + j, work.N - 1) * work.b_zero.step
        columns.b_zero[j] = np.int32(operands.b_zero[place] ^ flip)


@inlined
def multiply(panel, rows, origin, b, words, apart, work, space):
    """Write the sums of the products of a panel's columns. apart: where columns lie that end where b does."""
    column, step = panel * NR, work.b.column
    width, line = min(NR, work.N - column), (work.K + DEPTH_STEP - 1) // DEPTH_STEP * DEPTH_STEP
    place, flip = origin.b + column * step, work.b_sign_flip ^ MIDDLE
    is_inside = width == NR and place + (NR - 1) * step + line <= b.size
    for j in range(0 if is_inside else width):
        copy_bytes(b, place + j * step, apart, j * line, work.K)
    if not is_inside:
        place, step = np.intp(0), line
    source = as_words(b, 0, np.uint8) if is_inside else as_words(apart, 0, np.uint8)
    for row in range(rows):
        for j in range(0, NR, LANES):
            columns = Strided(source, place + j * step, step, LANES)
            dots(columns, work.K, flip, words, row * work.row_words, space.acc, row * NR + j)


@inlined
def hand_over(panel, column, has_sums, origin, terms, work, space):
    """Subtract the zero points' terms from the sums of a panel, and hand it to the epilogue."""
    for row in range(work.M):
        a_zero = space.rows.a_zero[row]
        rest = np.int32(work.K * a_zero - space.rows.sums[row])
        add_product(space.acc, row * NR, rest, space.columns.b_zero, column)
        if has_sums:
            add_product(space.acc, row * NR, np.int32(-a_zero), space.acc, work.M * NR)
    first = panel * NR
    place, bias = origin.y + first * work.y.column, origin.y_bias + first * work.y_bias.column
    tile = Tile(work.M, column, min(NR, work.N - first), place, bias)
    epilogue(space.acc, tile, terms.out, work, space)


def make_dots_product(name: str, microkernel: Microkernel, using: Epilogue) -> Kernel:
    """Return the kernel that a microkernel for vectors and an epilogue make."""
    names = {"dots": make_dots(microkernel), "LANES": microkernel.unit.lanes}
    return make_kernel(name, using, run_task=specialized(run_task, **names, **using.steps()))
