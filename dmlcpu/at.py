"""NumPy's ``ufunc.at`` on scatter_nd's kernels: in place, with NumPy's broadcasting, and the same bits as NumPy.

NumPy itself runs the calls that the kernels do not support or would not speed up, and raises the errors, so each
function can replace NumPy's.
"""

import math
from collections.abc import Iterator, Mapping
from types import EllipsisType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from dmlcpu.common.arguments import Array, as_array, type_name
from dmlcpu.common.data_types import DATA_TYPES, NUMBERS
from dmlcpu.errors import BindingError
from dmlcpu.operators.scatter_nd.function import update
from dmlcpu.runtime.memory import elements_overlap

Indices = ArrayLike | tuple[ArrayLike, ...]


def add_at(x: "Array", indices: "Indices", updates: "ArrayLike") -> None:
    """Add updates to the elements or slices of x that indices name, in place: ``np.add.at(x, indices, updates)``.

    Parameters
    ----------
    x : ndarray
        The array that is changed.
    indices : array_like of integers, or tuple of them
        As in ``x[indices]``: an array for the first dimension, a tuple of arrays for the first dimensions (they are
        broadcast), or a mask.
    updates : array_like
        Broadcast to the shape of ``x[indices]``.

    Raises
    ------
    IndexError
        If an index is out of range; then nothing is written. From the kernels it is an `IndexOutOfRangeError`.
    BindingError
        If x is read-only.

    Notes
    -----
    The result equals that of ``np.add.at`` to the bit: updates of one element are applied in order, and each sum is
    rounded to x's type. Neither NumPy nor dmlcpu specifies the bits of a NaN that a sum produces. The kernels ignore
    ``np.errstate``: they report no overflow.

    Updates of another type than x's, such as the number 1 for int32, are converted once if no result differs. NumPy
    converts them for each index, which takes 20 to 60 times as long.

    NumPy's own function runs small calls, because it is faster for them. It also runs calls in which it computes in
    another type than x's, and calls whose types, indices or memory layout the kernels do not support.

    Examples
    --------
    >>> import numpy as np, dmlcpu
    >>> x = np.zeros((3, 2))
    >>> dmlcpu.add_at(x, [2, 0, 2], [[1, 1], [2, 2], [3, 3]])
    >>> x
    array([[2., 2.],
           [0., 0.],
           [4., 4.]])
    >>> dmlcpu.add_at(x, ([0, 0, 1], [1, 1, 0]), 10)
    >>> x
    array([[ 2., 22.],
           [10.,  0.],
           [ 4.,  4.]])
    """
    _apply("add_at", "add", np.add, x, indices, updates)


def maximum_at(x: "Array", indices: "Indices", updates: "ArrayLike") -> None:
    """Replace each element that indices name by the maximum of it and its updates, in place: ``np.maximum.at``.

    The arguments are those of `add_at`. NaN propagates, as in NumPy. If -0.0 meets +0.0, the old element remains; in
    NumPy this depends on the processor.

    Examples
    --------
    >>> import numpy as np, dmlcpu
    >>> x = np.array([3, 3, 3])
    >>> dmlcpu.maximum_at(x, [0, 2, 2], [1, 5, 4])
    >>> x
    array([3, 3, 5])
    """
    _apply("maximum_at", "max", np.maximum, x, indices, updates)


def minimum_at(x: "Array", indices: "Indices", updates: "ArrayLike") -> None:
    """Replace each element that indices name by the minimum of it and its updates, in place: ``np.minimum.at``.

    The arguments are those of `add_at`. NaN propagates, as in NumPy. If -0.0 meets +0.0, the old element remains; in
    NumPy this depends on the processor.

    Examples
    --------
    >>> import numpy as np, dmlcpu
    >>> x = np.array([3, 3, 3])
    >>> dmlcpu.minimum_at(x, [0, 2, 2], [1, 5, 4])
    >>> x
    array([1, 3, 3])
    """
    _apply("minimum_at", "min", np.minimum, x, indices, updates)


