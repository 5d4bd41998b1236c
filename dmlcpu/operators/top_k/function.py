"""TOP_K1: the k largest or smallest elements of each sequence, with their positions, in a stable order."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from dmlcpu.common.arguments import (
    Array,
    as_array,
    as_axis,
    as_dtype,
    as_integer,
    check_apart,
    check_flag,
    check_output,
    check_type,
    type_name,
)
from dmlcpu.common.data_types import DATA_TYPES, INDICES, NUMBERS
from dmlcpu.errors import DmlError
from dmlcpu.operators.top_k.plan import INDEX_WORD, plan, run
from dmlcpu.reference import top_k as reference_top_k
from dmlcpu.runtime import threads
from dmlcpu.runtime.compilation import can_compile
from dmlcpu.runtime.memory import words
from dmlcpu.runtime.results import empty_result

# Dictionaries, in which a name is found sooner than in a tuple.
_TYPES = dict.fromkeys(NUMBERS)
_HIGHEST = {name: DATA_TYPES[name].highest for name in INDICES}


class TopK(NamedTuple):
    """What `top_k` returns.

    Attributes
    ----------
    values : ndarray
        The selected elements, best first along the axis.
    indices : ndarray
        Their positions, counted from the start of their own sequence.
    """

    values: Array
    indices: Array


def top_k(
    x: ArrayLike,
    k: int,
    *,
    axis: int = -1,
    largest: bool = True,
    sorted: bool = True,
    index_dtype: DTypeLike = np.int64,
    out: tuple[Array, Array] | None = None,
) -> TopK:
    """Select the k largest (or smallest) elements of each sequence along an axis.

    The order is total and stable: elements with the same value appear by ascending index, which also decides which of
    several equal elements are selected. NaN ranks above +inf, and all NaNs tie; -0.0 and +0.0 tie. The selected
    elements keep every bit.

    Parameters
    ----------
    x : array_like, shape (..., N, ...)
        float16, float32, float64, bfloat16 (of ``ml_dtypes``), bool, or any integer type of 8 to 64 bits; at least one
        dimension, any memory layout.
    k : int
        How many elements to select, 0 to N.
    axis : int, default -1
        The axis of length N. A negative one counts from the last.
    largest : bool, default True
        Select the largest elements, largest first; else the smallest, smallest first.
    sorted : bool, default True
        If False, the same elements come in an order that is not promised, which is faster for large k.
    index_dtype : dtype, default int64
        int64, int32, uint64 or uint32.
    out : tuple of two ndarrays, optional
        Where to write values and indices: of x's shape with k along the axis, x's type and `index_dtype`; any strides,
        no memory shared with `x` or with one another.

    Returns
    -------
    TopK
        A named tuple (values, indices), each of x's shape with k in place of N; the arrays of `out` if given.

    Raises
    ------
    DmlError
        If an argument does not fit; nothing has been written then.
    TypeError
        If an argument is of the wrong Python kind.

    Notes
    -----
    The semantics are those of DirectML's ``DML_TOP_K1_OPERATOR_DESC``, extended to k equal to N and to k = 0, to empty
    arrays and to more data types. ``ONNX TopK`` gives the same results where it defines them.

    A new array of 32 MiB to 1 GiB may lie in memory that an earlier result had, and then does not own its data: it
    cannot be resized in place.

    Examples
    --------
    >>> import numpy as np, dmlcpu
    >>> x = np.array([[0, 1, 10, 11], [3, 2, 9, 8]], np.float32)
    >>> values, indices = dmlcpu.top_k(x, 2)
    >>> values
    array([[11., 10.],
           [ 9.,  8.]], dtype=float32)
    >>> indices
    array([[3, 2],
           [2, 3]])
    >>> dmlcpu.top_k(x, 1, axis=0, largest=False).indices
    array([[0, 0, 1, 1]])
    """
    x, k, axis, largest, index_type = check(x, k, axis, largest, index_dtype)
    ordered = check_flag("top_k", "sorted", sorted)
    values, indices = allocate(x, k, axis, index_type, out)
    execute(x, k, axis, largest, values, indices, ordered=ordered)
    return TopK(values, indices)


def check(x: Any, k: Any, axis: Any, largest: Any, index_dtype: Any) -> tuple[Array, int, int, bool, np.dtype[Any]]:
    """Return the arguments in their plain forms, or refuse them."""
    x = as_array("top_k", "x", x)
    check_type("top_k", "x", x.dtype, _TYPES)
    if x.ndim == 0:
        raise DmlError("top_k", "x.ndim", "0", "at least 1")
    axis = as_axis("top_k", "axis", axis, "x", x.ndim)
    k = as_integer("top_k", "k", k)
    if not 0 <= k <= x.shape[axis]:
        raise DmlError("top_k", "k", str(k), f"0 to {x.shape[axis]} (the elements along axis {axis})")
    index_type = as_dtype("top_k", "index_dtype", index_dtype, _HIGHEST)
    if x.shape[axis] - 1 > _HIGHEST[type_name(index_type)]:
        raise DmlError("top_k", "index_dtype", str(index_type), f"a type that holds {x.shape[axis] - 1}")
    return x, k, axis, check_flag("top_k", "largest", largest), index_type


def allocate(x: Array, k: int, axis: int, index_type: np.dtype[Any], out: Any) -> tuple[Array, Array]:
    """Return the output arrays: new ones, or those of `out` if they fit."""
    shape = (*x.shape[:axis], k, *x.shape[axis + 1 :])
    if out is None:
        return empty_result(shape, x.dtype), empty_result(shape, index_type)
    if not isinstance(out, tuple) or len(out) != 2:
        raise TypeError(f"top_k: out is {type(out).__name__}; allowed: a tuple (values, indices) of two arrays")
    values, indices = out
    values = check_output("top_k", "out[0]", values, shape, x.dtype)
    indices = check_output("top_k", "out[1]", indices, shape, index_type)
    check_apart("top_k", "out[0]", values, {"x": x, "out[1]": indices})
    check_apart("top_k", "out[1]", indices, {"x": x})
    return values, indices


def execute(
    x: Array,
    k: int,
    axis: int,
    largest: bool,
    values: Array,
    indices: Array,
    *,
    ordered: bool = True,
) -> None:
    """Run on checked arrays of any strides."""
    if values.size == 0:
        return
    if not can_compile():
        reference_top_k(x, k, axis=axis, largest=largest, index_dtype=indices.dtype, out=(values, indices))
        return
    strides = (x.strides, values.strides, indices.strides)
    chosen = plan(x.shape, x.dtype, axis, k, largest, indices.itemsize, strides, threads.budget(), ordered)
    run(chosen, words(x, chosen.word), words(values, chosen.word), words(indices, INDEX_WORD))
