"""Products of packed arrays, with numbers or packed arrays of scales and zero points: what most calls are.

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
from dmlcpu.kernels.gemm.scales import are_positive
from dmlcpu.kernels.gemm.table import ROWS
from dmlcpu.kernels.gemm.work import COUNTER
from dmlcpu.products.operands import ABSENT, PARAMETERS, shapes_of
from dmlcpu.products.packing import PackedMatrix
from dmlcpu.products.plan import BYTE, NO_BYTES, NO_CELLS, Layout, Plan, flat, plan, word_of
from dmlcpu.products.quantization import Shape, check_matrix, check_scale, scale, spread, zero_point
from dmlcpu.runtime.compilation import can_compile
from dmlcpu.runtime.memory import PLAIN, frombuffer, packed_strides, spans_meet
from dmlcpu.runtime.results import empty_result
from dmlcpu.runtime.threads import Budget, budget, most

ResultType = Callable[[str, Any, Any, np.dtype[Any]], np.dtype[Any]]

# Of these types equal numbers are the same; other objects may be hashable, and have other values later.
_NUMBERS = frozenset({int, float, type(None), type(ABSENT), *[np.dtype(code).type for code in "bBhHiIlLqQefd"]})
_SCALES = (0, 2, 4)  # places among the parameters
_ARRAY = np.ndarray  # is looked up in half the time
_FLOAT = np.dtype(np.float32)
_BYTES = {np.dtype(np.int8), np.dtype(np.uint8)}


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
    operator: str, result_type: ResultType, a: Any, b: Any, parameters: tuple[Any, ...], out_dtype: Any, out: Any
) -> Array | None:
    """Multiply packed arrays, or return None if a call has to be looked at more closely; parameters: in their order."""
    if type(a) is not np.ndarray or a.flags.num & PLAIN != PLAIN or not can_compile():
        return None
    if type(b) is PackedMatrix:
        form, is_exact = b.layout, b.saturating == 0
    elif type(b) is np.ndarray and b.flags.num & PLAIN == PLAIN:
        form, is_exact = ROWS, False
    else:
        return None
    arrays: list[tuple[int, Array]] = []
    try:
        if not _NUMBERS.issuperset(map(type, parameters)):
            if out_dtype is not None:
                out_dtype = result_type(operator, out_dtype, parameters[-1], a.dtype)
            elif type(parameters[-1]) is np.ndarray and parameters[-1].dtype in _BYTES:
                out_dtype = parameters[-1].dtype
            parameters = _without_arrays(parameters, (_FLOAT, a.dtype, _FLOAT, b.dtype, _FLOAT, out_dtype), arrays)
        flats, shapes, dtype = _numbers(operator, result_type, a.dtype, b.dtype, out_dtype, *parameters)
        if arrays:
            flats, shapes = _with_arrays(operator, flats, shapes, arrays)
        call = (operator, a.shape, a.dtype, b.shape, b.dtype, form, is_exact, shapes, dtype)
        plain = _plain(*call, most())
        if plain and not plain.plan.is_single:
            plain = _plain(*call, budget())
    except (TypeError, DmlError):  # an argument of another kind, or refused: `check` says what is wrong with it
        return None
    if plain is None or (out is not None and not _takes(operator, out, plain.shape, dtype, (a, b), arrays)):
        return None
    chosen, shape, word = plain
    result = empty_result(shape, dtype) if out is None else out
    rhs = (frombuffer(b, BYTE), NO_CELLS, NO_CELLS) if form is ROWS else (NO_BYTES, b.panels, b.sums)
    scratch = chosen.workspace.take()  # `run` written out: it would pack all arguments once more
    scratch[COUNTER] = 0
    chosen.run(frombuffer(a, BYTE), *rhs, *flats, frombuffer(result, word), chosen.work, scratch)
    chosen.workspace.give_back(scratch)
    return result


def _without_arrays(
    parameters: tuple[Any, ...], kinds: tuple[Any, ...], arrays: list[tuple[int, Array]]
) -> tuple[Any, ...]:
    """Return parameters with numbers for arrays: 1 for those of several elements, which go into `arrays`.

    Raise TypeError if there is anything else among them.
    """
    found = list(parameters)
    for place, (value, kind) in enumerate(zip(parameters, kinds, strict=True)):
        if type(value) is _ARRAY and value.dtype is kind:
            size = value.size
            if size == 1:
                found[place] = value.item()
            elif size and value.flags.num & PLAIN == PLAIN:
                found[place] = 1
                arrays.append((place, value))
        if type(found[place]) not in _NUMBERS:
            raise TypeError(type(value))
    return tuple(found)


def _with_arrays(
    operator: str, flats: tuple[Array, ...], shapes: tuple[Shape | None, ...], arrays: list[tuple[int, Array]]
) -> tuple[tuple[Array, ...], tuple[Shape | None, ...]]:
    """Return the flat parameters and their shapes with arrays in their places."""
    every, each = list(flats), list(shapes)
    for place, array in arrays:
        if place in _SCALES:
            every[place] = words = frombuffer(array, _FLOAT)
            if not are_positive(words):
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
    matrices: tuple[Any, Any],
    arrays: list[tuple[int, Array]],
) -> bool:
    """Return whether the result can be written to `out` at once: it is packed, and apart from all operands."""
    if type(out) is not np.ndarray or check_output(operator, "out", out, shape, dtype) is not out:
        return False
    if out.flags.num & PLAIN != PLAIN:
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
            found.append(None if number is ABSENT else scale(operator, name, number, (1, 1), rows=True))
        else:
            dtype = (a_type, b_type, result)[place // 2]
            found.append(zero_point(operator, name, number, dtype, (1, 1), rows=True))
    shapes = tuple([None if each is None else each.shape for each in found])
    return _Numbers(tuple(map(flat, found)), shapes, result)


@functools.lru_cache(maxsize=1024)
def _plain(
    operator: str,
    a_shape: Shape,
    a_type: np.dtype[Any],
    b_shape: Shape,
    b_type: np.dtype[Any],
    form: str,
    is_exact: bool,
    parameters: tuple[Shape | None, ...],
    dtype: np.dtype[Any],
    spent: Budget,
) -> _Plain | None:
    """Return how products of such arrays are carried out, or None if there is nothing to do; parameters: shapes."""
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
    a = Layout(shapes.left, packed_strides(shapes.left), a_type)
    b = Layout(shapes.right, packed_strides(shapes.right) if form == ROWS else (0,) * len(shapes.right), b_type)
    out = Layout(shapes.matrix, packed_strides(shapes.matrix, dtype.itemsize), dtype)
    return _Plain(plan(operator, a, b, out, spreads, form, is_exact, spent), shapes.shape, word_of(dtype))
