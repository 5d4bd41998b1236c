"""Products of 16- and 32-bit integers: exact sums of up to 128 bits, converted to float32 by one rounding.

A number less its zero point is 2**16 * upper + lower. The upper half is at most 2**16 in size, the lower one below it.
So products of halves are at most 2**32: float64 has all sums of 2**20 of them exactly, in any order, and an int64 those
of fewer than 2**31.
"""

from typing import Any

import numpy as np

from dmlcpu.common.arguments import Array

_CHUNK = 1 << 20
_HALF = 1 << 16
# A sum of fewer multiples of 2**32, with its lower bits, fits an int64.
_FITS = 1 << 30


def exact_sums(a: Array, a_zero: Array | None, b: Array, b_zero: Array | None) -> Array:
    """Return the sums of products of matrices less their zero points, exact for K < 2**31, rounded to float32."""
    (a_upper, a_lower), (b_upper, b_lower) = _halves(a, a_zero), _halves(b, b_zero)
    crossed = _sums(a_upper, b_lower), _sums(a_lower, b_upper)
    return rounded_sum(_sums(a_upper, b_upper), *crossed, _sums(a_lower, b_lower))


def rounded_sum(upper: Array, left: Array, right: Array, lower: Array) -> Array:
    """Return 2**32 * upper + 2**16 * (left + right) + lower as float32, by one rounding.

    All are int64. left + right may be beyond that; the sum over 2**32 is not.
    """
    middle = (left & (_HALF - 1)) + (right & (_HALF - 1)) + (lower >> 16)
    upper = upper + (left >> 16) + (right >> 16) + (middle >> 16)
    rest = ((middle & (_HALF - 1)) << 16) | (lower & (_HALF - 1))  # the sum is 2**32 * upper + rest
    # If that does not fit an int64, the lowest bit is set for any rest. It is so low that it can only break a tie.
    fits = np.abs(upper) < _FITS
    rounded = np.where(fits, upper << 32 | rest, upper | (rest != 0)).astype(np.float32)
    result: Array = np.where(fits, rounded, rounded * np.float32(2**32))
    return result


def write_scaled(sums: Array, a_scale: Any, b_scale: Any, bias: Array | None, out: Array) -> None:
    """Write sums times scales, plus the bias, to an output of float32 or float16."""
    with np.errstate(all="ignore"):
        y = sums * (a_scale.astype(np.float32) * b_scale.astype(np.float32))
        if bias is not None:
            y = y + bias.astype(np.float32)
        out[...] = np.where(y == y, y, np.float32(np.nan))


def _halves(x: Array, zero: Array | None) -> tuple[Array, Array]:
    """Return the upper and the lower 16 bits of x less its zero point, as float64."""
    given = x.astype(np.int64) - (0 if zero is None else zero.astype(np.int64))
    return (given >> 16).astype(np.float64), (given & (_HALF - 1)).astype(np.float64)


def _sums(a: Array, b: Array) -> Array:
    """Return a @ b of whole numbers up to 2**16, as int64."""
    result: Array = np.zeros((*a.shape[:-1], b.shape[-1]), np.int64)
    for first in range(0, a.shape[-1], _CHUNK):
        chunk = slice(first, first + _CHUNK)
        result += (a[..., chunk] @ b[..., chunk, :]).astype(np.int64)
    return result
