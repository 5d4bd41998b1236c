"""Packed matrices: right-hand sides rearranged once into the panels that the kernels multiply."""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dmlcpu.common.arguments import Array, as_array
from dmlcpu.common.forms import Form
from dmlcpu.errors import UnsupportedError
from dmlcpu.kernels import registry
from dmlcpu.kernels.gemm.microkernels.microkernel import NR
from dmlcpu.kernels.gemm.pack import LAYOUT, WORK
from dmlcpu.kernels.gemm.work import groups_of, panels_of
from dmlcpu.kernels.walk import merge, walk_of
from dmlcpu.products.arguments import check_matrix
from dmlcpu.runtime import threads
from dmlcpu.runtime.compilation import can_compile
from dmlcpu.runtime.memory import aligned_empty, first_word, packed_strides, words
from dmlcpu.runtime.records import CACHE_LINE, CELL, record_of
from dmlcpu.runtime.threads import Budget

_BYTE = np.dtype(np.uint8)
_SIGN = 0x80


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PackedMatrix:
    """A constant right-hand side in the form that kernels read: the result of `pack_b`.

    Attributes
    ----------
    shape : tuple of int
        The shape (..., K, N) of the matrix that was packed.
    dtype : dtype
        Its type, int8 or uint8.
    layout : str
        The name of the packed form: signed bytes, four along K in a word, panels of 32 columns. The kernels of all
        instruction sets read it, so a packed matrix can be stored or sent to another machine.
    saturating : int or None
        AVX2's instruction for bytes adds two products in 16 bits. This is the number of pairs of bytes for which that
        sum can overflow: the fewer there are, the faster are products on processors with AVX2 only. Results are always
        exact. None if unknown, as for matrices that earlier versions packed.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    layout: str
    panels: Array  # int64, flat: (batches, panels, groups of four rows, 32 columns) words of 32 bits
    sums: Array  # int64, flat: (batches, padded columns)
    saturating: int | None = None

    @property
    def ndim(self) -> int:
        """The number of dimensions of the matrix that was packed."""
        return len(self.shape)

    def __repr__(self) -> str:
        return f"PackedMatrix(shape={self.shape}, dtype={self.dtype}, layout={self.layout!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return PackedMatrix, (self.shape, self.dtype, self.layout, self.panels, self.sums, self.saturating)

    def __post_init__(self) -> None:
        """Refuse another layout; copy unpickled arrays that are read-only or not aligned to a cache line."""
        if self.layout != LAYOUT:
            raise UnsupportedError("pack_b", "layout", self.layout, LAYOUT)
        for name, array in (("panels", self.panels), ("sums", self.sums)):
            if array.ctypes.data % CACHE_LINE or not array.flags.writeable:
                aligned = aligned_empty(array.size, np.int64)
                aligned[...] = array
                object.__setattr__(self, name, aligned)


# Pickles name the class by its public path, so that they survive a move of this module.
PackedMatrix.__module__ = "dmlcpu"


def pack_b(b: "ArrayLike") -> PackedMatrix:
    """Pack constant weights once, to pass them as `b` to many products.

    Parameters
    ----------
    b : array_like of int8 or uint8, shape (..., K, N)
        Any memory layout; the packed matrix is a copy.

    Returns
    -------
    PackedMatrix
        Several threads may use it concurrently. It can be pickled.

    Raises
    ------
    DmlError
        If `b` is of another type or has fewer than two dimensions.

    Examples
    --------
    >>> import numpy as np, dmlcpu
    >>> weights = dmlcpu.pack_b(np.eye(3, dtype=np.int8))
    >>> weights
    PackedMatrix(shape=(3, 3), dtype=int8, layout='s8_k4_n32')
    >>> a = np.array([[1, 2, 3]], np.uint8)
    >>> dmlcpu.quantized_matmul(a, 1.0, None, weights, 1.0, None, 1.0, None)
    array([[1, 2, 3]], dtype=uint8)
    """
    b = as_array("pack_b", "b", b)
    check_matrix("pack_b", "b", Form(b.shape, b.dtype), at_least=2)
    *batch, depth, columns = b.shape
    padded = math.prod(batch) * panels_of(columns) * NR
    panels, sums = aligned_empty(padded * groups_of(depth) // 2, np.int64), aligned_empty(padded, np.int64)
    sums[...] = 0
    saturating = None
    if not can_compile():
        _pack(b, panels, sums)
    elif b.size:
        parts, run, work = _pack_plan(b.shape, b.strides, b.dtype, threads.budget())
        found = np.zeros(parts * CACHE_LINE // CELL, np.int64)
        run(words(b, _BYTE), panels.view(np.uint32), sums, found, work)
        saturating = int(found.sum())
    return PackedMatrix(b.shape, b.dtype, LAYOUT, panels, sums, saturating)


def _pack(b: Array, panels: Array, sums: Array) -> None:
    """Pack with NumPy, like the kernel."""
    *_, depth, columns = b.shape
    rows = _rows_of(panels, b.shape)
    batches, groups, four, count, width = rows.shape
    signed = np.zeros((batches, groups * four, count * width), _BYTE)
    signed[:, :depth, :columns] = b.reshape(batches, depth, columns).view(_BYTE) ^ rhs_sign_flip(b.dtype)
    rows[...] = signed.reshape(rows.shape)
    sums[...] = signed.view(np.int8).sum(axis=1, dtype=np.int64).reshape(-1)


def unpack(b: PackedMatrix) -> Array:
    """Return a copy of the matrix that was packed."""
    *_, depth, columns = b.shape
    rows = _rows_of(b.panels, b.shape)
    batches, groups, four, count, width = rows.shape
    signed = rows.reshape(batches, groups * four, count * width)[:, :depth, :columns]
    return (signed ^ rhs_sign_flip(b.dtype)).view(b.dtype).reshape(b.shape)


def _rows_of(panels: Array, shape: tuple[int, ...]) -> Array:
    """View panels as bytes in the order of rows: matrices, groups, rows of a group, panels, columns of a panel."""
    *batch, depth, columns = shape
    in_memory = (math.prod(batch), panels_of(columns), groups_of(depth), NR, 4)
    return panels.view(_BYTE).reshape(in_memory).transpose(0, 2, 4, 1, 3)


@functools.lru_cache(maxsize=1024)
def _pack_plan(
    shape: tuple[int, ...], strides: tuple[int, ...], dtype: np.dtype[Any], budget: Budget
) -> tuple[int, Callable[..., Any], NDArray[np.int64]]:
    """Return the number of parts, the kernel for them, and the work record of matrices of this layout."""
    *batch, depth, columns = shape
    matrices = math.prod(batch)
    parts = budget.parts(work=math.prod(shape) // 8, most=matrices * panels_of(columns))
    sizes, along_batch = merge(batch, strides[:-2])
    work = record_of(
        WORK,
        N=columns,
        K=depth,
        sign_flip=rhs_sign_flip(dtype),
        matrices=matrices,
        walk=walk_of(sizes),
        b=matrix_fields(shape, strides, along_batch),
    )
    return parts, registry.find("quantized_matmul", "pack").kernel.for_parts(parts), work


def matrix_fields(shape: tuple[int, ...], strides: tuple[int, ...], along_batch: list[int]) -> dict[str, Any]:
    """Return the fields of a work record about a matrix; strides in items."""
    return {"start": first_word(shape, strides), "row": strides[-2], "column": strides[-1], "strides": along_batch}


def form_of_packed(b: PackedMatrix) -> tuple[Any, ...]:
    """Return the form of a packed matrix: shape and type, layout, and whether no pair of bytes saturates."""
    return b.shape, b.dtype, b.layout, b.saturating == 0


def rhs_sign_flip(dtype: np.dtype[Any]) -> int:
    """Return the mask that converts bytes of this type to signed ones, 128 less, by exclusive or."""
    return 0 if dtype == np.int8 else _SIGN


def lhs_sign_flip(dtype: np.dtype[Any]) -> int:
    """Return the mask that converts bytes of this type to unsigned ones, 128 more, by exclusive or."""
    return _SIGN - rhs_sign_flip(dtype)


def broadcast_strides(shape: tuple[int, ...], ndim: int) -> tuple[int, ...]:
    """Return the strides, in items, of a contiguous array when it is broadcast to `ndim` dimensions."""
    own = (1,) * (ndim - len(shape)) + shape
    return tuple(stride if size > 1 else 0 for size, stride in zip(own, packed_strides(own), strict=True))