def put_at(x: "Array", indices: "Indices", updates: "ArrayLike") -> None:
    """Assign updates to the elements or slices of x that indices name, in place: ``x[indices] = updates``.

    The arguments are those of `add_at`; updates are cast to x's type, as NumPy's assignment does.

    Notes
    -----
    If several updates name one element, the last one wins, in C order of the broadcast indices, for any number of
    updates and any memory layout. NumPy's own assignment may visit them in another order if neither the indices nor the
    updates lie in C order.

    Examples
    --------
    >>> import numpy as np, dmlcpu
    >>> x = np.zeros(4)
    >>> dmlcpu.put_at(x, [3, 1, 3], [7, 8, 9])
    >>> x
    array([0., 8., 0., 9.])
    >>> x, indices, updates = np.zeros(1), np.zeros((2, 2), int, order="F"), np.array([[1, 2], [3, 4]], order="F")
    >>> dmlcpu.put_at(x, indices, updates)
    >>> x
    array([4.])
    """
    _apply("put_at", "none", None, x, indices, updates)


class Limits(NamedTuple):
    """The sizes from which the kernels are faster than NumPy.

    NumPy needs no plan and has a special loop for single elements with one array of indices. That loop takes 1.1 to 1.4
    ns an update (Zen 4) or 2.5 ns (Zen 3); the kernels take half of that on one thread, plus about 10 us a call. So the
    kernels are faster from about 30,000 updates on, and from more on busy machines. If x is larger than the caches,
    both wait for memory, and the kernels read the indices twice; there they gain less, and assignments nothing, until
    updates are partitioned. The last two fields were measured on Zen 4, two threads, float32, float64 and int64.
    """

    single_updates: float = 100_000  # updates of single elements
    near: tuple[float, float] = 4 << 20, 200_000  # bytes of x, and the updates that suffice up to that size
    near_assigned: tuple[float, float] = 1 << 20, 1 << 20  # the same for assignments
    reduced_elements: float = 2_500  # elements of other updates to be reduced; NumPy takes 9 ns for each
    assigned_ns: float = 130_000  # NumPy's time to assign slices, 10 ns each and a quarter for an element


LIMITS = Limits()
# Types of x in which updates of a type are computed alike. (NumPy adds an int to uint64 as float64.)
_ALIKE: Mapping[type, str] = {int: "bBhHiIefd", float: "ef", np.ndarray: "bBhHiIlLqQefd"}
_PLAIN = (np.ndarray, np.memmap)  # other classes may replace NumPy's functions: they get what is given
_SMALL = 2048  # integers up to it are exact in float16
_TINY = 2**-14  # from it on no number underflows in float16
_BLOCK = 1 << 18  # small integers converted to int64 at a time: they stay in the second-level cache


def _apply(name: str, reduction: str, ufunc: np.ufunc | None, x: Any, indices: Any, updates: Any) -> None:
    """Reduce into x with the kernels if they support the call and are faster, else with NumPy; ufunc None assigns."""
    if not isinstance(x, np.ndarray):
        raise TypeError(f"{name}: x is {type(x).__name__}; allowed: a numpy.ndarray")
    if not x.flags.writeable:  # ufunc.at would write to it
        raise BindingError(name, "x", "read-only", "an array that can be written to")
    if ufunc and type(updates) in _ALIKE and type(x) in _PLAIN:
        typed = _in_type_of(x, updates, ufunc)
        if typed is not updates and ufunc is not np.add and x.dtype.kind == "f":
            # Unlike the loop that converts, NumPy's loop of one type reports that maxima and minima of NaN are invalid.
            with np.errstate(invalid="ignore"):
                _apply(name, reduction, ufunc, x, indices, typed)
            return
        updates = typed
    if type(x) is np.ndarray and _are_few(indices, x):
        _apply_by_numpy(ufunc, x, indices, updates)  # at once: such calls take NumPy a microsecond
        return
    x = np.asarray(x) if type(x) is np.memmap else x
    arrays = _index_arrays(indices, x, ufunc) if type(x) is np.ndarray else None
    if arrays is not None and _pays(reduction, arrays, x) and _takes(reduction, x):
        places = as_array(name, "indices", arrays[0])[..., None] if len(arrays) == 1 else np.stack(arrays, axis=-1)
        values = _values(reduction, updates, x, places)
        if values is not None:
            places, values = (each.copy() if np.may_share_memory(each, x) else each for each in (places, values))
            for block in _blocks(places, x.shape):
                update(x, places[block], values[block], reduction, operator=name)
            return
    if ufunc and x.ndim == np.ndim(updates) == 1 and (arrays is None or arrays[0].ndim > 1):
        # If indices have several dimensions, NumPy 2.4 reads beyond one-dimensional updates instead of repeating them.
        # An error about types comes before those about shapes and indices, as in NumPy.
        ufunc.at(x[:0], np.zeros(0, np.intp), np.asarray(updates)[:0])
        updates = np.broadcast_to(updates, np.shape(x[indices]))
    _apply_by_numpy(ufunc, x, indices, updates)


