"""SCATTER_ND: a copy of the input in which index tuples say where updates overwrite, or reduce into, elements."""

import functools
import math
from collections.abc import Mapping
from typing import Any, NamedTuple, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dmlcpu.annotations import Array, Element, OutOfRange, Reduction
from dmlcpu.common.arguments import as_array, as_array_like, check_apart, check_choice, check_output, same_memory
from dmlcpu.common.bound import Steps
from dmlcpu.common.stand_ins import stand_in
from dmlcpu.errors import BindingError, IndexOutOfRangeError, UnsupportedError
from dmlcpu.kernels.scatter_nd.work import VALID
from dmlcpu.operators.scatter_nd.layout import INDEX_WORD, aligned_type, element_type
from dmlcpu.operators.scatter_nd.plan import (
    BY_KERNEL,
    BY_NUMPY,
    CONTIGUOUS,
    IN_PLACE,
    MODES,
    REDUCTIONS,
    Plan,
    plan,
    reduction_of,
    run,
)
from dmlcpu.operators.scatter_nd.steps import steps as plan_steps
from dmlcpu.reference import scatter_nd as reference_scatter_nd
from dmlcpu.runtime.compilation import can_compile
from dmlcpu.runtime.memory import ALIGNED, C_CONTIGUOUS, OWNS_DATA, PLAIN, frombuffer, packed_strides, spans_meet, words
from dmlcpu.runtime.results import empty_result
from dmlcpu.runtime.threads import Budget, budget, most


class Call(NamedTuple):
    """The arguments of a call in their plain forms, but for the output."""

    x: Array
    indices: Array
    updates: Array
    reduction: str = "none"
    mode: str = "raise"

    @property
    def coordinates(self) -> int:
        """The number of coordinates of an index tuple."""
        return int(self.indices.shape[-1])

    @property
    def number(self) -> int:
        """The number of updates."""
        return math.prod(self.indices.shape[:-1])

    @property
    def slice_bytes(self) -> int:
        """The size of an update."""
        return math.prod(self.x.shape[self.coordinates :]) * self.x.itemsize


@overload
def scatter_nd(
    x: NDArray[Element],
    indices: ArrayLike,
    updates: ArrayLike,
    *,
    reduction: Reduction = "none",
    mode: OutOfRange = "raise",
    out: Array | None = None,
) -> NDArray[Element]: ...
@overload
def scatter_nd(
    x: ArrayLike,
    indices: ArrayLike,
    updates: ArrayLike,
    *,
    reduction: Reduction = "none",
    mode: OutOfRange = "raise",
    out: Array | None = None,
) -> Array: ...
def scatter_nd(
    x: "ArrayLike",
    indices: "ArrayLike",
    updates: "ArrayLike",
    *,
    reduction: "Reduction" = "none",
    mode: "OutOfRange" = "raise",
    out: "Array | None" = None,
) -> "Array":
    """Copy x, then write updates at the places that index tuples name.

    Updates are applied in index order, whatever the number of threads: without a reduction the last update of an
    element wins, with one the result is that of a plain loop.

    Parameters
    ----------
    x : array_like, shape (d0, d1, ...)
        Any type of fixed size; with a reduction, any numeric type (bool, integers, float16, bfloat16, float32,
        float64; complex for "add" and "mul").
    indices : array_like of integers, shape (..., T)
        Index tuples into the first T dimensions of x, 0 <= T <= x.ndim. Negative indices count from the end. With
        T == 0 each update replaces the whole of x.
    updates : array_like of x's type, shape indices.shape[:-1] + x.shape[T:]
        One element or slice for each tuple. Updates are not broadcast.
    reduction : {"none", "add", "mul", "min", "max"}
        How an update is combined with the element. Integers wrap; for bool, add is or and mul is and; min and max
        propagate NaN; float16 and bfloat16 are rounded after every update. A NaN that a sum or product gives is the
        quiet NaN without payload.
    mode : {"raise", "drop", "clip"}
        What to do about an index out of range: refuse all, before anything is written; skip that update; or clamp
        each coordinate to its dimension.
    out : ndarray, optional
        Where to write the result: of x's shape and type, any strides. It may be `x` itself (then nothing is copied),
        and shares no memory with the arguments otherwise.

    Returns
    -------
    ndarray
        A new array like x, or `out`.

    Raises
    ------
    IndexOutOfRangeError
        If an index is out of range and `mode` is "raise"; `out` is as it was.
    DmlError
        If an argument does not fit; nothing has been written then.
    TypeError
        If an argument is of the wrong Python kind.

    Notes
    -----
    The semantics are those of DirectML's ``DML_SCATTER_ND_OPERATOR_DESC``, with the reductions of ONNX ScatterND 18,
    and the modes of `numpy.take`. DirectML leaves duplicates undefined; here they are defined.

    A new array of 32 MiB to 1 GiB may reuse the memory of an earlier result. It does not own its data then, and cannot
    be resized in place.

    Examples
    --------
    >>> import numpy as np, dmlcpu
    >>> dmlcpu.scatter_nd([1, 2, 3, 4, 5, 6, 7, 8], [[4], [3], [1], [7]], [9, 10, 11, 12])
    array([ 1, 11,  3, 10,  9,  6,  7, 12])
    >>> bins = np.zeros(3, np.int64)
    >>> dmlcpu.scatter_nd(bins, [[0], [2], [2]], [1, 1, 1], reduction="add", out=bins)
    array([1, 0, 2])
    """
    if type(x) is np.ndarray and type(indices) is np.ndarray and type(updates) is np.ndarray:
        found = _run_plain(x, indices, updates, reduction, mode, out)
        if found is not None:
            return found
    call = check(x, indices, updates, reduction, mode)
    result = allocate(call, out)
    execute(call, result)
    return result


