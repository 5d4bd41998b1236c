"""Epilogues turn a tile of exact sums into results. Each kernel is a loop nest with one of them.

An epilogue consists of a kernel's arguments, its `entry`, and functions of tiles: `prepare_columns` prepares the
columns of a block, `prepare_rows` the rows of a tile, and `epilogue` turns a tile of accumulators into elements of y.
The one in ../selection/candidates.py writes no y.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from dmlcpu.kernels.gemm.microkernels.microkernel import NR
from dmlcpu.kernels.gemm.microkernels.rows import (
    copy_bytes,
    copy_elements,
    load_scales,
    multiply_row,
    requantize,
    scale_row,
    store_elements,
    store_floats,
    store_rows,
)
from dmlcpu.kernels.gemm.work import WORK, Operands
from dmlcpu.runtime.intrinsics import Strided, as_words, either, prefetch_rows
from dmlcpu.runtime.jit import device, inlined
from dmlcpu.runtime.records import record_at


class Tile(NamedTuple):
    """Where a tile is in the product, in the prepared columns, and in y."""

    rows: int  # to be written; the microkernel may compute more
    column: int  # the first, in the block
    columns: int  # to be written
    place: int  # of the tile's first element in y
    bias: int  # the place of its first element in y_bias


class Epilogue(NamedTuple):
    """The last step of a product, with the arguments of its kernels."""

    # (part, parts, arrays, works, scratch): makes `Operands` of the arrays, and terms, which the other functions read
    # and write. Then it calls `run_tasks`, a name that each loop nest replaces.
    entry: Callable[..., Any]
    prepare_columns: Callable[..., Any]  # (first, count, origin, terms, work, columns)
    prepare_rows: Callable[..., Any]  # (first, last, height, origin, terms, work, rows); once, if all rows are alike
    # (acc, tile, terms.out, work, space); acc: int32, or float64 if sums are wide. All terms would be copied.
    epilogue: Callable[..., Any]
    prefetch: Callable[..., Any]  # (tile, terms.out, work), before the sums of a tile are formed

    def names(self) -> dict[str, Callable[..., Any]]:
        """Return the names that a variant of a product of tiles replaces."""
        return {**self.steps(), "prefetch": self.prefetch}

    def steps(self) -> dict[str, Callable[..., Any]]:
        """Return the names that a variant for few rows replaces."""
        return dict(zip(self._fields[1:4], self[1:4], strict=True))


class Out(NamedTuple):
    """What the tiles of a product read and write."""

    y: np.ndarray  # bytes, int32, int64, float32, or the bits of float16
    y_bias: np.ndarray  # float32


class Terms(NamedTuple):
    """The scales, zero points and results of a product, as flat arrays; scales are float32, zero points bytes."""

    a_scale: np.ndarray
    b_scale: np.ndarray
    y_scale: np.ndarray
    y_zero: np.ndarray
    out: Out


run_tasks: Any = None  # each loop nest replaces it


def product(part, parts, a, b, packed, packed_sums, a_scale, a_zero, b_scale, b_zero, y_scale, y_zero, y_bias, y,
            works, scratch):  # fmt: skip
    """Run a share of a product. The arrays are separate arguments, because a kernel takes only arrays and numbers."""
    operands = Operands(a, b, packed, packed_sums, a_zero, b_zero)
    terms = Terms(a_scale, b_scale, y_scale, y_zero, Out(y, y_bias))
    run_tasks(part, operands, terms, record_at(works, 0, WORK), scratch)


@inlined
def prefetch_y(tile, out, work):
    """Prefetch the rows of a tile in y."""
    prefetch_rows(Strided(out.y, tile.place, work.y.row, tile.rows))


@device
def load_multipliers(first, count, origin, terms, work, columns):
    """Fill the scales of `count` columns from `first` on, or the multipliers if all rows have the same."""
    step, there = work.b_scale.step, min(count, work.N - first)
    load_scales(Strided(terms.b_scale, origin.b_scale + first * step, step, there), columns.scale)
    for j in range(there, count):
        columns.scale[j] = 0
    if work.same_multiplier:
        a_scale, y_scale = terms.a_scale[origin.a_scale], terms.y_scale[origin.y_scale]
        for j in range(0, count, NR):
            scale_row(columns.scale, j, a_scale, y_scale, columns.scale, j)


@device
def load_limits(first, last, height, origin, terms, work, rows):
    """Fill scales and y's zero points and limits of `height` rows from `first` on; the last row is repeated."""
    for i in range(height):
        row = min(first + i, last - 1)
        rows.a_scale[i] = terms.a_scale[origin.a_scale + row * work.a_scale.step]
        rows.y_scale[i] = terms.y_scale[origin.y_scale + row * work.y_scale.step]
        byte = terms.y_zero[origin.y_zero + row * work.y_zero.step]
        zero = np.int64(np.int8(byte)) if work.lowest < 0 else np.int64(byte)
        rows.y_zero[i] = byte
        rows.lowest[i], rows.highest[i] = np.float32(work.lowest - zero), np.float32(work.highest - zero)


