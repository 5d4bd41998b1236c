"""TOP_K1: the k largest or smallest elements of each sequence, with their positions, in a stable order."""

import functools
from collections.abc import Mapping
from typing import Any, Generic, NamedTuple, overload

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from dmlcpu.annotations import Array, DType, Element, Indices, Mode, Nan, Position, Values
from dmlcpu.common.arguments import check_apart, check_output, check_tuple
from dmlcpu.common.bound import Steps
from dmlcpu.common.stand_ins import stand_in
from dmlcpu.errors import BindingError, DmlError
from dmlcpu.operators.top_k.call import Call, check, fill_behind, places_beyond
from dmlcpu.operators.top_k.plan import INDEX_WORD, Plan, plan, run, steps as plan_steps
from dmlcpu.reference import top_k as reference_top_k
from dmlcpu.runtime import threads
from dmlcpu.runtime.compilation import can_compile
from dmlcpu.runtime.memory import ALIGNED, OWNS_DATA, PLAIN, frombuffer, packed_strides, words
from dmlcpu.runtime.results import empty_result


class TopK(NamedTuple, Generic[Values, Indices]):
    """What `top_k` returns.

    Attributes
    ----------
    values : ndarray
        The selected elements, best first along the axis.
    indices : ndarray
        Their positions, counted from the start of their own sequence.
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

    The order is total and stable: elements with the same value appear by ascending index, which also decides which of
    several equal elements are selected. NaN ranks above +inf, and all NaNs tie; -0.0 and +0.0 tie. The selected
    elements keep every bit.

    Parameters
    ----------
    x : array_like, shape (..., N, ...)
        float16, float32, float64, bfloat16 (of ``ml_dtypes``), bool, or any integer type of 8 to 64 bits; at least one
        dimension, any memory layout.
    k : int or array_like of integers
        How many elements to select, 0 to N. An array has a number for each sequence: it broadcasts to x's shape without
        `axis`. The results then have the greatest of them along the axis, and each sequence its first k places filled;
        behind them are `fill_value` and the index -1 (of unsigned types: the highest).
    axis : int, default -1
        The axis of length N. A negative one counts from the last.
    mode : {"largest", "smallest"}, optional
        Which elements to select, and the order in which they come: the largest first (the default), or the smallest.
    largest : bool, optional
        The same in PyTorch's words: True is mode "largest". Only one of both may be given.
    sorted : bool, default True
        If False, the same elements come in an order that is not promised, which is faster for large k. With an array of
        k they are sorted all the same.
    nan : {"greatest", "last"}, default "greatest"
        Where NaN ranks: above +inf, so first among the largest and last among the smallest; or last in both modes, as
        in NumPy's ``top_k``.
    fill_value : scalar, optional
        What stands behind the elements of a sequence, if k is an array: by default -inf or the lowest number in mode
        "largest", inf or the highest in mode "smallest".
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
    arrays and to more data types. ``ONNX TopK`` gives the same results where it defines them. `mode` and `axis` are
    those of ``numpy.top_k`` and of the array API standard.

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
    >>> dmlcpu.top_k(x, 1, axis=0, mode="smallest").indices
    array([[0, 0, 1, 1]])
    >>> dmlcpu.top_k(x, [1, 3])
    TopK(values=array([[ 11., -inf, -inf],
           [  9.,   8.,   3.]], dtype=float32), indices=array([[ 3, -1, -1],
           [ 2,  3,  0]]))
    """
    result = None
    if type(x) is np.ndarray and x.flags.num & ALIGNED and type(k) is int and can_compile():
        strides = None if x.flags.num & PLAIN == PLAIN else x.strides
        try:
            options: tuple[Any, ...] = (x.shape, strides, x.dtype, k, axis, mode, largest, sorted, nan, index_dtype)
            plain = _plain(*options, threads.most())
            if plain and not plain.plan.is_single:
                plain = _plain(*options, threads.budget())
        except TypeError:  # an argument that is not hashable, or refused: `check` says what is wrong with it
            plain = None
        if plain:
            result = _allocate(x, plain.shape, plain.index_dtype, out)
            values, indices = result
            if values.flags.num & indices.flags.num & PLAIN == PLAIN:
                word = plain.plan.word
                flat = frombuffer(x, word) if strides is None else words(x, word)
                run(plain.plan, flat, frombuffer(values, word), frombuffer(indices, INDEX_WORD))
                return result
    call = check(x, k, axis, mode, largest, sorted, nan, fill_value, index_dtype)
    result = result or allocate(call, out)
    execute(call, result)
    return result


class _Plain(NamedTuple):
    """How a call with packed outputs is carried out: it is looked up, and the arguments need no further check."""

    shape: tuple[int, ...]  # of the winners
    index_dtype: np.dtype[Any]
    plan: Plan