def _run_plain(x: Array, indices: Array, updates: Array, reduction: Any, mode: Any, out: Any) -> Array | None:
    """Run a call with a packed output; return None, and do nothing, if a call has to be looked at more closely."""
    flags = x.flags.num & indices.flags.num & updates.flags.num
    if not flags & ALIGNED or not can_compile():
        return None
    if out is not None and (type(out) is not np.ndarray or out.flags.num & PLAIN != PLAIN):
        return None
    layout = None if flags & PLAIN == PLAIN else (x.flags.num & C_CONTIGUOUS, indices.strides, updates.strides)
    kinds: tuple[Any, ...] = (x.shape, x.dtype, indices.shape, indices.dtype, updates.shape, updates.dtype, layout)
    try:
        plain = _plain(*kinds, reduction, mode, out is x, most())
        if plain and not plain.plan.is_single:
            plain = _plain(*kinds, reduction, mode, out is x, budget())
    except TypeError:  # an argument that is not hashable, or refused: `check` says what is wrong with it
        return None
    if out is not None and not _takes(out, x, indices, updates):
        return None
    if plain is None:
        return None if indices.itemsize >= 4 else _run_plain(x, indices.astype(np.int64), updates, reduction, mode, out)
    chosen, form = plain
    element, _ = form
    result: Array = empty_result(x.shape, x.dtype) if out is None else out
    if layout is None:
        flat_out = frombuffer(result, element)
        flat_x = flat_out[:0] if result is x else frombuffer(x, element)
        place = run(chosen, flat_x, frombuffer(indices, INDEX_WORD), frombuffer(updates, element), flat_out)
    else:
        place = _run_on(Call(x, indices, updates, reduction, mode), result, form, chosen)
    if place != VALID:
        raise out_of_range(indices.flat[place], place, (indices.shape, indices.dtype), x.shape)
    return result


class _Plain(NamedTuple):
    """How a call with a packed output is carried out: it is looked up, and the arguments need no further check."""

    plan: Plan
    form: tuple[np.dtype[Any], int]  # as of `_form`


# typed: a look-up tells True and 1.0 from 1.
@functools.lru_cache(maxsize=1024, typed=True)
def _plain(
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    indices_shape: tuple[int, ...],
    index_type: np.dtype[Any],
    updates_shape: tuple[int, ...],
    updates_type: np.dtype[Any],
    layout: tuple[int, tuple[int, ...], tuple[int, ...]] | None,
    reduction: Any,
    mode: Any,
    is_in_place: bool,
    spent: Budget,
) -> _Plain | None:
    """Return how calls with such arguments are carried out, or None if no kernel reads the arrays as they are.

    layout: None if all are packed, else whether x is, and the strides of indices and updates.
    """
    shapes = ((shape, dtype), (indices_shape, index_type), (updates_shape, updates_type))
    x, indices, updates = [stand_in(*each) for each in shapes]
    check(x, indices, updates, reduction, mode)
    is_aligned = reduction != "none" or dtype.alignment > 1 or dtype.itemsize == 1
    is_native = dtype.isnative and index_type.isnative and updates_type.isnative
    # Types with fields are equal whether they are aligned or not.
    if not (is_aligned and is_native) or index_type.itemsize < 4 or dtype.names:
        return None
    if 0 in (*shape, *indices_shape, *updates_shape):
        return None
    element = aligned_type(dtype, reduction)
    packed = [packed_strides(each, kind.itemsize) for each, kind in shapes]
    is_packed, *given = layout or (True, *packed[1:])
    strides = (packed[0], *given)
    copied = IN_PLACE if is_in_place else BY_KERNEL if is_packed else BY_NUMPY
    chosen = plan(shape, dtype, element, indices_shape, index_type, strides, reduction, mode, copied, spent)
    return _Plain(chosen, (element, copied))


