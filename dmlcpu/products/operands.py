"""A call of a product of bytes: its operands in plain forms, its output, its execution."""

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from operator import attrgetter
from typing import Any, Final, NamedTuple

import numpy as np

from dmlcpu import reference
from dmlcpu.common.arguments import Array, check_apart, check_output
from dmlcpu.common.bound import Steps
from dmlcpu.products.packing import PackedMatrix, unpack
from dmlcpu.products.plan import plan_for, run, steps as plan_steps, words_of
from dmlcpu.products.quantization import check_bias, check_matrix, check_scale, common_batch, scale, zero_point
from dmlcpu.runtime.compilation import can_compile
from dmlcpu.runtime.memory import PLAIN, spans_meet
from dmlcpu.runtime.results import empty_result
from dmlcpu.runtime.threads import budget

Rhs = Array | PackedMatrix
Shape = tuple[int, ...]
ABSENT: Final = object()  # for a scale that an operator does not have


class Call(NamedTuple):
    """The arguments of a product in their plain forms, but for the output.

    Scales are float32 and zero points of their tensor's type, two-dimensional and more: they broadcast to (..., M, 1)
    for a and y, to (..., 1, N) for b. None is a zero point of 0, or a scale that the operator does not have.
    """

    operator: str
    a: Array  # matrices, as b is
    a_scale: Array | None
    a_zero_point: Array | None
    b: Rhs
    b_scale: Array | None
    b_zero_point: Array | None
    y_scale: Array | None
    y_zero_point: Array | None
    bias: Array | None  # float32 or float16; it broadcasts to `matrix`
    dtype: np.dtype[Any]  # of the result
    matrix: Shape  # the result's, with the dimensions that 1-D operands drop
    shape: Shape  # the result's, without the dimensions that 1-D operands drop


class Shapes(NamedTuple):
    """The shapes of a product."""

    left: Shape  # a as matrices, and b
    right: Shape
    rows: Shape  # what the parameters of a, of b and of the result broadcast to
    columns: Shape
    y_rows: Shape
    matrix: Shape  # the result's, with the dimensions that 1-D operands drop
    shape: Shape  # and without them


OPERANDS = Call._fields[1:9]  # but for the bias
PARAMETERS = tuple(name for name in OPERANDS if name not in ("a", "b"))  # scales and zero points, in the kernels' order
parameters_of: Callable[[Call], tuple[Array | None, ...]] = attrgetter(*PARAMETERS)


def check(
    operator: str,
    result_type: Callable[[str, Any, Any, np.dtype[Any]], np.dtype[Any]],
    a: Any,
    a_scale: Any,
    a_zero_point: Any,
    b: Any,
    b_scale: Any,
    b_zero_point: Any,
    y_scale: Any,
    y_zero_point: Any,
    out_dtype: Any,
    bias: Any = None,
) -> Call:
    """Return the arguments in their plain forms, or refuse them.

    result_type: returns the result's type for (operator, out_dtype, y_zero_point, a's type), or refuses out_dtype.
    Scales have to be positive if the result is quantized: if there is a y_scale.
    """
    scaled = partial(scale, operator, positive=y_scale is not ABSENT)
    a = check_matrix(operator, "a", a)
    if not isinstance(b, PackedMatrix):
        b = check_matrix(operator, "b", b)
    a_type = a.dtype
    left, right, rows, columns, y_rows, matrix, shape = shapes_of(operator, a.shape, b.shape)
    dtype = result_type(operator, out_dtype, y_zero_point, a_type)
    return Call(
        operator,
        a if len(left) == a.ndim else a[None, :],
        None if a_scale is ABSENT else scaled("a_scale", a_scale, rows, rows=True),
        zero_point(operator, "a_zero_point", a_zero_point, a_type, rows, rows=True),
        b if len(right) == b.ndim else b[:, None],
        None if b_scale is ABSENT else scaled("b_scale", b_scale, columns, rows=False),
        zero_point(operator, "b_zero_point", b_zero_point, b.dtype, columns, rows=False),
        None if y_scale is ABSENT else scaled("y_scale", y_scale, y_rows, rows=True),
        zero_point(operator, "y_zero_point", y_zero_point, dtype, y_rows, rows=True),
        None if bias is None else _bias_matrices(check_bias(operator, bias, shape), a.ndim, b.ndim, len(shape)),
        dtype,
        matrix,
        shape,
    )


