"""The parts of a product's call: the key of its plan, its arrays, its output."""

from typing import Any

from dmlcpu.common.arguments import Array, check_apart, check_output, own_all
from dmlcpu.common.forms import formed, strides_of
from dmlcpu.common.parameters import as_floats
from dmlcpu.common.prepared import Prepared, Request
from dmlcpu.errors import DmlError
from dmlcpu.products.arguments import ResultType, check_matrices, left_of, parameters_of
from dmlcpu.products.packing import PackedMatrix, form_of_packed


def request(
    operator: str, result_type: ResultType, a: Any, b: Any, parameters: tuple[Any, ...], bias: Any, asked: Any
) -> Request:
    """Return the key of a prepared call, without the budget, and the arrays that it reads. asked: out_dtype and out."""
    a, a_form = formed(operator, "a", a)
    b, b_form = (b, form_of_packed(b)) if type(b) is PackedMatrix else formed(operator, "b", b)
    try:
        flat, shapes, dtype = parameters_of(operator, result_type, a.dtype, b.dtype, asked, parameters)
    except (DmlError, TypeError):
        check_matrices(operator, a_form, b_form)  # their error comes first
        raise
    bias_form = None
    if bias is not None:
        bias, bias_form = formed(
            operator, "bias", bias if hasattr(bias, "dtype") else as_floats(operator, "bias", bias)
        )
    out = asked[1]
    y_strides = None if out is None else strides_of(out)
    return (operator, a_form, b_form, shapes, bias_form, y_strides, dtype), (a, b, flat, bias)


def allocate(prepared: Prepared, arrays: tuple[Any, ...], out: Any) -> Array:
    """Return the output: a new array, or `out` if it fits."""
    if out is None:
        return prepared.new[0]()
    shape, dtype = prepared.results[0]
    result = check_output(prepared.operator, "out", out, shape, dtype)
    a, b, _, bias = arrays
    rhs = None if type(b) is PackedMatrix else b
    if not own_all(result, a, rhs, bias):
        others = {left_of(prepared.operator): a, "b": rhs, "bias": bias}
        check_apart(prepared.operator, "out", result, {name: each for name, each in others.items() if each is not None})
    return result