def _takes(out: Any, x: Array, indices: Array, updates: Array) -> bool:
    """Return whether a packed out is x, or apart from x; refuse what shares memory with the others."""
    if out is not x and (out.shape != x.shape or out.dtype is not x.dtype or spans_meet(out, x)):
        return False
    if out is indices or out is updates or not out.flags.num & indices.flags.num & updates.flags.num & OWNS_DATA:
        check_apart("scatter_nd", "out", out, {"indices": indices, "updates": updates})
    return True


def check(x: Any, indices: Any, updates: Any, reduction: Any, mode: Any) -> Call:
    """Return the arguments in their plain forms, or refuse them."""
    x = as_array("scatter_nd", "x", x)
    if type(reduction) is not str or reduction not in REDUCTIONS:  # faster than the call that says what is wrong
        check_choice("scatter_nd", "reduction", reduction, REDUCTIONS)
    if type(mode) is not str or mode not in MODES:
        check_choice("scatter_nd", "mode", mode, MODES)
    if reduction != "none":
        reduction_of(x.dtype, reduction)
    indices = as_array("scatter_nd", "indices", indices)
    if indices.dtype.kind not in "iu":
        raise UnsupportedError("scatter_nd", "indices.dtype", str(indices.dtype), "any integer type")
    sizes, outer = x.shape, indices.shape
    if not outer:
        raise BindingError("scatter_nd", "indices.ndim", "0", "at least 1 (the last dimension holds a tuple)")
    coordinates = outer[-1]
    if coordinates > len(sizes):
        allowed = f"0 to {x.ndim} (x has {x.ndim} dimensions)"
        raise BindingError("scatter_nd", "indices.shape[-1]", str(coordinates), allowed)
    updates = as_array_like("scatter_nd", "updates", updates, "x", x.dtype)
    shape = outer[:-1] + sizes[coordinates:]
    if updates.shape != shape:
        allowed = f"{shape} (indices.shape[:-1] + x.shape[{coordinates}:]; updates are not broadcast)"
        raise BindingError("scatter_nd", "updates.shape", str(updates.shape), allowed)
    if mode == "clip" and indices.size and 0 in sizes[:coordinates]:
        allowed = f"none: dimension {sizes.index(0)} has 0 elements"
        raise IndexOutOfRangeError("scatter_nd", "indices", "clipped into an empty dimension", allowed)
    return Call(x, indices, updates, reduction, mode)


def allocate(call: Call, out: Array | None) -> Array:
    """Return the output: a new array, or `out` if the result can be written to it."""
    x = call.x
    if out is None:
        return empty_result(x.shape, x.dtype)
    out = check_output("scatter_nd", "out", out, x.shape, x.dtype)
    check_apart("scatter_nd", "out", out, {"indices": call.indices, "updates": call.updates})
    if not same_memory(x, out):
        check_apart("scatter_nd", "out", out, {"x (it may be x itself, but not a part of it)": x})
    return out


def execute(
    call: Call, out: Array, *, operator: str = "scatter_nd", field: str = "indices", most_threads: int | None = None
) -> None:
    """Run a call, in place if its x is out; an error about an index names `operator` and `field`."""
    if call.indices.itemsize < 4:
        call = call._replace(indices=call.indices.astype(np.int64))
    if call.x is not out and same_memory(call.x, out):
        call = call._replace(x=out)
    if can_compile():
        form = _form(call, out)
        place = _run_on(call, out, form, _plan_within(call, out, form, budget(most_threads)))
    else:
        place = _by_reference(call, out)
    if place != VALID:
        raise _refusal(call, operator, field, place)


