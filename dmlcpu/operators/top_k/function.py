"""TOP_K1: the k largest or smallest elements of each sequence, with their positions, in a stable order."""

from typing import Any, Generic, NamedTuple, overload

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from dmlcpu.annotations import Array, DType, Element, Indices, Mode, Nan, Position, Values
from dmlcpu.common.arguments import as_integer, check_apart, check_flag, check_output, check_tuple
from dmlcpu.common.forms import Shape, form_of, formed, strides_of
from dmlcpu.common.prepared import Prepared
from dmlcpu.errors import DmlError
from dmlcpu.operators.top_k.call import read_counts
from dmlcpu.operators.top_k.plan import prepare
from dmlcpu.runtime.memory import OWNS_DATA, PLAIN
from dmlcpu.runtime.results import empty_result
from dmlcpu.runtime.threads import plan_for_now

_PACKED = (None, None)  # the strides of new outputs
_OWN = PLAIN | OWNS_DATA  # different arrays that own their data share no memory


class TopK(NamedTuple, Generic[Values, Indices]):
    """The result of `top_k`.

    Attributes
    ----------
    values : ndarray
        The selected elements, best first along the axis.
    indices : ndarray
        Their positions, counted from the start of their sequence.
    """

    values: Values
    indices: Indices


@overload
def top_k(
    x: NDArray[Element],
    k: int | ArrayLike,
    *,
    axis: int = -1,
    mode: Mode | None = None,
    largest: bool | None = None,
    sorted: bool = True,
    nan: Nan = "greatest",
    fill_value: Any = None,
    out: tuple[Array, Array] | None = None,
) -> TopK[NDArray[Element], NDArray[np.int64]]: ...
@overload
def top_k(
    x: NDArray[Element],
    k: int | ArrayLike,
    *,
    axis: int = -1,
    mode: Mode | None = None,
    largest: bool | None = None,
    sorted: bool = True,
    nan: Nan = "greatest",
    fill_value: Any = None,
    index_dtype: DType[Position],
    out: tuple[Array, Array] | None = None,
) -> TopK[NDArray[Element], NDArray[Position]]: ...
@overload
def top_k(
    x: ArrayLike,
    k: int | ArrayLike,
    *,
    axis: int = -1,
    mode: Mode | None = None,
    largest: bool | None = None,
    sorted: bool = True,
    nan: Nan = "greatest",
    fill_value: Any = None,
    out: tuple[Array, Array] | None = None,
) -> TopK[Array, NDArray[np.int64]]: ...
@overload
def top_k(
    x: ArrayLike,
    k: int | ArrayLike,
    *,
    axis: int = -1,
    mode: Mode | None = None,
    largest: bool | None = None,
    sorted: bool = True,
    nan: Nan = "greatest",
    fill_value: Any = None,
    index_dtype: DTypeLike = ...,
    out: tuple[Array, Array] | None = None,
) -> TopK: ...
def top_k(
    x: "ArrayLike",
    k: "int | ArrayLike",
    *,
    axis: int = -1,
    mode: "Mode | None" = None,
    largest: bool | None = None,
    sorted: bool = True,
    nan: "Nan" = "greatest",
    fill_value: Any = None,
    index_dtype: "DTypeLike" = np.int64,
    out: "tuple[Array, Array] | None" = None,
) -> "TopK":
    """Select the k largest or smallest elements of each sequence along an axis.

    The order is total and stable: elements with the same value appear by ascending index. If only some of several equal
    elements are selected, they are those with the lowest indices. NaN ranks above +inf, and all NaNs tie; -0.0 and +0.0
    tie. The selected elements keep every bit.

    Parameters
    ----------
    x : array_like, shape (..., N, ...)
        float16, float32, float64, bfloat16 (of ``ml_dtypes``), bool, or any integer type of 8 to 64 bits; at least one
        dimension, any memory layout.
    k : int or array_like of integers
        How many elements to select, 0 to N. An array has a number for each sequence, and broadcasts to x's shape
        without `axis`. Along the axis, the results then have the length of the greatest k. Each sequence fills its
        first k places. The other places hold `fill_value` and the index -1 (unsigned types: their highest value).
    axis : int, default -1
        The axis of length N. A negative one counts from the last.
    mode : {"largest", "smallest"}, optional
        Whether to select the largest elements, largest first (the default), or the smallest, smallest first.
    largest : bool, optional
        PyTorch's name for the same choice: True is mode "largest". Pass only one of the two.
    sorted : bool, default True
        If False, the same elements are returned in an unspecified order, which is faster for large k. If k is an array,
        the results are always sorted.
    nan : {"greatest", "last"}, default "greatest"
        The rank of NaN. "greatest" is above +inf: NaN comes first among the largest elements, and last among the
        smallest. With "last", it comes last in both modes, as in NumPy's ``top_k``.
    fill_value : scalar, optional
        If k is an array, the value in the places that a sequence does not fill. By default the worst value of x's type:
        in mode "largest" -inf or the lowest integer, in mode "smallest" inf or the highest.
    index_dtype : dtype, default int64
        int64, int32, uint64 or uint32.
    out : tuple of two ndarrays, optional
        The arrays to write values and indices to, of x's type and of `index_dtype`. They have x's shape with k along
        the axis and any strides, and share no memory with `x` or with one another. If k is an array, they may be longer
        along the axis than the greatest k; the further places are also filled.

    Returns
    -------
    TopK
        A named tuple (values, indices), each of x's shape with k in place of N; the arrays of `out` if given.

    Raises
    ------
    DmlError
        If an argument is not valid; then nothing is written.
    TypeError
        If an argument has the wrong Python type.

    Notes
    -----
    The semantics are those of DirectML's ``DML_TOP_K1_OPERATOR_DESC``. In addition, k may be N or 0, arrays may be
    empty, and more data types are supported. Where ONNX TopK defines the result, it is the same. `mode` and `axis` are
    those of ``numpy.top_k`` and of the array API standard.

    A new array of 32 MiB to 1 GiB may reuse the memory of an earlier result. Then it does not own its data and cannot
    be resized in place.

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
    >>> dmlcpu.top_k(x, 1, axis=0, mode="smallest").indices
    array([[0, 0, 1, 1]])
    >>> dmlcpu.top_k(x, [1, 3])
    TopK(values=array([[ 11., -inf, -inf],
           [  9.,   8.,   3.]], dtype=float32), indices=array([[ 3, -1, -1],
           [ 2,  3,  0]]))
    """
    key, arrays = request(x, k, axis, mode, largest, sorted, nan, fill_value, index_dtype, out)
    prepared = plan_for_now(prepare, key)
    result = allocate(prepared, arrays, out)
    prepared.run(*arrays, *result)
    return result


