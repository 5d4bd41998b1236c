"""TOP_K1: the k largest or smallest elements of each sequence, with their positions, in a stable order."""

import functools
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from dmlcpu.errors import DmlError, UnsupportedError
from dmlcpu.kernels import registry
from dmlcpu.kernels.top_k import lockstep, split, strided_insert, strided_tournament, tournament
from dmlcpu.kernels.top_k.keys import FLOAT, SIGNED, UNSIGNED, make_key_map
from dmlcpu.kernels.top_k.work import WORK, Problem
from dmlcpu.kernels.walk import merge, walk_of
from dmlcpu.operators.arguments import (
    Array,
    as_array,
    as_dtype,
    as_integer,
    check_apart,
    check_flag,
    check_output,
    type_name,
)
from dmlcpu.reference import top_k as reference_top_k
from dmlcpu.runtime import threads
from dmlcpu.runtime.compilation import can_compile
from dmlcpu.runtime.memory import Workspace, first_word, word_strides, words
from dmlcpu.runtime.records import CACHE_LINE, CELL, fill
from dmlcpu.runtime.results import empty_result

_log = logging.getLogger("dmlcpu")


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


class _Kind(NamedTuple):
    """How the words of a data type map to keys."""

    code: int
    infinity: int  # the bits of +inf, for floating types


_KINDS = {
    "bool": _Kind(UNSIGNED, 0),
    **{f"uint{bits}": _Kind(UNSIGNED, 0) for bits in (8, 16, 32, 64)},
    **{f"int{bits}": _Kind(SIGNED, 0) for bits in (8, 16, 32, 64)},
    "float16": _Kind(FLOAT, 0x7C00),
    "bfloat16": _Kind(FLOAT, 0x7F80),
    "float32": _Kind(FLOAT, 0x7F800000),
    "float64": _Kind(FLOAT, 0x7FF0000000000000),
}
_INDEX_TYPES = {"int64": 2**63 - 1, "int32": 2**31 - 1, "uint64": 2**64 - 1, "uint32": 2**32 - 1}
INDEX_WORD = np.dtype(np.uint32)


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
    _kind(x.dtype)
    if x.ndim == 0:
        raise DmlError("top_k", "x.ndim", "0", "at least 1")
    axis = as_integer("top_k", "axis", axis)
    if not -x.ndim <= axis < x.ndim:
        raise DmlError("top_k", "axis", str(axis), f"{-x.ndim} to {x.ndim - 1} (x has {x.ndim} dimensions)")
    axis %= x.ndim
    k = as_integer("top_k", "k", k)
    if not 0 <= k <= x.shape[axis]:
        raise DmlError("top_k", "k", str(k), f"0 to {x.shape[axis]} (the elements along axis {axis})")
    index_type = as_dtype("top_k", "index_dtype", index_dtype, _INDEX_TYPES)
    if x.shape[axis] - 1 > _INDEX_TYPES[type_name(index_type)]:
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


# Between the workspaces of two threads, in elements: no cache line, nor the next one that processors fetch with it, is
# written by both.
_GAP = 128

# Where one kernel overtakes another; measured by asv_bench/thresholds.py.
_INSERT_K = 16  # at most: winners in a vector lane
_INSERT_N = 10_000  # at most: elements of a column
_INSERT_COLUMNS = 8  # at least: columns side by side, or most lanes have none
_LOCKSTEP_WORK = 8192  # at most: elements of a sequence times k
# At least so many elements for each of the k winners, or too many groups have to be looked at again.
_ELEMENTS_A_WINNER = 31


def cost(entry: registry.Entry, problem: Problem, width: int) -> int:
    """Return about how many nanoseconds a sequence takes on one thread."""
    assert entry.cost is not None
    element, winner = entry.cost
    return int(problem.n * width / 4 * element + problem.k * winner)


