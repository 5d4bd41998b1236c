"""Small calls of quantized_matmul that between them compile all that a type needs on this machine."""

from collections.abc import Iterator

import numpy as np

from dmlcpu.common.arguments import Array
from dmlcpu.directml.base import OperatorDesc
from dmlcpu.directml.enums import TensorFlags
from dmlcpu.directml.tensor import describe
from dmlcpu.operators.quantized_matmul.descriptor import QuantizedLinearMatrixMultiplyOperatorDesc
from dmlcpu.operators.table import Example
from dmlcpu.products.packing import pack_b

_PARAMETERS = {
    "a_scale": 0.5,
    "a_zero_point": 3,
    "b_scale": 0.25,
    "b_zero_point": 0,
    "y_scale": 40.0,
    "y_zero_point": 5,
}


def examples(dtype: str) -> Iterator[Example]:
    """Yield a plain call, whose few rows have a kernel of their own, then one of many rows and a packed matrix."""
    b = _matrix((64, 64), "int8")
    yield Example({"a": _matrix((16, 64), dtype), "b": b, **_PARAMETERS, "out_dtype": dtype})
    yield Example({"a": _matrix((96, 64), dtype), "b": pack_b(b), **_PARAMETERS, "out_dtype": dtype})


def desc_examples() -> Iterator[tuple[OperatorDesc, dict[str, Array]]]:
    """Yield the plain call as a desc, with the inputs to bind: all but A are owned."""
    a, b = _matrix((16, 64), "int8"), _matrix((64, 64), "int8")
    constants = {"b_tensor": b}
    for name, number in _PARAMETERS.items():
        dtype = np.float32 if name.endswith("scale") else np.int8
        constants[f"{name.replace('y_', 'output_')}_tensor"] = np.array([[number]], dtype)
    desc = QuantizedLinearMatrixMultiplyOperatorDesc(
        a_tensor=describe(a),
        output_tensor=describe(a),
        **{name: describe(array, TensorFlags.OWNED_BY_DML) for name, array in constants.items()},
    )
    yield desc, {"a_tensor": a, **constants}


def _matrix(shape: tuple[int, int], dtype: str) -> Array:
    return (np.arange(shape[0] * shape[1]) * 37 % 101).astype(dtype).reshape(shape)