def steps(call: Call, out: Array, given: Mapping[str, Any]) -> Steps | None:
    """Return how a call runs on the same arrays again and again, or None if that takes all its checks."""
    if any(getattr(call, name) is not given[name] for name in ("x", "indices", "updates")) or call.indices.itemsize < 4:
        return None
    if same_memory(call.x, out):
        call = call._replace(x=out)
    form = _form(call, out)
    within = functools.partial(_plan_within, call, out, form)
    refusal = functools.partial(_refusal, call, "scatter_nd", "indices")
    return plan_steps(within, refusal, *_words(call, out, form), unlike=_unlike(call, out, form))


def _form(call: Call, out: Array) -> tuple[np.dtype[Any], int]:
    """Return the type that the kernels see, and how x is copied."""
    x, _, updates, reduction, _ = call
    copied = IN_PLACE if x is out else BY_KERNEL if x.flags.num & out.flags.num & CONTIGUOUS else BY_NUMPY
    return element_type(x, updates, out, reduction), copied


def _plan_within(call: Call, out: Array, form: tuple[np.dtype[Any], int], spent: Budget) -> Plan:
    x, indices, updates, reduction, mode = call
    element, copied = form
    strides = (out.strides, indices.strides, updates.strides)
    layout = (x.shape, x.dtype, element, indices.shape, indices.dtype, strides)
    return plan(*layout, reduction, mode, copied, spent)


def _run_on(call: Call, out: Array, form: tuple[np.dtype[Any], int], chosen: Plan) -> int:
    """Carry out a plan; return the place of the first bad index, or VALID."""
    return run(chosen, *_words(call, out, form), unlike=_unlike(call, out, form))


def _unlike(call: Call, out: Array, form: tuple[np.dtype[Any], int]) -> tuple[Array, Array] | None:
    """Return out and x if NumPy copies x."""
    return (out, call.x) if form[1] == BY_NUMPY else None


def _words(call: Call, out: Array, form: tuple[np.dtype[Any], int]) -> tuple[Array, Array, Array, Array]:
    """Return the words of x, indices, updates and out."""
    x, indices, updates, *_ = call
    element, copied = form
    # T == 0: there are no indices, and each update goes to the one place there is. No updates: none is read.
    flat_indices = words(indices, INDEX_WORD) if indices.size else np.zeros(2, INDEX_WORD)
    flat_out = words(out, element) if out.size else np.zeros(1, element)
    flat_updates = words(updates, element) if updates.size else flat_out
    flat_x = words(x, element) if copied == BY_KERNEL and x.size else flat_out[:0]
    return flat_x, flat_indices, flat_updates, flat_out


def _refusal(call: Call, operator: str, field: str, place: int) -> IndexOutOfRangeError:
    """Return the error about the index at a place."""
    indices = call.indices
    return out_of_range(indices.flat[place], place, (indices.shape, indices.dtype), call.x.shape, operator, field)


def _by_reference(call: Call, out: Array) -> int:
    """Run in plain NumPy; return the place of the first bad index, or VALID."""
    if call.mode == "raise":
        bad = is_out(call.indices, call.x.shape[: call.coordinates])
        if bad.any():
            return int(bad.argmax())
    reference_scatter_nd(**call._asdict(), out=out)
    return VALID


def is_out(indices: Array, sizes: tuple[int, ...]) -> Array:
    """Return which coordinates point outside their dimension."""
    if indices.dtype.kind == "u" and indices.itemsize >= 4:
        return np.asarray(indices >= np.array(sizes, np.uint64))
    limits = np.array(sizes, np.int64)
    return np.asarray((indices < -limits) | (indices >= limits))


def out_of_range(
    value: int,
    place: int,
    indices: tuple[tuple[int, ...], np.dtype[Any]],
    shape: tuple[int, ...],
    operator: str = "scatter_nd",
    field: str = "indices",
) -> IndexOutOfRangeError:
    """Return the error about a coordinate and its place in C order. indices: their shape and type; shape: of x."""
    outer, dtype = indices
    number, coordinate = divmod(place, outer[-1])
    where = (*map(int, np.unravel_index(number, outer[:-1])), coordinate)
    size = shape[coordinate]
    lowest = 0 if dtype.kind == "u" and dtype.itemsize >= 4 else -size  # shorter ones are read as int64
    allowed = f"{lowest} to {size - 1}" if size else "none"
    return IndexOutOfRangeError(
        operator,
        f"{field}[{', '.join(map(str, where))}]",
        str(value),
        f"{allowed} (coordinate {coordinate} of tuple {number}; that dimension has {size} elements)",
    )