def choose(problem: Problem, width: int, budget: threads.Budget) -> str:
    """Return the name of the kernel that is fastest for such sequences of elements of so many bytes."""
    few = problem.k <= _INSERT_K and problem.n <= _INSERT_N
    if strided_insert.supports(problem) and few and problem.columns >= _INSERT_COLUMNS:
        return "strided_insert"
    if lockstep.supports(problem) and problem.n * problem.k <= _LOCKSTEP_WORK and problem.rows > 1:
        return "lockstep"
    if problem.n < _ELEMENTS_A_WINNER * problem.k:
        return "select_sort"
    if strided_tournament.supports(problem):
        return "strided_tournament"
    if not tournament.supports(problem):
        return "select_sort"
    # Shares of a sequence have to be merged, so each must be worth twice as much as others.
    each = cost(registry.find("top_k", "select", "split"), problem, width)
    shares = budget.parts(each // 2, split.most_parts(problem))
    return "split" if problem.rows * 2 <= budget.threads and shares > 1 else "tournament"


@dataclass(frozen=True, slots=True)
class Plan:
    """How one shape, layout and type is worked on."""

    kernel: registry.Entry
    run: Callable[..., Any]  # the kernel, to be called with (0, parts, ...)
    parts: int
    merge: Callable[..., Any] | None  # what makes the result of split sequences
    work: Array  # the work record that the kernels are given
    word: np.dtype[Any]  # what the kernels see elements as
    workspace: Workspace


@functools.lru_cache(maxsize=1024)
def plan(
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    axis: int,
    k: int,
    largest: bool,
    index_width: int,
    strides: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]],
    budget: threads.Budget,
    kernel: str | None,
    ordered: bool,
) -> Plan:
    """Choose the kernel and cut the work. strides: of x, values and indices."""
    kind, width = _kind(dtype), dtype.itemsize
    problem, sequences = _lay_out(shape, axis, k, width, strides)
    entry = registry.find("top_k", "select", kernel or choose(problem, width, budget))
    if entry.supports and not entry.supports(problem):
        raise LookupError(f"the kernel {entry.name} does not support {problem}")
    parts = _cut(entry, problem, width, budget)
    keys, positions = _share_of_workspace(entry, problem)
    work = fill(
        WORK,
        is_sorted=ordered,
        index_words=index_width // INDEX_WORD.itemsize,
        key_map=make_key_map(kind.code, width, kind.infinity, largest)._asdict(),
        workspace={"keys": keys, "positions": positions},
        **sequences,
    )
    _log.debug("top_k: %s, k %d along axis %d: %s, %d parts", shape, k, axis, entry.name, parts)
    return Plan(
        kernel=entry,
        run=entry.kernel.for_parts(parts),
        parts=parts,
        merge=registry.find("top_k", "merge").kernel.share if entry.name == "split" else None,
        work=work,
        word=np.dtype(f"u{width}"),
        workspace=Workspace(parts * (positions + -(-keys * width // CELL))),
    )


def _lay_out(
    shape: tuple[int, ...], axis: int, k: int, width: int, strides: tuple[tuple[int, ...], ...]
) -> tuple[Problem, dict[str, Any]]:
    """Return the problem, and the fields of its work record that say what sequences there are and where they lie."""
    n, out_shape = shape[axis], (*shape[:axis], k, *shape[axis + 1 :])
    in_words = [word_strides(own, size) for own, size in zip(strides, (width, width, INDEX_WORD.itemsize), strict=True)]
    others = [d for d in range(len(shape)) if d != axis]
    sizes, *by_tensor = merge([shape[d] for d in others], *[[own[d] for d in others] for own in in_words])
    steps = [own[axis] for own in in_words]
    x, values, indices = [
        {"start": first_word(full, own), "step": step, "strides": merged}
        for full, own, step, merged in zip((shape, out_shape, out_shape), in_words, steps, by_tensor, strict=True)
    ]
    x_step, x_strides = steps[0], by_tensor[0]
    columns = sizes[-1] if x_strides[-1] == 1 else 1
    is_packed = x_step == 1 and x_strides == [n]
    problem = Problem(rows=math.prod(sizes), n=n, k=k, step=x_step, columns=columns)
    counts = {"n": n, "k": k, "rows": problem.rows, "columns": columns, "is_packed": is_packed}
    return problem, {**counts, "walk": walk_of(sizes), "x": x, "values": values, "indices": indices}


def _cut(entry: registry.Entry, problem: Problem, width: int, budget: threads.Budget) -> int:
    """Return how many parts the work is worth; of `split`, as many for each sequence."""
    each = cost(entry, problem, width)
    if entry.name == "split":
        return problem.rows * budget.parts(work=each, most=split.most_parts(problem))
    return budget.parts(work=problem.rows * each, most=problem.rows)


def _share_of_workspace(entry: registry.Entry, problem: Problem) -> tuple[int, int]:
    """Return how many keys and positions a share has, with the gap to the next."""
    assert entry.workspace is not None
    keys, positions = (length + _GAP for length in entry.workspace(problem.n, problem.k))
    return keys, positions + -positions % (CACHE_LINE // CELL)  # the keys behind start a cache line


def execute(
    x: Array,
    k: int,
    axis: int,
    largest: bool,
    values: Array,
    indices: Array,
    *,
    ordered: bool = True,
    kernel: str | None = None,
) -> None:
    """Run on checked arrays of any strides; `kernel` asks for one of the registry by name."""
    if values.size == 0:
        return
    if not can_compile():
        reference_top_k(x, k, axis=axis, largest=largest, index_dtype=indices.dtype, out=(values, indices))
        return
    strides = (x.strides, values.strides, indices.strides)
    chosen = plan(x.shape, x.dtype, axis, k, largest, indices.itemsize, strides, threads.budget(), kernel, ordered)
    run(chosen, words(x, chosen.word), words(values, chosen.word), words(indices, INDEX_WORD))


def run(chosen: Plan, x: Array, values: Array, indices: Array) -> None:
    """Carry out a plan on the words of the arrays."""
    with chosen.workspace as scratch:
        chosen.run(0, chosen.parts, x, values, indices, chosen.work, scratch)
        if chosen.merge:
            chosen.merge(0, chosen.parts, x, values, indices, chosen.work, scratch)


def _kind(dtype: np.dtype[Any]) -> _Kind:
    kind = _KINDS.get(type_name(dtype))
    if kind is None:
        raise UnsupportedError("top_k", "x.dtype", str(dtype), ", ".join(_KINDS))
    return kind