@device
def requantized(acc, tile, out, work, space):
    """Write round(clip(float32(sum) * multiplier)) + zero point, bytes."""
    y, rows, is_one = out.y, space.rows, work.same_multiplier != 0
    for row in range(0 if is_one else tile.rows):
        scale_row(space.columns.scale, tile.column, rows.a_scale[row], rows.y_scale[row], space.multipliers, row * NR)
    multipliers, step = either(is_one, space.columns.scale, tile.column, space.multipliers), 0 if is_one else NR
    is_whole = tile.columns == NR and work.y.column == 1  # rows are written to y directly
    target, target_step = either(is_whole, y, tile.place, space.bytes), work.y.row if is_whole else NR
    requantize(acc, Strided(multipliers, 0, step, tile.rows), rows.lowest, rows.highest, rows.y_zero,
               Strided(target, 0, target_step, tile.rows))  # fmt: skip
    if is_whole:
        return
    for row in range(tile.rows):
        place = tile.place + row * work.y.row
        if work.y.column == 1:
            copy_bytes(space.bytes, row * NR, y, place, tile.columns)
        else:
            for column in range(tile.columns):
                y[place + column * work.y.column] = space.bytes[row, column]


@device
def nothing(*_):
    """Do nothing."""


@device
def stored(acc, tile, out, work, space):
    """Write the sums: modulo 2**32 if y is int32, exact if it is int64."""
    y = out.y
    if tile.columns == NR and work.y.column == 1:
        store_rows(acc, Strided(y, tile.place, work.y.row, tile.rows))
        return
    for row in range(tile.rows):
        store_elements(acc, row * NR, Strided(y, tile.place + row * work.y.row, work.y.column, tile.columns))


@device
def load_factors(first, count, origin, terms, work, columns):
    """Fill the scales and the bias of `count` columns from `first` on, if all rows share them."""
    step, there = work.b_scale.step, min(count, work.N - first)
    load_scales(Strided(terms.b_scale, origin.b_scale + first * step, step, there), columns.scale)
    if work.y_bias.row == 0:
        step = work.y_bias.column
        load_scales(Strided(terms.out.y_bias, origin.y_bias + first * step, step, there), columns.y_bias)
    for j in range(there, count):
        columns.scale[j] = columns.y_bias[j] = 0
    if work.same_multiplier:
        for j in range(0, count, NR):
            multiply_row(columns.scale, j, terms.a_scale[origin.a_scale], columns.scale, j)


@device
def load_row_scales(first, last, height, origin, terms, work, rows):
    """Fill scales of `height` rows from `first` on; the last row is repeated."""
    for i in range(height):
        rows.a_scale[i] = terms.a_scale[origin.a_scale + min(first + i, last - 1) * work.a_scale.step]


@device
def to_float(acc, tile, out, work, space):
    """Write float32(sum) * multiplier + bias, float32 or the bits of float16."""
    y, y_bias = out.y, out.y_bias
    is_one, all_columns = work.same_multiplier != 0, tile.columns == NR
    for row in range(0 if is_one else tile.rows):
        multiply_row(space.columns.scale, tile.column, space.rows.a_scale[row], space.multipliers, row * NR)
    multipliers, step = either(is_one, space.columns.scale, tile.column, space.multipliers), 0 if is_one else NR
    same_bias, bias_lies = work.y_bias.row == 0, all_columns and work.y_bias.column == 1
    for row in range(0 if same_bias or bias_lies else tile.rows):
        source = Strided(y_bias, tile.bias + row * work.y_bias.row, work.y_bias.column, tile.columns)
        copy_elements(source, Strided(space.y_bias, row * NR, 1, tile.columns))
    of_rows, row_step = either(bias_lies, y_bias, tile.bias, space.y_bias), work.y_bias.row if bias_lies else NR
    bias, bias_step = either(same_bias, space.columns.y_bias, tile.column, of_rows), 0 if same_bias else row_step
    is_whole, apart = all_columns and work.y.column == 1, as_words(space.floats, 0, y)  # whole rows go to y directly
    target, target_step = either(is_whole, y, tile.place, apart), work.y.row if is_whole else NR
    store_floats(acc, Strided(multipliers, 0, step, tile.rows), Strided(bias, 0, bias_step, tile.rows),
                 Strided(target, 0, target_step, tile.rows))  # fmt: skip
    for row in range(0 if is_whole else tile.rows):
        result = Strided(y, tile.place + row * work.y.row, work.y.column, tile.columns)
        copy_elements(Strided(apart, row * NR, 1, tile.columns), result)


# QUANTIZED_LINEAR_MATRIX_MULTIPLY, MATRIX_MULTIPLY_INTEGER, and MATRIX_MULTIPLY_INTEGER_TO_FLOAT.
REQUANTIZE = Epilogue(product, load_multipliers, load_limits, requantized, prefetch_y)
SUMS = Epilogue(product, nothing, nothing, stored, prefetch_y)
TO_FLOAT = Epilogue(product, load_factors, load_row_scales, to_float, prefetch_y)