def _in_type_of(x: Array, updates: Any, ufunc: np.ufunc) -> Any:
    """Return updates in x's type if no result differs: NumPy converts others, and x, anew for each index.

    (1 added to 3,000 elements of int32: 155 us; np.int32(1): 5 us.)
    """
    dtype = x.dtype
    if dtype.char not in _ALIKE[type(updates)]:
        return updates
    if isinstance(updates, np.ndarray):
        if updates.dtype == dtype or updates.dtype.kind not in "biuf":
            return updates
        computed = np.result_type(dtype, updates.dtype)
        # Sums of integers that wrap at more bits have the same lower bits.
        wraps = ufunc is np.add and computed.kind in "iu" and np.can_cast(computed, dtype, "same_kind")
        return updates.astype(dtype) if wraps or computed == dtype else updates
    if updates and not _TINY <= abs(updates) <= _SMALL:
        return updates
    try:
        typed = dtype.type(updates)
    except OverflowError:  # negative for an unsigned type
        return updates
    return typed if typed.item() == updates else updates


def _are_few(indices: Any, x: Array) -> bool:
    """Return whether indices are arrays of one shape that name few single elements; others are checked later."""
    if type(indices) is not tuple:
        return type(indices) is np.ndarray and x.ndim == indices.ndim == 1 and indices.size < LIMITS.single_updates
    if not 1 < x.ndim == len(indices):
        return False
    first = indices[0]
    if type(first) is not np.ndarray or first.size >= LIMITS.reduced_elements:
        return False
    shape = first.shape
    for each in indices:  # noqa: SIM110 (a generator would take half a microsecond)
        if type(each) is not np.ndarray or each.shape != shape:
            return False
    return True


def _apply_by_numpy(ufunc: np.ufunc | None, x: Array, indices: Any, updates: Any) -> None:
    if ufunc is None:
        x[_in_c_order(indices)] = updates
    else:
        ufunc.at(x, indices, updates)


def _in_c_order(indices: Any) -> Any:
    """Return indices that NumPy's assignment visits in C order.

    It follows the memory layout of indices and updates, but visits in C order if one of them holds all elements in that
    order. So one of the indices is broadcast to all elements.
    """
    if not isinstance(indices, tuple):
        is_strided = isinstance(indices, np.ndarray) and indices.dtype.kind in "iu" and not indices.flags.c_contiguous
        return np.ascontiguousarray(indices) if is_strided else indices
    parts: list[Any] = [
        each if each is None or isinstance(each, int | slice | EllipsisType) else np.asarray(each) for each in indices
    ]
    arrays = [each for each in parts if isinstance(each, np.ndarray)]
    one = next((i for i, each in enumerate(parts) if isinstance(each, np.ndarray) and each.dtype.kind in "iu"), None)
    if one is None:
        return indices
    shapes = [(np.count_nonzero(each),) if each.dtype == bool else each.shape for each in arrays]
    try:
        parts[one] = np.asarray(np.broadcast_to(parts[one], np.broadcast_shapes(*shapes)), order="C")
    except ValueError:  # NumPy raises its own error
        return indices
    return tuple(parts)


