"""Calls with packed arrays and plain options: one look-up finds their plan.

A look-up has the types and shapes of all arguments in its key, so the checks need not be repeated. Any other call gets
None here, and takes the long way, as does one that is refused.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from dmlcpu.common.arguments import Array, check_output
from dmlcpu.common.stand_ins import stand_in
from dmlcpu.errors import DmlError
from dmlcpu.kernels.scales import are_positive
from dmlcpu.quantizers.arguments import Call
from dmlcpu.quantizers.execution import layouts_of, words_of
from dmlcpu.quantizers.layout import Layout, Shape
from dmlcpu.quantizers.plan import FLOAT, Plan, plan
from dmlcpu.runtime.compilation import can_compile
from dmlcpu.runtime.memory import ALIGNED, PLAIN, frombuffer, packed_strides, spans_meet, words
from dmlcpu.runtime.results import empty_result
from dmlcpu.runtime.threads import Budget, budget, most

Check = Callable[..., Call]

_FLOATS = frozenset({float, *[np.dtype(code).type for code in "efd"]})
_NUMBERS = frozenset({int, float, type(None), *[np.dtype(code).type for code in "bBhHiIlLqQefd"]})


class _Plain(NamedTuple):
    """How a call is carried out. Numbers are there as kernels read them; of arrays None is."""

    plan: Plan
    dtype: np.dtype[Any]
    x_word: np.dtype[Any]
    y_word: np.dtype[Any]
    scale: Array | None
    zero: Array | None
    zero_word: np.dtype[Any]


def run_plain(
    check: Check, x: Any, scale: Any, zero_point: Any, axis: Any, block_size: Any, out_dtype: Any, out: Any
) -> Array | None:
    """Run a call, or return None if it has to be looked at more closely; check: of the function's arguments."""
    if type(x) is not np.ndarray or not x.flags.num & ALIGNED or not can_compile():
        return None
    if out is not None and (type(out) is not np.ndarray or out.flags.num & PLAIN != PLAIN):
        return None
    strides = None if x.flags.num & PLAIN == PLAIN else x.strides
    try:
        kinds = (_kind(scale), _kind(zero_point))
        key = (check, x.shape, strides, x.dtype, *kinds, axis, block_size, out_dtype)
        plain = _plain(*key, most())
        if plain and not plain.plan.is_single:
            plain = _plain(*key, budget())
    except (TypeError, DmlError):  # `check` says what is wrong
        return None
    if plain is None:
        return None
    if out is not None:
        arrays = [each for each in (x, scale, zero_point) if type(each) is np.ndarray]
        if check_output(plain.plan.kernel.operator, "out", out, x.shape, plain.dtype) is not out or any(
            out is each or spans_meet(out, each) for each in arrays
        ):
            return None
    scales = frombuffer(scale, FLOAT) if plain.scale is None else plain.scale
    if plain.scale is None and plain.plan.kernel.operator == "quantize_linear" and not are_positive(scales):
        return None
    result = empty_result(x.shape, plain.dtype) if out is None else out
    flat = frombuffer(x, plain.x_word) if strides is None else words(x, plain.x_word)
    zero = frombuffer(zero_point, plain.zero_word) if plain.zero is None else plain.zero
    scratch = plain.plan.workspace.take()
    plain.plan.run(flat, scales, zero, frombuffer(result, plain.y_word), plain.plan.work, scratch)
    plain.plan.workspace.give_back(scratch)
    return result


def _kind(value: Any) -> Any:
    """Return the type and shape of a packed array, or a number; others are refused."""
    if type(value) in _NUMBERS and (value or type(value) not in _FLOATS):  # a look-up would take -0.0 for 0.0
        return value
    if type(value) is np.ndarray and value.flags.num & PLAIN == PLAIN and value.size:
        return value.dtype, value.shape
    raise TypeError


# typed: a look-up tells True and 1.0 from 1.
@functools.lru_cache(maxsize=1024, typed=True)
def _plain(
    check: Check,
    shape: Shape,
    strides: Shape | None,
    dtype: np.dtype[Any],
    scale: Any,
    zero_point: Any,
    axis: Any,
    block_size: Any,
    out_dtype: Any,
    spent: Budget,
) -> _Plain | None:
    """Return how such calls are carried out, or None if no kernel reads the arrays as they are."""
    if 0 in shape or not dtype.isnative or dtype == np.float64:
        return None
    is_array = [type(each) is tuple for each in (scale, zero_point)]
    if is_array[0] and scale[0] != FLOAT:
        return None
    given = np.broadcast_to(FLOAT.type(1), scale[1]) if is_array[0] else scale
    zeros = stand_in(zero_point[1], zero_point[0]) if is_array[1] else zero_point
    call = check(stand_in(shape, dtype), given, zeros, axis, block_size, out_dtype)
    if call.block_size is not None:
        return None
    if is_array[1] and (call.zero_point is None or not _is_view(call.zero_point, zero_point)):
        return None
    out = stand_in(shape, call.dtype)
    of_x, of_scale, of_zero, of_y = layouts_of(call.x, call.scale, call.zero_point, out, call.operator)
    x_strides = of_x.strides if strides is None else tuple([step // dtype.itemsize for step in strides])
    of_x = of_x._replace(strides=packed_strides(shape) if strides is None else x_strides)
    of_scale, of_zero, of_y = map(_packed, (of_scale, of_zero, of_y))
    chosen = plan(call.operator, of_x, of_scale, of_zero, of_y, spent)
    one = np.ones((), of_x.word), np.ones((), of_y.word)
    numbers = words_of((of_x, of_scale, of_zero, of_y), (one[0], call.scale, call.zero_point, one[1]))
    fixed = [None if mine else array for mine, array in zip(is_array, numbers[1:3], strict=True)]
    return _Plain(chosen, call.dtype, of_x.word, of_y.word, fixed[0], fixed[1], of_zero.word)


def _is_view(used: Array, given: tuple[np.dtype[Any], Shape]) -> bool:
    """Return whether zero points are those given, neither converted nor repeated."""
    return used.dtype == given[0] and used.size == np.prod(given[1], dtype=np.int64)


def _packed(layout: Layout) -> Layout:
    return layout._replace(strides=packed_strides(layout.shape))