def _bias_matrices(bias: Array, a_ndim: int, b_ndim: int, ndim: int) -> Array:
    """Return a bias with the dimensions of the result as matrices."""
    return bias.reshape(bias_shape(bias.shape, a_ndim, b_ndim, ndim))


def bias_shape(bias: Shape, a_ndim: int, b_ndim: int, ndim: int) -> Shape:
    """Return the shape of a bias with those dimensions that 1-D operands drop. ndim: of the result without them."""
    own = (1,) * (ndim - len(bias)) + bias
    own = (*own, 1) if b_ndim == 1 else own
    return (*own[:-1], 1, own[-1]) if a_ndim == 1 else own


def shapes_of(operator: str, a: Shape, b: Shape) -> Shapes:
    """Return the shapes of a product of operands of these shapes, or refuse them."""
    left = a if len(a) > 1 else (1, *a)
    right = b if len(b) > 1 else (*b, 1)
    batch = common_batch(operator, a, b, left, right)
    return Shapes(
        left,
        right,
        rows=(*left[:-1], 1),
        columns=(*right[:-2], 1, right[-1]),
        y_rows=(*batch, left[-2], 1),
        matrix=(*batch, left[-2], right[-1]),
        shape=(*batch, *a[-2:-1], *(b[-1:] if len(b) > 1 else ())),
    )


def allocate(call: Call, out: Any) -> Array:
    """Return the output: a new array, or `out` if it fits."""
    if out is None:
        return empty_result(call.shape, call.dtype)
    result = check_output(call.operator, "out", out, call.shape, call.dtype)
    others = {"a": call.a, "b": call.b, "bias": call.bias}
    check_apart(call.operator, "out", result, {k: v for k, v in others.items() if isinstance(v, np.ndarray)})
    return result


def execute(call: Call, out: Array, *, most_threads: int | None = None) -> None:
    """Run a call on an output of its `shape`, or of matrices."""
    if out.size == 0:
        return
    if out.ndim < len(call.matrix):
        out = out.reshape(call.matrix)
    if can_compile():
        operands = (call.a, call.b, parameters_of(call), _float32(call.bias), out)
        run(plan_for(call.operator, *operands, budget(most_threads)), *words_of(*operands))
        return
    function = getattr(reference, call.operator)
    given = call._replace(b=unpack(call.b) if isinstance(call.b, PackedMatrix) else call.b)._asdict()
    named = {name: given[name] for name in inspect.signature(function).parameters if name in (*OPERANDS, "bias")}
    function(**named, out_dtype=out.dtype, out=out)


def _float32(bias: Array | None) -> Array | None:
    """Return a bias as kernels read it."""
    if bias is None or bias.dtype == np.float32:
        return bias
    with np.errstate(invalid="ignore"):  # NumPy reports a signalling NaN
        return bias.astype(np.float32)


def steps(call: Call, out: Array, given: Mapping[str, Any]) -> Steps | None:
    """Return how a call runs on the same arrays again and again, or None if that takes all its checks."""
    matrices = [(call.a, given["a"]), *([] if isinstance(call.b, PackedMatrix) else [(call.b, given["b"])])]
    bias = _float32(call.bias)
    if bias is not None:
        matrices.append((bias, given["bias"]))
    arrays = [(used, array) for used, array in matrices if isinstance(array, np.ndarray)]  # others are constants
    if out.size == 0 or not all(spans_meet(used, array) for used, array in arrays):  # a converted one is a copy
        return None
    parameters = list(parameters_of(call))
    scales = []
    for place, name in enumerate(PARAMETERS):
        array, used = given.get(name), parameters[place]
        if isinstance(array, np.ndarray) and used is not None:
            if array.dtype != used.dtype or array.flags.num & PLAIN != PLAIN or spans_meet(out, array):
                return None
            parameters[place] = array.reshape(used.shape)  # the array itself, where `check` has copied it
            if name.endswith("scale") and call.y_scale is not None:
                scales.append((name, array))
    operands = (call.a, call.b, tuple(parameters), bias, out.reshape(call.matrix))

    def check_scales() -> None:
        for name, array in scales:
            check_scale(call.operator, name, array)

    flat_scales = [array.reshape(-1) for _, array in scales]
    plan_within = partial(plan_for, call.operator, *operands)
    return plan_steps(plan_within, check_scales if scales else None, flat_scales, *words_of(*operands))
