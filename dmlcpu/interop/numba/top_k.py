"""top_k in compiled code: one thread, contiguous arrays, and a plan on the stack."""

import functools

import numpy as np
from numba.core import types
from numba.cpython.unsafe.tuple import tuple_setitem
from numba.extending import overload, register_jitable

from dmlcpu.common.data_types import DATA_TYPES
from dmlcpu.common.forms import Form
from dmlcpu.interop.numba.calls import PART, PARTS, caller_of, stack_of, tuple_of, write_record
from dmlcpu.interop.numba.refusals import (
    STACK,
    RefusalError,
    array_type,
    constant,
    is_given,
    output_type,
    refusal,
    share_memory,
    typed,
)
from dmlcpu.kernels.top_k.choose import (
    LOCKSTEP,
    SELECT_SORT,
    STRIDED_INSERT,
    STRIDED_TOURNAMENT,
    TOURNAMENT,
    choose,
    lockstep_work_of,
)
from dmlcpu.kernels.top_k.keys import KINDS, KeyMap, make_key_map
from dmlcpu.kernels.top_k.lockstep import lockstep, workspace as workspace_of_lockstep
from dmlcpu.kernels.top_k.select_sort import select_sort, workspace as workspace_of_select_sort
from dmlcpu.kernels.top_k.strided_insert import strided_insert, workspace as workspace_of_insert
from dmlcpu.kernels.top_k.strided_tournament import strided_tournament, workspace as workspace_of_strided_tournament
from dmlcpu.kernels.top_k.tournament import tournament, workspace as workspace_of_tournament
from dmlcpu.kernels.top_k.work import WORK
from dmlcpu.operators.top_k.call import check as check_call
from dmlcpu.operators.top_k.function import TopK, top_k
from dmlcpu.operators.top_k.plan import INDEX_WORD
from dmlcpu.runtime.intrinsics import as_words, either, line_of
from dmlcpu.runtime.jit import OWN_OPTIONS, device
from dmlcpu.runtime.records import CACHE_LINE, CELL, cells_of
from dmlcpu.runtime.variants import variant

_on_stack, _record_on_stack = stack_of(STACK), stack_of(cells_of(WORK))
_LINE_CELLS, Work = CACHE_LINE // CELL, tuple_of(WORK)
_insert, _lockstep, _select_sort = strided_insert.share, lockstep.share, select_sort.share
_tournament, STRIDED = tournament.share, False  # whether the axis is not the last


@device
def workspace(kernel, n, k, lanes):
    """Return how many keys and positions a kernel needs."""
    if kernel == STRIDED_INSERT:
        return workspace_of_insert(n, k, lanes)
    if kernel == LOCKSTEP:
        return workspace_of_lockstep(n, k, lanes)
    if kernel == SELECT_SORT:
        return workspace_of_select_sort(n, k, lanes)
    if kernel == STRIDED_TOURNAMENT:
        return workspace_of_strided_tournament(n, k, lanes)
    return workspace_of_tournament(n, k, lanes)


@device
def plan(x, rows, n, inner, k, strided):
    """Return the kernel, the keys and positions of its workspace, and the size of the workspace in cells."""
    kernel = choose(rows, n, k, inner, inner, lockstep_work_of(x))
    if strided and kernel == TOURNAMENT:  # "columns" uses the strided one instead
        kernel = STRIDED_TOURNAMENT
    keys, positions = workspace(kernel, n, k, line_of(x))
    positions += -positions % _LINE_CELLS  # aligns the following keys to a cache line
    return kernel, keys, positions, positions + (keys * x.itemsize + CELL - 1) // CELL


@device
def fill(works, sizes, k, key_map, options, workspace):
    """Write the work record of contiguous arrays."""
    outer, n, inner = sizes
    is_sorted, index_words = options
    write_record(works, WORK, Work(
        n=n, k=k, rows=outer * inner, columns=inner, is_packed=inner == 1, is_sorted=is_sorted, index_words=index_words,
        walk=(2 - (inner == 1), (outer, inner)),
        x=(0, inner, (n * inner, 1)), values=(0, inner, (k * inner, 1)),
        indices=(0, inner * index_words, (k * inner * index_words, index_words)),
        key_map=key_map, workspace=workspace,
    ))  # fmt: skip


def select(x, values, indices, sizes, k, key_map, options, spare):
    """Select in all sequences on one thread; return 0, or the cells of the workspace that it lacks.

    sizes: the product of the sizes before the axis, n, the product of those after it; options: whether winners are
    sorted, and the words of an index; spare: a workspace, empty if the stack has room.
    """
    outer, n, inner = sizes
    if outer * n * inner == 0 or k == 0:
        return np.int64(0)
    kernel, keys, positions, cells = plan(x, outer * inner, n, inner, k, STRIDED)
    if cells > STACK and cells > spare.size:
        return np.int64(cells)
    works = _record_on_stack()
    fill(works, sizes, k, key_map, options, (keys, positions))
    scratch = either(cells > STACK, spare, 0, _on_stack())
    if kernel == SELECT_SORT:
        _select_sort(PART, PARTS, x, values, indices, works, scratch)
    elif kernel == LOCKSTEP:
        _lockstep(PART, PARTS, x, values, indices, works, scratch)
    elif kernel == STRIDED_INSERT:
        _insert(PART, PARTS, x, values, indices, works, scratch)
    else:
        _tournament(PART, PARTS, x, values, indices, works, scratch)
    return np.int64(0)


