"""How an update changes elements: overwrite, add, multiply, minimum, maximum.

If the result of an addition or multiplication is NaN, it is always the same quiet NaN. A processor chooses the payload
by the order of the operands, but results here depend only on the arguments.
"""

from typing import NamedTuple

import numpy as np

from dmlcpu.kernels.half import bfloat16_to_float32, float16_to_float32, float32_to_bfloat16, float32_to_float16
from dmlcpu.kernels.scatter_nd.rows import (
    add_run,
    copy_run,
    is_less,
    maximum_run,
    minimum_run,
    signed_maximum_run,
    signed_minimum_run,
)
from dmlcpu.runtime.jit import device

# Kernels see integers without a sign: with one, only their extremes differ.
OVERWRITE, ADD, MULTIPLY, MINIMUM, MAXIMUM, SIGNED_MINIMUM, SIGNED_MAXIMUM, MULTIPLY_COMPLEX = range(8)
EXTREMES = MINIMUM, MAXIMUM, SIGNED_MINIMUM, SIGNED_MAXIMUM
PLAIN, FLOAT16, BFLOAT16 = range(3)


class Run(NamedTuple):
    """The layout of a run, copied from the work record, whose fields loops with stores would load again and again."""

    length: int
    out_step: int
    updates_step: int
    in_vectors: int


@device
def update_run(out, o, updates, u, run, reduction, half):
    """Update a run of out from o on with a run of updates from u on; both have the type of the values."""
    n, o_step, u_step, in_vectors = run
    if in_vectors:
        update_packed_run(out, o, updates, u, n, reduction)
    elif reduction == OVERWRITE:
        for j in range(n):
            out[o + j * o_step] = updates[u + j * u_step]
    elif half != PLAIN:
        for j in range(n):
            mine = np.uint32(out[o + j * o_step])
            update = np.uint32(updates[u + j * u_step])
            out[o + j * o_step] = reduce_half(mine, update, reduction, half)
    elif reduction == MULTIPLY_COMPLEX:
        for j in range(0, n, 2):  # real and imaginary parts are adjacent
            multiply_complex(out, o + j, updates, u + j)
    else:
        for j in range(n):
            out[o + j * o_step] = reduce(out[o + j * o_step], updates[u + j * u_step], reduction)


def is_reduced_in_vectors(reduction: int, half: int) -> bool:
    """Return whether `update_packed_run` supports a reduction."""
    return reduction == OVERWRITE or (reduction != MULTIPLY_COMPLEX and half == PLAIN)


@device
def update_packed_run(out, o, updates, u, n, reduction):
    """Update out[o : o + n] with updates[u : u + n], in vectors; `apply_slices` inlines the most frequent cases."""
    if reduction == OVERWRITE:
        copy_run(out, o, updates, u, n)
    elif reduction == ADD:
        add_run(out, o, updates, u, n)
    elif reduction == MINIMUM:
        minimum_run(out, o, updates, u, n)
    elif reduction == MAXIMUM:
        maximum_run(out, o, updates, u, n)
    elif reduction == SIGNED_MINIMUM:
        signed_minimum_run(out, o, updates, u, n)
    elif reduction == SIGNED_MAXIMUM:
        signed_maximum_run(out, o, updates, u, n)
    else:
        row, update = out[o : o + n], updates[u : u + n]
        for j in range(n):
            row[j] = quiet(row[j] * update[j])


@device
def update_elements(offsets, offset_step, values, value_step, count, out, reduction, half):
    """Update elements of out with `count` values. Values and offsets are evenly spaced."""
    if reduction == OVERWRITE:
        for j in range(count):
            out[np.uintp(offsets[np.uintp(j * offset_step)])] = values[np.uintp(j * value_step)]
    elif half != PLAIN:
        for j in range(count):
            o, value = np.uintp(offsets[np.uintp(j * offset_step)]), values[np.uintp(j * value_step)]
            out[o] = reduce_half(np.uint32(out[o]), np.uint32(value), reduction, half)
    elif reduction == ADD:
        for j in range(count):
            o = np.uintp(offsets[np.uintp(j * offset_step)])
            out[o] = quiet(out[o] + values[np.uintp(j * value_step)])
    else:
        for j in range(count):
            o = np.uintp(offsets[np.uintp(j * offset_step)])
            out[o] = reduce(out[o], values[np.uintp(j * value_step)], reduction)


@device
def reduce(mine, update, reduction):
    """Return the new element. Integers wrap when the caller stores the result; min and max propagate NaN."""
    if reduction == ADD:
        return quiet(mine + update)
    if reduction == MULTIPLY:
        return quiet(mine * update)
    is_signed = reduction >= SIGNED_MINIMUM
    is_minimum = reduction in (MINIMUM, SIGNED_MINIMUM)
    take = is_less(update, mine, is_signed) if is_minimum else is_less(mine, update, is_signed)
    if mine != mine:
        return mine
    return update if take or update != update else mine


@device
def quiet(value):
    """Return the value, or the quiet NaN of its type for any NaN."""
    return value if value == value else type(value)(np.nan)


@device
def multiply_complex(out, o, updates, u):
    """Multiply out[o] + out[o + 1] i by updates[u] + updates[u + 1] i, each product and sum is rounded."""
    real, imaginary = out[o], out[o + 1]
    update_real, update_imaginary = updates[u], updates[u + 1]
    out[o] = quiet(real * update_real - imaginary * update_imaginary)
    out[o + 1] = quiet(real * update_imaginary + imaginary * update_real)


@device
def reduce_half(mine, update, reduction, half):
    """Reduce two float16 or bfloat16 numbers, given and returned as bits."""
    if half == FLOAT16:
        a, b = float16_to_float32(mine), float16_to_float32(update)
    else:
        a, b = bfloat16_to_float32(mine), bfloat16_to_float32(update)
    if reduction in (MINIMUM, MAXIMUM):  # the chosen element keeps every bit
        take = b < a if reduction == MINIMUM else b > a
        return update if a == a and (take or b != b) else mine
    result = a + b if reduction == ADD else a * b
    return float32_to_float16(result) if half == FLOAT16 else float32_to_bfloat16(result)
