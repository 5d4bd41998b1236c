"""What one update does to the elements it meets: overwrite, add, multiply, minimum, maximum.

NaN results of additions and multiplications are always the same quiet NaN: which operand's payload a processor hands
on depends on the order it was given them in, and results here depend on nothing but the arguments.
"""

import numpy as np

from dmlcpu.kernels.scatter_nd.half import (
    bfloat16_to_float32,
    float16_to_float32,
    float32_to_bfloat16,
    float32_to_float16,
)
from dmlcpu.kernels.scatter_nd.rows import add_run, copy_run
from dmlcpu.runtime.jit import device

OVERWRITE, ADD, MULTIPLY, MINIMUM, MAXIMUM, MULTIPLY_COMPLEX = range(6)
PLAIN, FLOAT16, BFLOAT16 = range(3)


@device
def combine_slice(out, o, o_step, updates, u, u_step, n, operation, half):
    """Apply n elements of `updates` from u on to n of `out` from o on. out, updates: of one type, the values' own.

    half: FLOAT16 or BFLOAT16 when the elements are the bits of such numbers in uint16.
    """
    if is_combined_as_row(o_step, u_step, operation, half):
        combine_row(out, o, updates, u, n, operation)
    elif operation == OVERWRITE:
        for j in range(n):
            out[o + j * o_step] = updates[u + j * u_step]
    elif half != PLAIN:
        for j in range(n):
            mine = np.uint32(out[o + j * o_step])
            update = np.uint32(updates[u + j * u_step])
            out[o + j * o_step] = combine_half(mine, update, operation, half)
    elif operation == MULTIPLY_COMPLEX:
        for j in range(0, n, 2):  # real and imaginary parts lie side by side
            multiply_complex(out, o + j, updates, u + j)
    else:
        for j in range(n):
            out[o + j * o_step] = combine(out[o + j * o_step], updates[u + j * u_step], operation)


@device
def is_combined_as_row(o_step, u_step, operation, half):
    """Return whether `combine_row` takes runs of elements so far apart."""
    return o_step == 1 and u_step == 1 and operation != MULTIPLY_COMPLEX and (half == PLAIN or operation == OVERWRITE)


@device
def combine_row(out, o, updates, u, n, operation):
    """Apply updates[u : u + n] to out[o : o + n], in vectors; `apply_slices` spares the commonest rows this call."""
    if operation == OVERWRITE:
        copy_run(out, o, updates, u, n)
    elif operation == ADD:
        add_run(out, o, updates, u, n)
    else:
        row, update = out[o : o + n], updates[u : u + n]
        if operation == MULTIPLY:
            for j in range(n):
                row[j] = quiet(row[j] * update[j])
        else:
            for j in range(n):
                row[j] = combine(row[j], update[j], operation)


@device
def combine_elements(places, place_step, values, value_step, count, out, operation, half):
    """Apply `count` values of one element each, `value_step` apart, at places of out that are `place_step` apart."""
    if operation == OVERWRITE:
        for j in range(count):
            out[np.uintp(places[np.uintp(j * place_step)])] = values[np.uintp(j * value_step)]
    elif half != PLAIN:
        for j in range(count):
            o, value = np.uintp(places[np.uintp(j * place_step)]), values[np.uintp(j * value_step)]
            out[o] = combine_half(np.uint32(out[o]), np.uint32(value), operation, half)
    elif operation == ADD:
        for j in range(count):
            o = np.uintp(places[np.uintp(j * place_step)])
            out[o] = quiet(out[o] + values[np.uintp(j * value_step)])
    else:
        for j in range(count):
            o = np.uintp(places[np.uintp(j * place_step)])
            out[o] = combine(out[o], values[np.uintp(j * value_step)], operation)


@device
def combine(mine, update, operation):
    """Return the new element. Integers wrap when the caller stores the result; min and max hand NaN on."""
    if operation == ADD:
        return quiet(mine + update)
    if operation == MULTIPLY:
        return quiet(mine * update)
    take = update < mine if operation == MINIMUM else update > mine
    if mine != mine:
        return mine
    return update if take or update != update else mine


@device
def quiet(value):
    """Return the value, or the one quiet NaN for any NaN; in the value's type."""
    return value if value == value else type(value)(np.nan)


@device
def multiply_complex(out, o, updates, u):
    """out[o] + out[o + 1] i times updates[u] + updates[u + 1] i, each product and sum rounded by itself."""
    real, imaginary = out[o], out[o + 1]
    update_real, update_imaginary = updates[u], updates[u + 1]
    out[o] = quiet(real * update_real - imaginary * update_imaginary)
    out[o + 1] = quiet(real * update_imaginary + imaginary * update_real)


@device
def combine_half(mine, update, operation, half):
    """Combine two float16 or bfloat16 numbers, given and returned as bits."""
    if half == FLOAT16:
        a, b = float16_to_float32(mine), float16_to_float32(update)
    else:
        a, b = bfloat16_to_float32(mine), bfloat16_to_float32(update)
    if operation in (MINIMUM, MAXIMUM):  # chosen, not computed: every bit is kept
        take = b < a if operation == MINIMUM else b > a
        return update if a == a and (take or b != b) else mine
    result = a + b if operation == ADD else a * b
    return float32_to_float16(result) if half == FLOAT16 else float32_to_bfloat16(result)
