"""What the examples of quantize_linear and dequantize_linear share: small arrays."""

import numpy as np

from dmlcpu.common.arguments import Array

ROWS, COLUMNS = 8, 512  # several tiles, for several threads


def numbers(dtype: str) -> Array:
    """Return numbers in no order."""
    return (np.arange(ROWS * COLUMNS) * 37 % 101).astype(dtype).reshape(ROWS, COLUMNS)


def large(nbytes: int) -> Array:
    """Return float32 in rows of 1,024, which take 4/5 of the bytes: 8-bit integers of them take the rest."""
    return np.random.default_rng(0).random((-(-nbytes // 5_120), 1_024), np.float32)


def scales() -> Array:
    """Return a scale for each row."""
    return ((np.arange(ROWS) + 1) / 4).astype(np.float32).reshape(ROWS, 1)


def zero_points(dtype: str) -> Array:
    """Return a zero point for each row."""
    return np.arange(ROWS).astype(dtype).reshape(ROWS, 1)


def of_all(array: Array) -> Array:
    """Return what each row has for each of its elements."""
    return np.repeat(array, COLUMNS, axis=1)
