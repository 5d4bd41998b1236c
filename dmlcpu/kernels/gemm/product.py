"""The product: tiles of exact sums from packed operands, handed to an epilogue while they are in the nearest cache.

    for each task (batch, rows, panels):                          run_tasks
        for each NC panels of b, kept in the second cache:        run_task     packs them, unless b is packed
            choose their form                                     forms.py     for AVX2 without VNNI alone
            for each MR rows of a:                                run_block    packs them, unless they are kept
                for each panel:                                   run_tile
                    acc = the zero points' terms                  zero_points.py
                    for each CHUNK of K: acc += rows @ panel      microkernels/
                    y = epilogue(acc)                             epilogue.py

The right column names the function, or the file, of each step.
"""

from typing import Any, NamedTuple

import numpy as np

from dmlcpu.kernels.gemm.epilogue import REQUANTIZE, Epilogue, Tile, nothing
from dmlcpu.kernels.gemm.microkernels.generic import GENERIC
from dmlcpu.kernels.gemm.microkernels.microkernel import KC, MR, NR, ROW_STEP, TALLEST, Microkernel, make_dot
from dmlcpu.kernels.gemm.pack import Lhs, Rhs, pack_panels, pack_rows
from dmlcpu.kernels.gemm.work import COUNTER, SPACE, lhs_cells, lhs_of, origin_of, rhs_cells, space_of
from dmlcpu.kernels.gemm.zero_points import any_b_zero, load_a_zeros, load_bias, start, start_wide
from dmlcpu.kernels.walk import share
from dmlcpu.runtime.atomics import fetch_add
from dmlcpu.runtime.intrinsics import Strided, as_words, either
from dmlcpu.runtime.jit import device, inlined
from dmlcpu.runtime.kernel import Kernel
from dmlcpu.runtime.records import record_at
from dmlcpu.runtime.variants import specialized, variant

# Each variant replaces these names: MR and HALF_MR, the rows of tall tiles (lower ones have 4 and 1); the microkernel
# for each height; `begin` and `end`, which a thread calls before and after its products; and the epilogue. A variant
# with forms also replaces CHUNK, the words of K at a time; COUNTS, whether packing counts saturating pairs; and the
# functions up to `complete`.
HALF_MR, CHUNK, COUNTS = 8, KC, False
dot_mr = dot_half = dot_4 = dot_1 = make_dot(1, GENERIC)
prepare_columns, prepare_rows, epilogue, prefetch = REQUANTIZE.names().values()
begin = end = nothing

BYTES = 0  # the number of the usual form; forms.py has others


class Form(NamedTuple):
    """How the words of a block of panels are multiplied."""

    number: int
    words: np.ndarray
    clips: np.ndarray  # int64: what the words lack
    groups: int  # of a panel; int16 has twice as many as bytes


@inlined
def form_rhs(words, saturating, panels, rows, slot, work, scratch):
    """Return the form of packed panels.

    saturating: how many pairs of bytes saturate, -1 if unknown; rows: of a; slot: the place of a copy in the workspace.
    """
    return Form(BYTES, words, scratch, work.groups)


@inlined
def form_lhs(form, lhs, work):
    """Change packed rows to the form that a block of panels needs."""


@inlined
def has_form(form, space):
    """Return whether kept rows have the form that a block of panels needs."""
    return True


@inlined
def multiply_tile(form, lhs, lhs_at, rhs_at, depth, c_in, acc):
    """Add rows @ panel for a chunk of K."""
    if lhs.height == MR:
        dot_mr(lhs.words, lhs_at, form.words, rhs_at, depth, c_in, acc)
    elif lhs.height == HALF_MR:
        dot_half(lhs.words, lhs_at, form.words, rhs_at, depth, c_in, acc)
    elif lhs.height == 4:
        dot_4(lhs.words, lhs_at, form.words, rhs_at, depth, c_in, acc)
    else:
        dot_1(lhs.words, lhs_at, form.words, rhs_at, depth, c_in, acc)


@inlined
def complete(form, panel, lhs, acc):
    """Add the products that a form leaves out."""


