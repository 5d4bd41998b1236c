"""Packed matrices: operands rearranged once into the rows that the kernels multiply."""

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dmlcpu.kernels import registry
from dmlcpu.kernels.grid import flatten, make_grid
from dmlcpu.kernels.quantized_matmul.pack import DEPTH, ROWS
from dmlcpu.operators.arguments import Array
from dmlcpu.operators.quantization import check_matrix
from dmlcpu.runtime.memory import aligned_empty, first_word, words
from dmlcpu.runtime.threads import Budget, budget


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PackedMatrix:
    """A constant right operand, in the form the kernels read: what `pack_b` returns.

    Attributes
    ----------
    shape : tuple of int
        The shape (..., K, N) of the matrix that was packed.
    dtype : dtype
        Its type, int8 or uint8.
    layout : str
        The kernel the packed form is for.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    layout: str
    columns: Array  # (batches, padded N, padded K) int16
    sums: Array  # (batches, padded N) int64

    @property
    def ndim(self) -> int:
        """The number of dimensions of the matrix that was packed."""
        return len(self.shape)

    def __repr__(self) -> str:
        return f"PackedMatrix(shape={self.shape}, dtype={self.dtype}, layout={self.layout!r})"


def pack_b(b: ArrayLike) -> PackedMatrix:
    """Pack constant weights once, to pass them as `b` of many products.

    Parameters
    ----------
    b : array_like of int8 or uint8, shape (..., K, N)
        Any memory layout; the packed matrix is a copy.

    Returns
    -------
    PackedMatrix
        It may be used from many threads at once, and pickled.

    Raises
    ------
    DmlError
        If `b` is of another type or has fewer than two dimensions.

    Examples
    --------
    >>> import numpy as np, dmlcpu
    >>> weights = dmlcpu.pack_b(np.eye(3, dtype=np.int8))
    >>> weights  # doctest: +ELLIPSIS
    PackedMatrix(shape=(3, 3), dtype=int8, layout='...')
    >>> a = np.array([[1, 2, 3]], np.uint8)
    >>> dmlcpu.quantized_matmul(a, 1.0, None, weights, 1.0, None, 1.0, None)
    array([[1, 2, 3]], dtype=uint8)
    """
    b = check_matrix("pack_b", "b", b, at_least=2)
    entry = registry.find("quantized_matmul", "dot")
    transposed = b.swapaxes(-1, -2)
    shape = packed_shape(transposed.shape, entry.block[1])
    columns = aligned_empty(math.prod(shape), np.int16).reshape(shape)
    sums = aligned_empty(shape[0] * shape[1], np.int64).reshape(shape[:2])
    pack(transposed, columns, sums)
    return PackedMatrix(b.shape, b.dtype, entry.name, columns, sums)


def pack(x: Array, packed: Array, sums: Array) -> None:
    """Pack matrices (..., rows, depth) of any strides into int16 rows."""
    if packed.size == 0:
        sums[...] = 0
        return
    run, parts, *numbers = _pack_plan(x.shape, x.strides, budget())
    run(0, parts, words(x, x.dtype), *numbers, packed, sums)


@functools.lru_cache(maxsize=1024)
def _pack_plan(shape: tuple[int, ...], strides: tuple[int, ...], limits: Budget) -> tuple[Any, ...]:
    """Return the kernel, and the numbers it is told about matrices of this shape and layout."""
    *batch, rows, depth = shape
    batches = math.prod(batch)
    parts = limits.parts(work=math.prod(shape), most=batches * -(-rows // ROWS))
    run = registry.find("quantized_matmul", "pack").kernel.for_parts(parts)
    grid = flatten(make_grid(batch, strides[:-2]))
    return run, parts, first_word(shape, strides), strides[-2], strides[-1], grid, batches, rows, depth


def packed_shape(shape: tuple[int, ...], tile: int) -> tuple[int, int, int]:
    """Return the packed shape of matrices (..., rows, depth): batches, rows in whole tiles, and the padded depth."""
    *batch, rows, depth = shape
    return math.prod(batch), -(-rows // tile) * tile, -(-depth // DEPTH) * DEPTH


def broadcast_strides(shape: tuple[int, ...], ndim: int) -> tuple[int, ...]:
    """Return the strides, in items, of a contiguous array when it is broadcast to so many dimensions."""
    own = (1,) * (ndim - len(shape)) + shape
    return tuple(math.prod(own[d + 1 :]) if size > 1 else 0 for d, size in enumerate(own))
