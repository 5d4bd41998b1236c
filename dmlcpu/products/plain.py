"""Products of arrays into packed ones, with numbers or arrays of scales and zero points: what most calls are.

Such a call looks up its numbers, as the kernels read them, and its plan. A look-up has the types and shapes of all
arguments in its key, so the checks need not be repeated. Any other call gets None here, and takes the long way, as does
one that is refused: so of several errors, the same is raised whatever the way.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from dmlcpu.common.arguments import Array, check_output
from dmlcpu.common.stand_ins import stand_in
from dmlcpu.errors import DmlError
from dmlcpu.kernels.gemm.table import ROWS
from dmlcpu.kernels.gemm.work import COUNTER
from dmlcpu.kernels.scales import are_positive
from dmlcpu.products.operands import ABSENT, PARAMETERS, bias_shape, shapes_of
from dmlcpu.products.packing import PackedMatrix
from dmlcpu.products.plan import BYTE, NO_BIAS, NO_BYTES, NO_CELLS, Layout, Plan, flat, plan, word_of
from dmlcpu.products.quantization import (
    Shape,
    check_bias_shape,
    check_matrix,
    check_scale,
    copy_scales,
    copy_zero_points,
    scale,
    spread,
    zero_point,
)
from dmlcpu.runtime.compilation import can_compile
from dmlcpu.runtime.memory import PLAIN, frombuffer, packed_strides, spans_meet, words
from dmlcpu.runtime.results import empty_result
from dmlcpu.runtime.threads import Budget, budget, most

ResultType = Callable[[str, Any, Any, np.dtype[Any]], np.dtype[Any]]

# Of these types equal numbers are the same; other objects may be hashable, and have other values later.
_NUMBERS = frozenset({int, float, type(None), type(ABSENT), *[np.dtype(code).type for code in "bBhHiIlLqQefd"]})
_SCALES = (0, 2, 4)  # places among the parameters
_ARRAY = np.ndarray  # is looked up in half the time
_FLOAT = np.dtype(np.float32)


class _Numbers(NamedTuple):
    """Scales and zero points as the kernels read them, and the type of the result."""

    flat: tuple[Array, ...]
    shapes: tuple[Shape | None, ...]
    dtype: np.dtype[Any]


class _Plain(NamedTuple):
    """How a product is carried out, and the shape of its result."""

    plan: Plan
    shape: Shape
    word: np.dtype[Any]


def multiply_plain(
    operator: str,
    result_type: ResultType,
    a: Any,
    b: Any,
    parameters: tuple[Any, ...],
    out_dtype: Any,
    out: Any,
    bias: Any = None,
) -> Array | None:
    """Multiply arrays, or return None if a call has to be looked at more closely; parameters: in their order."""
    if not can_compile() or not _are_plain(a, b, bias, out):
        return None
    strides = None if a.flags.num & PLAIN == PLAIN else a.strides
    is_packed, added = type(b) is PackedMatrix, None if bias is None else bias.shape
    form, is_exact = (b.layout, b.saturating == 0) if is_packed else (b.strides, False)
    arrays: list[tuple[int, Array]] = []
    try:
        if not _NUMBERS.issuperset(map(type, parameters)):
            if out_dtype is not None or type(parameters[-1]) not in _NUMBERS:
                out_dtype = result_type(operator, out_dtype, parameters[-1], a.dtype)
            parameters = _without_arrays(
                operator, parameters, (_FLOAT, a.dtype, _FLOAT, b.dtype, _FLOAT, out_dtype), arrays
            )
        flats, shapes, dtype = _numbers(operator, result_type, a.dtype, b.dtype, out_dtype, *parameters)
        if arrays:
            flats, shapes = _with_arrays(operator, flats, shapes, arrays, parameters[4] is not ABSENT)
        call = (operator, a.shape, strides, a.dtype, b.shape, b.dtype, form, is_exact, shapes, added, dtype)
        plain = _plain(*call, most())
        if plain and not plain.plan.is_single:
            plain = _plain(*call, budget())
    except (TypeError, DmlError):  # an argument of another kind, or refused: `check` says what is wrong with it
        return None
    if plain is None or (out is not None and not _takes(operator, out, plain.shape, dtype, (a, b, bias), arrays)):
        return None
    chosen, shape, word = plain
    result = empty_result(shape, dtype) if out is None else out
    rhs = (NO_BYTES, b.panels, b.sums) if is_packed else (words(b, BYTE), NO_CELLS, NO_CELLS)
    lhs = frombuffer(a, BYTE) if strides is None else words(a, BYTE)
    scratch = chosen.workspace.take()  # `run` written out: it would pack all arguments once more
    scratch[COUNTER] = 0
    y_bias = NO_BIAS if bias is None else frombuffer(bias, _FLOAT)
    chosen.run(lhs, *rhs, *flats, y_bias, frombuffer(result, word), chosen.work, scratch)
    chosen.workspace.give_back(scratch)
    return result


def _are_plain(a: Any, b: Any, bias: Any, out: Any) -> bool:
    """Return whether operands are such that their types and shapes tell how kernels read them."""
    if type(a) is not _ARRAY or not (type(b) is _ARRAY or type(b) is PackedMatrix):
        return False
    if out is not None and (type(out) is not _ARRAY or out.flags.num & PLAIN != PLAIN):
        return False
    return bias is None or (type(bias) is _ARRAY and bias.dtype is _FLOAT and bias.flags.num & PLAIN == PLAIN)


def _without_arrays(
    operator: str, parameters: tuple[Any, ...], kinds: tuple[Any, ...], arrays: list[tuple[int, Array]]
) -> tuple[Any, ...]:
    """Return parameters with numbers for all others: 1 for those of several elements, which go into `arrays`.

    kinds: their types. Raise an error if `check` has to look at one.
    """
    found = list(parameters)
    for place, (value, kind) in enumerate(zip(parameters, kinds, strict=True)):
        if type(value) in _NUMBERS:
            continue
        if type(value) is _ARRAY and value.dtype is kind and value.flags.num & PLAIN == PLAIN:
            array = value
        elif place in _SCALES:
            array = copy_scales(operator, PARAMETERS[place], value)
        else:
            array = copy_zero_points(operator, PARAMETERS[place], value, kind)
        size = array.size
        if size == 1:
            found[place] = array.item()
        elif size:
            found[place] = 1
            arrays.append((place, array))
        else:
            raise TypeError(f"{PARAMETERS[place]} is empty")
    return tuple(found)


def _with_arrays(
    operator: str,
    flats: tuple[Array, ...],
    shapes: tuple[Shape | None, ...],
    arrays: list[tuple[int, Array]],
    is_quantized: bool,
) -> tuple[tuple[Array, ...], tuple[Shape | None, ...]]:
    """Return the flat parameters and their shapes with arrays in their places.

    is_quantized: the result is, so scales have to be positive.
    """
    every, each = list(flats), list(shapes)
    for place, array in arrays:
        if place in _SCALES:
            every[place] = words = frombuffer(array, _FLOAT)
            if is_quantized and not are_positive(words):
                check_scale(operator, PARAMETERS[place], array)
        else:
            every[place] = frombuffer(array, BYTE)
        each[place] = array.shape
    return tuple(every), tuple(each)


def _takes(
    operator: str,
    out: Any,
    shape: Shape,
    dtype: np.dtype[Any],
    matrices: tuple[Any, Any, Any],
    arrays: list[tuple[int, Array]],
) -> bool:
    """Return whether the result can be written to a packed `out` at once: it is apart from all operands."""
    if check_output(operator, "out", out, shape, dtype) is not out:
        return False
    for other in (*matrices, *[array for _, array in arrays]) if arrays else matrices:
        if type(other) is _ARRAY and (other is out or spans_meet(out, other)):
            return False
    return True


# typed: a look-up tells True and 1.0 from 1.
@functools.lru_cache(maxsize=1024, typed=True)
def _numbers(
    operator: str, result_type: ResultType, a_type: np.dtype[Any], b_type: np.dtype[Any], out_dtype: Any, *numbers: Any
) -> _Numbers:
    """Return numbers as the kernels read them; most calls repeat those of earlier ones."""
    for name, dtype in (("a", a_type), ("b", b_type)):
        check_matrix(operator, name, stand_in((1,), dtype))
    result = result_type(operator, out_dtype, numbers[-1], a_type)
    found = []
    for place, (name, number) in enumerate(zip(PARAMETERS, numbers, strict=True)):
        if place in _SCALES:
            if number == 0:
                raise TypeError(f"{name} is 0 or -0, which a look-up takes for equal")
            positive = numbers[4] is not ABSENT
            found.append(
                None if number is ABSENT else scale(operator, name, number, (1, 1), rows=True, positive=positive)
            )
        else:
            dtype = (a_type, b_type, result)[place // 2]
            found.append(zero_point(operator, name, number, dtype, (1, 1), rows=True))
    shapes = tuple([None if each is None else each.shape for each in found])
    return _Numbers(tuple(map(flat, found)), shapes, result)


@functools.lru_cache(maxsize=1024)
def _plain(
    operator: str,
    a_shape: Shape,
    a_strides: Shape | None,
    a_type: np.dtype[Any],
    b_shape: Shape,
    b_type: np.dtype[Any],
    form: str | Shape,
    is_exact: bool,
    parameters: tuple[Shape | None, ...],
    bias: Shape | None,
    dtype: np.dtype[Any],
    spent: Budget,
) -> _Plain | None:
    """Return how products of such arrays are carried out, or None if there is nothing to do.

    parameters, bias: shapes.

    a_strides: None if a is packed; form: the layout of a packed matrix, else b's strides.
    """
    if () in (a_shape, b_shape):  # which `check` refuses
        return None
    shapes = shapes_of(operator, a_shape, b_shape)
    if 0 in (*shapes.left, *shapes.matrix):
        return None
    wanted = (shapes.rows, shapes.rows, shapes.columns, shapes.columns, shapes.y_rows, shapes.y_rows)
    spreads = tuple(
        [
            shape
            and spread(operator, PARAMETERS[place], stand_in(shape, BYTE), wanted[place], place not in (2, 3)).shape
            for place, shape in enumerate(parameters)
        ]
    )
    left = packed_strides(a_shape) if a_strides is None else a_strides
    layout, right = (form, (0,) * len(b_shape)) if isinstance(form, str) else (ROWS, form)
    a = Layout(shapes.left, left if len(left) > 1 else (0, *left), a_type)
    b = Layout(shapes.right, right if len(right) > 1 else (*right, 0), b_type)
    out = Layout(shapes.matrix, packed_strides(shapes.matrix, dtype.itemsize), dtype)
    added = None
    if bias is not None:
        check_bias_shape(operator, bias, shapes.shape)
        matrices = bias_shape(bias, len(a_shape), len(b_shape), len(shapes.shape))
        added = Layout(matrices, packed_strides(matrices, _FLOAT.itemsize), _FLOAT)
    return _Plain(plan(operator, a, b, out, spreads, added, layout, is_exact, spent), shapes.shape, word_of(dtype))