def request(x: Any, k: Any, axis: Any, *others: Any) -> tuple[tuple[Any, ...], tuple[Array, ...]]:
    """Return the key of a prepared call, without the budget, and the arrays that it reads."""
    mode, largest, sorted, nan, fill_value, index_dtype, out = others
    x, form = formed("top_k", "x", x)
    # In a key, 1.0 and True would equal 1, and np.int32(1), which represents its type, would equal np.int64(1).
    if type(axis) is not int:
        axis = as_integer("top_k", "axis", axis)
    if largest is not None and type(largest) is not bool:
        largest = check_flag("top_k", "largest", largest)
    if type(sorted) is not bool:
        sorted = check_flag("top_k", "sorted", sorted)
    if type(index_dtype) is not type and isinstance(index_dtype, np.generic):
        index_dtype = index_dtype.dtype
    options = axis, mode, largest, sorted, nan, index_dtype
    strides = _PACKED if out is None else _strides(out, x.ndim)
    if type(k) is int:
        return ((form, None, strides), (k, *options)), (x,)
    k, filling = read_counts(form, k, options, fill_value)
    of_counts = None
    if filling:
        k, of_counts = _places(k, x.shape, axis, out), form_of(filling[0])
    return ((form, of_counts, strides), (k, *options)), (x, *filling)


def _strides(out: Any, ndim: int) -> tuple[Any, ...]:
    """Return the strides of outputs like those of forms; None also for outputs that are refused later."""
    try:
        values, indices = out
        if values.flags.num & indices.flags.num & PLAIN == PLAIN:  # most
            return _PACKED
        return tuple([strides_of(each) if each.ndim == ndim else None for each in (values, indices)])
    except (AttributeError, TypeError, ValueError):  # not a pair of arrays
        return _PACKED


def _places(k: int, shape: Shape, axis: int, out: Any) -> int:
    """Return how many elements are selected if k is the greatest of an array, as outputs may have more places."""
    values = out[0] if isinstance(out, tuple) and out else None
    if not isinstance(values, np.ndarray) or values.ndim != len(shape):
        return k  # `allocate` refuses this out
    places: int = values.shape[axis]
    if places < k:
        raise DmlError("top_k", "k", f"an array up to {k}", f"up to {places} (the places of the outputs)")
    return min(places, shape[axis])


def allocate(prepared: Prepared, arrays: tuple[Array, ...], out: Any) -> TopK:
    """Return the outputs: new arrays, or those of `out` if they fit."""
    x, (of_values, of_indices) = arrays[0], prepared.results
    if out is None:
        new_values, new_indices = prepared.new
        # Equal types may have other metadata. `TopK` itself is a Python call.
        values = new_values() if of_values.dtype is x.dtype else empty_result(of_values.shape, x.dtype)
        return tuple.__new__(TopK, (values, new_indices()))
    if not isinstance(out, tuple) or len(out) != 2:
        check_tuple("top_k", out, 2, "a tuple (values, indices) of two arrays")
    values, indices = out
    is_usual = (
        type(values) is type(indices) is np.ndarray
        and (values.shape, values.dtype) == of_values
        and (indices.shape, indices.dtype) == of_indices
        and values.flags.num & indices.flags.num & x.flags.num & _OWN == _OWN
        and not (values is indices or values is x or indices is x)
    )
    if not is_usual:
        values = check_output("top_k", "out[0]", values, *of_values)
        indices = check_output("top_k", "out[1]", indices, *of_indices)
        check_apart("top_k", "out[0]", values, {"x": x, "out[1]": indices})
        check_apart("top_k", "out[1]", indices, {"x": x})
    return tuple.__new__(TopK, (values, indices))
