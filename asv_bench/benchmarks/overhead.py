"""What a call costs around the work: inputs so small that the work itself takes next to no time."""

import numpy as np

from dmlcpu import (
    AxisDirection,
    QuantizedLinearMatrixMultiplyOperatorDesc,
    ScatterNDOperatorDesc,
    TensorDataType,
    TensorDesc,
    TensorFlags,
    TopK1OperatorDesc,
    compile_operator,
)

from .common import TINY, QuantizedMatmulCase, ScatterNDCase, TopKCase
from .conditions import ready
from .peers import IMPLEMENTATIONS, Comparison, build

CALLS = 1_000


def desc(array, sizes=None, flags=TensorFlags.NONE):
    """Return the tensor that an array is."""
    return TensorDesc(TensorDataType[array.dtype.name.upper()], flags=flags, sizes=sizes or array.shape)


def compiled_top_k(case):
    x = case.inputs()
    values = np.empty((*x.shape[:-1], case.k), x.dtype)
    indices = np.empty(values.shape, np.uint32)
    operator = compile_operator(
        TopK1OperatorDesc(
            input_tensor=desc(x),
            output_value_tensor=desc(values),
            output_index_tensor=desc(indices),
            axis=x.ndim - 1,
            k=case.k,
            axis_direction=AxisDirection.DECREASING,
        )
    )
    return lambda: operator(input_tensor=x, output_value_tensor=values, output_index_tensor=indices)


def compiled_scatter_nd(case):
    x, indices, updates = (np.atleast_2d(array).copy() for array in case.inputs())
    out = np.empty_like(x)
    operator = compile_operator(
        ScatterNDOperatorDesc(
            input_tensor=desc(x),
            indices_tensor=desc(indices),
            updates_tensor=desc(updates),
            output_tensor=desc(out),
            input_dimension_count=1,
            indices_dimension_count=2,
        )
    )
    return lambda: operator(input_tensor=x, indices_tensor=indices, updates_tensor=updates, output_tensor=out)[0]


def compiled_quantized_matmul(case):
    names = ("a", "a_scale", "a_zero_point", "b", "b_scale", "b_zero_point", "output_scale", "output_zero_point")
    a, *constants = [(f"{name}_tensor", array) for name, array in zip(names, case.inputs(), strict=True)]
    constants = {name: array for name, array in constants if array is not None}
    out = np.empty((case.m, case.n), case.types[2])
    operator = compile_operator(
        QuantizedLinearMatrixMultiplyOperatorDesc(
            a_tensor=desc(a[1]),
            output_tensor=desc(out),
            **{name: desc(array, flags=TensorFlags.OWNED_BY_DML) for name, array in constants.items()},
        )
    )
    operator.initialize(**constants)
    return lambda: operator(a_tensor=a[1], output_tensor=out)


COMPILED = {
    TopKCase: compiled_top_k,
    ScatterNDCase: compiled_scatter_nd,
    QuantizedMatmulCase: compiled_quantized_matmul,
}


class Tiny(Comparison):
    """1,000 calls a sample: milliseconds are microseconds a call. "dmlcpu compiled" has outputs bound to it."""

    params = (["dmlcpu compiled", *IMPLEMENTATIONS], list(TINY))
    param_names = ("implementation", "operator")
    cases = TINY

    def setup(self, implementation, operator):
        case = self.cases[operator]
        compiled = implementation == "dmlcpu compiled"
        self.call = ready(COMPILED[type(case)](case) if compiled else build(case, implementation))

    def time_1000_calls(self, implementation, operator):
        call = self.call
        for _ in range(CALLS):
            result = call()
        return result