def _index_arrays(indices: Any, x: Array, ufunc: np.ufunc | None) -> list[Array] | None:
    """Return arrays of integers for the first dimensions, all of one shape; None if indices are something else."""
    try:
        arrays = [np.asarray(each) for each in (indices if isinstance(indices, tuple) else (indices,))]
        if ufunc and len(arrays) == 1 and arrays[0].dtype == bool and arrays[0].shape == x.shape[: arrays[0].ndim]:
            arrays = list(np.nonzero(arrays[0])) if arrays[0].ndim else []
        if not 0 < len(arrays) <= x.ndim or any(each.dtype.kind not in "iu" for each in arrays):
            return None
        arrays = [_as_signed(each) if (each.dtype.kind, each.itemsize) == ("u", 8) else each for each in arrays]
        return arrays if len(arrays) == 1 else list(np.broadcast_arrays(*arrays))
    except (TypeError, ValueError):
        return None


def _as_signed(indices: Array) -> Array:
    """Return uint64 as int64, as NumPy does."""
    return indices.view(np.int64) if indices.dtype.isnative else indices.astype(np.int64)


def _pays(reduction: str, arrays: list[Array], x: Array) -> bool:
    count, size = arrays[0].size, math.prod(x.shape[len(arrays) :])
    if arrays[0].ndim == 0:
        return False
    if x.ndim == len(arrays) == 1:
        near_bytes, far_updates = LIMITS.near_assigned if reduction == "none" else LIMITS.near
        return count >= (LIMITS.single_updates if x.nbytes <= near_bytes else far_updates)
    if reduction == "none":
        return count * (10 + size // 4) >= LIMITS.assigned_ns
    return count * size >= LIMITS.reduced_elements


def _blocks(places: Array, sizes: tuple[int, ...]) -> Iterator[slice]:
    """Cut indices that kernels read only as int64 into blocks, each converted separately.

    There is one block if any index is out of range. The blocks are along the first dimension, which keeps the order of
    updates.
    """
    count = len(places)
    step = max(1, count)
    if places.dtype.itemsize < 4 and places.size:
        step = max(1, _BLOCK * count // places.size)
        columns = zip(np.moveaxis(places, -1, 0), sizes, strict=False)
        if step < count and not all(-size <= int(each.min()) and int(each.max()) < size for each, size in columns):
            step = count
    yield from (slice(start, start + step) for start in range(0, max(1, count), step))


def _takes(reduction: str, x: Array) -> bool:
    """Return whether the kernels can reduce into an array with NumPy's result."""
    name, flags = type_name(x.dtype), x.flags
    takes_type = name in NUMBERS or (x.dtype.kind == "c" and name in DATA_TYPES and reduction in ("none", "add"))
    is_plain = takes_type and flags.aligned and x.dtype.isnative
    return is_plain and (flags.c_contiguous or not elements_overlap(x.shape, x.strides, x.itemsize))


def _values(reduction: str, updates: Any, x: Array, places: Array) -> Array | None:
    """Return updates in x's type and the shape of the indexed elements; None if NumPy has to run the call."""
    shape = places.shape[:-1] + x.shape[places.shape[-1] :]
    try:
        given = np.asarray(updates)
        if given.dtype.kind not in "biufcV" or (reduction != "none" and not _is_computed_as(x.dtype, given)):
            return None
        # An assignment casts any array, but refuses numbers and lists that do not fit.
        is_cast = reduction != "none" or isinstance(updates, np.ndarray | np.generic)
        values = given.astype(x.dtype, copy=False) if is_cast else np.asarray(updates, x.dtype)
        values = values if values.shape == shape else np.broadcast_to(values, shape)
    except (TypeError, ValueError, OverflowError):
        return None
    return as_array("add_at", "updates", values)


def _is_computed_as(dtype: np.dtype[Any], given: Array) -> bool:
    """Return whether NumPy computes in a type, or in a wider one with the same result.

    The sum of two float32 is the same float32, rounded at once or to float64 first. So a number may have a wider type
    if its value fits `dtype`. Integers wrap in either.
    """
    computed = np.result_type(dtype, given.dtype)
    if computed == dtype:
        return True
    return given.ndim == 0 and computed.kind == dtype.kind in "iuf" and bool(given.astype(dtype) == given)