class Block(NamedTuple):
    """A range of panels, packed."""

    first: int
    last: int
    form: Form
    sums: np.ndarray  # of their columns
    has_b_zero: bool
    from_bias: bool  # all rows of a tile start with the bias


@inlined
def run_task(number, part, has_rows, operands, terms, work, scratch):
    """Multiply the rows and panels of a task. has_rows: the previous task had the same rows.

    A task has a range of rows and a range of panels of one product. Tasks with the same rows have consecutive numbers.
    """
    row_part, column_part = number // work.column_parts % work.row_parts, number % work.column_parts
    first_tile, last_tile = share(row_part, work.row_parts, (work.M + MR - 1) // MR)
    first_row, last_row = first_tile * MR, min(work.M, last_tile * MR)
    first_panel, last_panel = share(column_part, work.column_parts, work.panels)
    space = record_at(scratch, space_of(part, work), SPACE)
    origin = origin_of(number // (work.row_parts * work.column_parts), work)
    has_b_zero = any_b_zero(origin, operands, work)
    for first in range(first_panel, last_panel, work.NC):
        last = min(first + work.NC, last_panel)
        words, sums, saturating = packed_rhs(first, last, part, origin, operands, work, scratch)
        load_bias(first * NR, (last - first) * NR, sums, origin, operands, work, space.columns)
        prepare_columns(first * NR, (last - first) * NR, origin, terms, work, space.columns)
        slot = rhs_of(part, work) + (0 if work.b_is_packed else rhs_cells(work.NC, work.groups))
        form = form_rhs(words, saturating, last - first, last_row - first_row, slot, work, scratch)
        block = Block(first, last, form, sums, has_b_zero, work.same_start and not has_b_zero)
        has_rows = has_form(form, space) and has_rows and work.keeps_rows
        run_block(first_row, last_row, block, has_rows, part, origin, operands, terms, work, scratch)
        has_rows = True


@device
def rhs_of(part, work):
    """Return where the panels of a share begin: those that it packs, then a copy in another form."""
    return lhs_of(part, work) + work.slots * lhs_cells(work.row_words, MR)


@device
def packed_rhs(first, last, part, origin, operands, work, scratch):
    """Return panels of b, packed, the sums of their columns, and how many of their pairs saturate, -1 if unknown."""
    if work.b_is_packed:
        panel = origin.b * work.panels + first
        words = as_words(operands.packed, panel * work.groups * NR // 2, np.uint32)
        return words, as_words(operands.packed_sums, panel * NR, np.int64), np.int64(work.is_exact) - 1
    space = record_at(scratch, space_of(part, work), SPACE)
    words = as_words(scratch, rhs_of(part, work), np.uint32)
    sums = as_words(space.columns.sums, 0, np.int64)
    rhs = Rhs(operands.b, origin.b, work.N, work.K, work.b.row, work.b.column, work.b_sign_flip)
    saturating = np.int64(pack_panels(rhs, first, last, words, sums, COUNTS))
    return words, sums, np.int64(0) if work.is_exact else saturating


@device  # not inlined, so that it has all registers; otherwise small products took up to a quarter longer
def run_block(first_row, last_row, block, has_rows, part, origin, operands, terms, work, scratch):
    """Multiply the rows of a task by a block of panels. has_rows: they are packed."""
    space = record_at(scratch, space_of(part, work), SPACE)
    for row in range(first_row, last_row, MR):
        count = min(MR, last_row - row)
        height = MR if count > HALF_MR else HALF_MR if count > 4 else 4 if count > 1 else 1
        slot = lhs_of(part, work) + (row - first_row) // MR % work.slots * lhs_cells(work.row_words, MR)
        lhs = Lhs(height, as_words(scratch, slot + TALLEST, np.uint32), as_words(scratch, slot, np.int64))
        if not has_rows:
            rows = Strided(operands.a, origin.a + row * work.a.row, work.a.row, count)
            pack_rows(rows, lhs, MR, work, block.has_b_zero)
            form_lhs(block.form, lhs, work)
        if row == first_row or not work.same_rows:
            load_a_zeros(row, last_row, MR, origin, operands, work, space.rows)
            prepare_rows(row, last_row, MR, origin, terms, work, space.rows)
        for panel in range(block.first, block.last):
            place = origin.y + row * work.y.row + panel * NR * work.y.column
            bias = origin.y_bias + row * work.y_bias.row + panel * NR * work.y_bias.column
            tile = Tile(count, (panel - block.first) * NR, min(NR, work.N - panel * NR), place, bias)
            run_tile(tile, lhs, block, terms.out, work, space)


@inlined
def run_tile(tile, lhs, block, out, work, space):
    """Form the sums of a tile and hand them to the epilogue."""
    prefetch(tile, out, work)  # it arrives while the sums are formed
    if work.is_wide:
        start_wide(lhs, tile.column, block.sums, work, space)
    elif not block.from_bias:
        start(lhs, tile.column, block.has_b_zero, work, space)
    accumulate(tile.column, lhs, block, work, space)
    if work.is_wide:
        epilogue(space.wide, tile, out, work, space)
    else:
        epilogue(space.acc, tile, out, work, space)


@inlined
def accumulate(column, lhs, block, work, space):
    """Add rows @ panel to the accumulators, CHUNK words of K at a time."""
    from_bias, is_wide, groups = block.from_bias, work.is_wide, block.form.groups
    for chunk in range(0, groups, CHUNK):
        before = either(from_bias, space.columns.bias, column, space.acc)
        c_in = Strided(before, 0, 0 if from_bias else NR, lhs.height)
        lhs_at, rhs_at = chunk // KC * MR * ROW_STEP + chunk % KC, column * groups + chunk * NR
        depth = min(CHUNK, groups - chunk)
        multiply_tile(block.form, lhs, lhs_at, rhs_at, depth, c_in, space.acc)
        from_bias = False
        if is_wide:
            widen(lhs.height, space.acc, space.wide)
    complete(block.form, column // NR, lhs, space.acc)


@device
def widen(height, acc, wide):
    """Move the sums of a chunk to float64."""
    for row in range(height):
        for column in range(NR):
            wide[row, column] += acc[row, column]
            acc[row, column] = 0


@inlined
def run_tasks(part, operands, terms, work, scratch):
    """Take runs of tasks until none is left: a faster core does more. scratch[COUNTER]: the next run."""
    rows_before = -1  # the batch and row part whose rows of a are packed
    begin()
    first = work.run * fetch_add(scratch, COUNTER)
    while first < work.tasks:
        for number in range(first, min(first + work.run, work.tasks)):
            rows = number // work.column_parts
            run_task(number, part, rows == rows_before, operands, terms, work, scratch)
            rows_before = rows
        first = work.run * fetch_add(scratch, COUNTER)
    end()


def make_kernel(name: str, using: Epilogue, **names: Any) -> Kernel:
    """Return the kernel that this loop nest makes of an epilogue; `names` are replaced in it."""
    return variant(using.entry, name, run_tasks=specialized(run_tasks, **names))


def make_product(name: str, microkernel: Microkernel, using: Epilogue) -> Kernel:
    """Return the kernel that a microkernel for vectors and an epilogue make."""
    half = microkernel.unit.half
    heights = {"dot_mr": MR, "dot_half": half, "dot_4": 4, "dot_1": 1}
    dots = {each: make_dot(height, microkernel) for each, height in heights.items()}
    return make_kernel(name, using, HALF_MR=half, **dots, **using.names())


def make_amx_product(name: str, microkernel: Microkernel, using: Epilogue) -> Kernel:
    """Return the kernel of tile registers and an epilogue; a microkernel for vectors multiplies the remaining rows."""
    from dmlcpu.kernels.gemm.microkernels import amx  # only for processors with AMX

    return make_kernel(
        name,
        using,
        MR=TALLEST,
        HALF_MR=amx.TILE_ROWS,
        dot_mr=amx.make_tile_dot(TALLEST),
        dot_half=amx.make_tile_dot(amx.TILE_ROWS),
        dot_4=make_dot(4, microkernel),
        dot_1=make_dot(1, microkernel),
        begin=amx.configure_tiles,
        end=amx.release_tiles,
        **using.names(),
    )
