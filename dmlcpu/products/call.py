"""What a call of a product is made of: the key of its plan, its arrays, its output."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from dmlcpu.common.arguments import Array, check_apart, check_output, own_all
from dmlcpu.common.forms import formed, strides_of
from dmlcpu.common.parameters import as_floats
from dmlcpu.common.prepared import Prepared
from dmlcpu.errors import DmlError
from dmlcpu.products.arguments import NO_SHAPES, ResultType, check_matrices, parameters_of
from dmlcpu.products.packing import PackedMatrix, form_of_packed
from dmlcpu.runtime.memory import spans_meet

Request = tuple[tuple[Any, ...], tuple[Any, ...]]


def request(
    operator: str, result_type: ResultType, a: Any, b: Any, parameters: tuple[Any, ...], bias: Any, asked: Any
) -> Request:
    """Return the key of a prepared call, but for the budget, and the arrays that it reads. asked: out_dtype and out."""
    a, a_form = formed(operator, "a", a)
    b, b_form = (b, form_of_packed(b)) if type(b) is PackedMatrix else formed(operator, "b", b)
    out_dtype, out = asked
    try:
        flat, shapes, dtype = parameters_of(operator, result_type, a.dtype, b.dtype, out_dtype, parameters)
    except (DmlError, TypeError):
        check_matrices(operator, a_form, b_form)  # their error comes first
        raise
    bias_form = y_strides = None
    if bias is not None:
        bias, bias_form = formed(
            operator, "bias", bias if hasattr(bias, "dtype") else as_floats(operator, "bias", bias)
        )
    if out is not None:
        y_strides = strides_of(out)
        if shapes is not NO_SHAPES and not _are_apart(out, parameters, shapes):
            flat = apart(out, flat)
    return (operator, a_form, b_form, shapes, bias_form, y_strides, dtype), (a, b, flat, bias)


def _are_apart(out: Any, parameters: tuple[Any, ...], shapes: tuple[Any, ...]) -> bool:
    """Return whether it is known without a look at addresses that parameters share no memory with the output."""
    arrays = [each for each, shape in zip(parameters, shapes, strict=True) if shape is not None]
    return {*map(type, (out, *arrays))} == {np.ndarray} and own_all(out, *arrays)


def apart(out: Any, numbers: Sequence[Array]) -> tuple[Array, ...]:
    """Return numbers that the output, or a tuple of them, does not change."""
    outputs = [each for each in (out if isinstance(out, tuple) else (out,)) if isinstance(each, np.ndarray)]
    return tuple([each.copy() if any(spans_meet(own, each) for own in outputs) else each for each in numbers])


def allocate(prepared: Prepared, arrays: tuple[Any, ...], out: Any) -> Array:
    """Return the output: a new array, or `out` if it fits."""
    if out is None:
        return prepared.new[0]()
    result = check_output(prepared.operator, "out", out, *prepared.results[0])
    a, b, _, bias = arrays
    for name, other in (("a", a), ("b", b), ("bias", bias)):
        if isinstance(other, np.ndarray) and spans_meet(result, other):
            check_apart(prepared.operator, "out", result, {name: other})
    return result
