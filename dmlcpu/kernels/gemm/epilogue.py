"""Epilogues turn a tile of exact sums into elements of y. Each kernel of a product is made with one of them.

An epilogue is three functions. `prepare_columns` prepares the columns of a block, `prepare_rows` the rows of a tile,
and `epilogue` turns a tile of accumulators into elements of y.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from dmlcpu.kernels.gemm.microkernels.microkernel import NR
from dmlcpu.kernels.gemm.microkernels.rows import (
    copy_bytes,
    load_scales,
    requantize,
    scale_row,
    store_elements,
    store_rows,
)
from dmlcpu.runtime.intrinsics import either
from dmlcpu.runtime.jit import device


class Tile(NamedTuple):
    """Where a tile is in the product, in the prepared columns, and in y."""

    rows: int  # that are written; the microkernel may compute more
    column: int  # the first, in the block
    columns: int  # that are written
    place: int  # of its first element in y


class Epilogue(NamedTuple):
    """The last step of a product's variant."""

    suffix: str  # of the names of its kernels
    wraps: bool  # an int32 y gets sums modulo 2**32, which int32 accumulators hold for any K
    prepare_columns: Callable[..., Any]  # (first, count, origin, arrays, work, columns)
    prepare_rows: Callable[..., Any]  # (first, last, height, origin, arrays, work, rows); once, if all rows are alike
    # (acc, tile, y, work, space); acc: int32, or float64 if sums are wide. All arrays would be copied for each tile.
    epilogue: Callable[..., Any]

    def names(self) -> dict[str, Callable[..., Any]]:
        """Return the names that a variant replaces."""
        functions = self._asdict()
        return {name: functions[name] for name in ("prepare_columns", "prepare_rows", "epilogue")}


@device
def load_multipliers(first, count, origin, arrays, work, columns):
    """Fill the scales of `count` columns from `first` on, or the multipliers if all rows have the same."""
    place, step, there = origin.b_scale + first * work.b_scale.step, work.b_scale.step, min(count, work.N - first)
    load_scales(arrays.b_scale, place, step, there, columns.scale)
    for j in range(there, count):
        columns.scale[j] = 0
    if work.same_multiplier:
        a_scale, y_scale = arrays.a_scale[origin.a_scale], arrays.y_scale[origin.y_scale]
        for j in range(0, count, NR):
            scale_row(columns.scale, j, a_scale, y_scale, columns.scale, j)


@device
def load_limits(first, last, height, origin, arrays, work, rows):
    """Fill scales and y's zero points and limits of `height` rows from `first` on; the last row is repeated."""
    for i in range(height):
        row = min(first + i, last - 1)
        rows.a_scale[i] = arrays.a_scale[origin.a_scale + row * work.a_scale.step]
        rows.y_scale[i] = arrays.y_scale[origin.y_scale + row * work.y_scale.step]
        byte = arrays.y_zero[origin.y_zero + row * work.y_zero.step]
        zero = np.int64(np.int8(byte)) if work.lowest < 0 else np.int64(byte)
        rows.y_zero[i] = byte
        rows.lowest[i], rows.highest[i] = np.float32(work.lowest - zero), np.float32(work.highest - zero)


@device
def requantized(acc, tile, y, work, space):
    """Write round(clip(float32(sum) * multiplier)) + zero point, bytes."""
    rows, is_one = space.rows, work.same_multiplier != 0
    for row in range(0 if is_one else tile.rows):
        scale_row(space.columns.scale, tile.column, rows.a_scale[row], rows.y_scale[row], space.multipliers, row * NR)
    multipliers, step = either(is_one, space.columns.scale, tile.column, space.multipliers), 0 if is_one else NR
    is_whole = tile.columns == NR and work.y.column == 1  # rows are written to y directly
    target, target_step = either(is_whole, y, tile.place, space.bytes), work.y.row if is_whole else NR
    requantize(acc, tile.rows, multipliers, 0, step, rows.lowest, rows.highest, rows.y_zero, target, 0, target_step)
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
def need_no_columns(first, count, origin, arrays, work, columns):
    """Prepare nothing."""


@device
def need_no_rows(first, last, height, origin, arrays, work, rows):
    """Prepare nothing."""


@device
def stored(acc, tile, y, work, space):
    """Write the sums: modulo 2**32 if y is int32, exact if it is int64."""
    if tile.columns == NR and work.y.column == 1:
        store_rows(acc, tile.rows, y, tile.place, work.y.row)
        return
    for row in range(tile.rows):
        store_elements(acc, row * NR, tile.columns, y, tile.place + row * work.y.row, work.y.column)


# QUANTIZED_LINEAR_MATRIX_MULTIPLY, and MATRIX_MULTIPLY_INTEGER.
REQUANTIZE = Epilogue("", False, load_multipliers, load_limits, requantized)
SUMS = Epilogue("_s32", True, need_no_columns, need_no_rows, stored)