# typed: a look-up tells True and 1.0 from 1.
@functools.lru_cache(maxsize=1024, typed=True)
def _plain(
    shape: tuple[int, ...],
    x_strides: tuple[int, ...] | None,
    dtype: np.dtype[Any],
    k: int,
    axis: Any,
    mode: Any,
    largest: Any,
    sorted: Any,
    nan: Any,
    index_dtype: Any,
    budget: threads.Budget,
) -> _Plain | None:
    """Return how calls with such arguments are carried out, or None if no kernel reads the arrays as they are.

    x_strides: None if x is packed.
    """
    if not dtype.isnative:
        return None
    call = check(stand_in(shape, dtype), k, axis, mode, largest, sorted, nan, None, index_dtype)
    winners = call.winners(shape)
    if 0 in winners:
        return None
    of_tensors = ((shape, dtype), (winners, dtype), (winners, call.index_dtype))
    packed = [packed_strides(shape, dtype.itemsize) for shape, dtype in of_tensors]
    strides = (x_strides or packed[0], *packed[1:])
    layout = (call.axis, k, call.largest, call.index_dtype.itemsize, strides, budget, call.sorted, call.nan_last)
    return _Plain(winners, call.index_dtype, plan(shape, dtype, *layout))


def allocate(call: Call, out: Any) -> TopK:
    """Return the output arrays: new ones, or those of `out` if they fit."""
    return _allocate(call.x, call.winners(call.x.shape), call.index_dtype, out)


def _allocate(x: Array, shape: tuple[int, ...], index_dtype: np.dtype[Any], out: Any) -> TopK:
    if out is None:
        return TopK(empty_result(shape, x.dtype), empty_result(shape, index_dtype))
    check_tuple("top_k", out, 2, "a tuple (values, indices) of two arrays")
    values, indices = out
    values = check_output("top_k", "out[0]", values, shape, x.dtype)
    indices = check_output("top_k", "out[1]", indices, shape, index_dtype)
    # Different arrays that own their data share none.
    if (
        values is indices
        or values is x
        or indices is x
        or not values.flags.num & indices.flags.num & x.flags.num & OWNS_DATA
    ):
        check_apart("top_k", "out[0]", values, {"x": x, "out[1]": indices})
        check_apart("top_k", "out[1]", indices, {"x": x})
    return TopK(values, indices)


def execute(call: Call, out: tuple[Array, Array], *, most_threads: int | None = None) -> None:
    """Run a call on arrays of any strides."""
    x, axis, (values, indices) = call.x, call.axis, out
    shape = x.shape
    if values.shape != (*shape[:axis], call.k, *shape[axis + 1 :]):  # `winners` written out: a method takes longer
        call = _within_places(call, values.shape)
    if values.size == 0:
        return
    # Computed before anything is written: outputs may share the memory of counts.
    beyond = None if call.counts is None else places_beyond(call.counts, call.k, axis)
    if can_compile():
        chosen = _plan_within(call, out, threads.budget(most_threads))
        run(chosen, *_words(x, out, chosen.word))
    else:
        nan: Nan = "last" if call.nan_last else "greatest"
        reference_top_k(x, call.k, axis=axis, largest=call.largest, nan=nan, index_dtype=indices.dtype, out=out)
    if beyond is not None:
        fill_behind(out, call.fill, beyond)


def _within_places(call: Call, shape: tuple[int, ...]) -> Call:
    """Return a call whose k has changed since its outputs, of this shape, were bound."""
    places = shape[call.axis]
    if call.counts is None:
        raise BindingError("top_k", "out[0].shape", str(shape), str(call.winners(call.x.shape)))
    if call.k > places:
        raise DmlError("top_k", "k", f"an array up to {call.k}", f"up to {places} (the places of the bound outputs)")
    return call._replace(k=places)


def steps(call: Call, out: tuple[Array, Array], given: Mapping[str, Any]) -> Steps | None:
    """Return how a call runs on the same arrays again and again, or None if that takes all its checks."""
    is_constant = call.counts is None and not any(isinstance(given[name], np.ndarray) for name in ("k", "axis"))
    if call.x is not given["x"] or not is_constant or out[0].size == 0:
        return None
    word = np.dtype(f"u{call.x.itemsize}")
    return plan_steps(functools.partial(_plan_within, call, out), *_words(call.x, out, word))


def _plan_within(call: Call, out: tuple[Array, Array], budget: threads.Budget) -> Plan:
    x, (values, indices) = call.x, out
    strides = (x.strides, values.strides, indices.strides)
    options = (call.sorted, call.nan_last)
    return plan(x.shape, x.dtype, call.axis, call.k, call.largest, indices.itemsize, strides, budget, *options)


def _words(x: Array, out: tuple[Array, Array], word: np.dtype[Any]) -> tuple[Array, Array, Array]:
    """Return the words of x, values and indices."""
    return words(x, word), words(out[0], word), words(out[1], INDEX_WORD)