def signature(words):
    """Return the types of the arguments of `select`."""
    number = types.int64
    key_map = types.NamedUniTuple(types.uint64, len(KeyMap._fields), KeyMap)
    places, spare = types.Array(types.uint32, 1, "C"), types.Array(number, 1, "C")
    return words, words, places, types.UniTuple(number, 3), number, key_map, types.UniTuple(number, 2), spare


# A kernel that is never chosen is replaced by one that is compiled anyway.
SELECT = {
    "one": variant(select, "select_one", STRIDED=False, _lockstep=_select_sort, _insert=_select_sort).share,
    "rows": variant(select, "select_rows", STRIDED=False, _insert=_select_sort).share,
    "columns": variant(select, "select_columns", STRIDED=True, _tournament=strided_tournament.share).share,
}
OFFERS = {name: functools.partial(SELECT.get, name) for name in SELECT}


@device
def sizes_of(shape, axis):
    """Return the product of the sizes before an axis, its own size, and the product of those after it."""
    outer, inner = 1, 1
    for d in range(len(shape)):
        outer *= shape[d] if d < axis else 1
        inner *= shape[d] if d > axis else 1
    return outer, shape[axis], inner


@register_jitable(**OWN_OPTIONS)
def check(k, axis, shape, longest, index_dtype):
    """Refuse numbers that do not fit; return the axis counted from the first."""
    place = axis if axis >= 0 else axis + len(shape)
    if not (0 <= place < len(shape) and 0 <= k <= shape[place] and shape[place] - 1 <= longest):
        raise RefusalError("top_k", k, axis, shape, index_dtype)
    return place


@register_jitable(**OWN_OPTIONS)
def check_outputs(x, values, indices, shape):
    """Refuse outputs of another shape, or that share memory."""
    if values.shape != shape:
        raise RefusalError("shape", "top_k", "out[0]", values.shape, shape)
    if indices.shape != shape:
        raise RefusalError("shape", "top_k", "out[1]", indices.shape, shape)
    if share_memory(values, x):
        raise RefusalError("shared", "top_k", "out[0]", "x")
    if share_memory(values, indices):
        raise RefusalError("shared", "top_k", "out[0]", "out[1]")
    if share_memory(indices, x):
        raise RefusalError("shared", "top_k", "out[1]", "x")


@overload(top_k, prefer_literal=True, jit_options=OWN_OPTIONS)
def _top_k(
    x, k, axis=-1, mode=None, largest=None, sorted=True, nan="greatest", fill_value=None, index_dtype=np.int64, out=None
):
    """Return top_k for arguments of these types. Numba has no arguments that are passed by keyword only."""
    dtype = array_type("top_k", "x", x)
    options = {"mode": mode, "largest": largest, "sorted": sorted, "nan": nan, "index_dtype": index_dtype}
    constants = [constant("top_k", name, value) for name, value in options.items()]
    call = typed(check_call, Form((1,) * x.ndim, dtype), (0, 0, *constants))  # k and axis are checked in each call
    if not isinstance(k, types.Integer):
        raise refusal("top_k", "k", k, "an integer, in compiled code")
    if not isinstance(axis, types.Integer | int) and not isinstance(getattr(axis, "value", None), int):
        raise refusal("top_k", "axis", axis, "an integer")
    if is_given(fill_value):
        raise refusal("top_k", "fill_value", fill_value, "None, as k is one number in compiled code")
    if is_given(out):
        if not isinstance(out, types.BaseTuple) or len(out) != 2:
            raise refusal("top_k", "out", out, "a tuple (values, indices) of two arrays")
        output_type("top_k", "out[0]", out[0], x.ndim, dtype)
        output_type("top_k", "out[1]", out[1], x.ndim, call.index_dtype)
    row = DATA_TYPES[dtype.name]
    key_map = make_key_map(KINDS[row.kind], dtype.itemsize, row.infinity, call.largest, call.nan_last)
    return _implementation(x.ndim, dtype, key_map, call.sorted, axis, call.index_dtype, is_given(out))


def _implementation(ndim, dtype, constants, is_sorted, axis, index_type, has_out):
    word, index_scalar, index_name = np.dtype(f"u{dtype.itemsize}").type, index_type.type, index_type.name
    key_map, longest = KeyMap(*map(np.uint64, constants)), DATA_TYPES[index_name].highest
    options = (np.int64(is_sorted), np.int64(index_type.itemsize // INDEX_WORD.itemsize))
    axis = axis.literal_value if isinstance(axis, types.Literal) else getattr(axis, "value", axis)
    strided = not (isinstance(axis, int) and axis in (-1, ndim - 1))  # perhaps, if the axis is not constant
    select = caller_of("top_k", "columns" if strided else "one" if ndim == 1 else "rows", np.dtype(word))

    # Numba optimizes each callee again in every caller, so there is no helper between this and the kernels.
    def implementation(x, k, axis=-1, mode=None, largest=None, sorted=True, nan="greatest", fill_value=None,
                       index_dtype=np.int64, out=None):  # fmt: skip
        count = np.int64(k)
        place = check(count, np.int64(axis), x.shape, longest, index_name)
        shape = tuple_setitem(x.shape, place, count)
        if has_out:
            values, indices = out
            check_outputs(x, values, indices, shape)
        else:
            values, indices = np.empty(shape, x.dtype), np.empty(shape, index_scalar)
        sizes, elements, places = sizes_of(x.shape, place), as_words(x, 0, word), as_words(indices, 0, np.uint32)
        given = (elements, as_words(values, 0, word), places, sizes, count, key_map, options)
        cells = select((*given, as_words(indices, 0, np.int64)[:0]))
        if cells > 0:
            select((*given, np.empty(cells, np.int64)))
        return TopK(values, indices)

    return implementation
