"""Small calls of quantized_matmul that between them compile all that a type needs on this machine."""

from collections.abc import Iterator

import numpy as np

from dmlcpu.common.arguments import Array
from dmlcpu.directml.base import OperatorDesc
from dmlcpu.operators.quantized_matmul.descriptor import QuantizedLinearMatrixMultiplyOperatorDesc
from dmlcpu.operators.table import Example
from dmlcpu.products.examples import desc_example, matrix
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
    b = matrix(64, "int8")
    yield Example({"a": matrix(16, dtype), "b": b, **_PARAMETERS, "out_dtype": dtype})
    yield Example({"a": matrix(96, dtype), "b": pack_b(b), **_PARAMETERS, "out_dtype": dtype})


def desc_examples() -> Iterator[tuple[OperatorDesc, dict[str, Array]]]:
    """Yield the plain call as a desc."""
    yield desc_example(QuantizedLinearMatrixMultiplyOperatorDesc, _PARAMETERS, np.dtype(np.int8))
