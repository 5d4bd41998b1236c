"""Small calls of quantized_matmul that together compile all that a type needs on this machine."""

from collections.abc import Iterator

import numpy as np

from dmlcpu.common.arguments import Array
from dmlcpu.directml.base import OperatorDesc
from dmlcpu.operators.quantized_matmul.descriptor import QuantizedLinearMatrixMultiplyOperatorDesc
from dmlcpu.operators.table import Example, Workload
from dmlcpu.products.examples import SIZE, calls, desc_example, square

_PARAMETERS = {
    "a_scale": 0.5,
    "a_zero_point": 3,
    "b_scale": 0.25,
    "b_zero_point": 0,
    "y_scale": 40.0,
    "y_zero_point": 5,
}


def examples(dtype: str) -> Iterator[Example]:
    """Yield calls of all kernels; the first is a plain one, the others have a scale for each column."""
    first, *others = calls(dtype, **_PARAMETERS, out_dtype=dtype)
    yield Example(first)
    each = np.full(64, _PARAMETERS["b_scale"], np.float32)  # bound calls check scales that are arrays
    yield from (Example({**call, "b_scale": each}) for call in others)


def desc_examples() -> Iterator[tuple[OperatorDesc, dict[str, Array]]]:
    """Yield the plain call as a desc."""
    yield desc_example(QuantizedLinearMatrixMultiplyOperatorDesc, _PARAMETERS, np.dtype(np.int8))


def workload(_nbytes: int) -> Workload:
    """Return a product of square matrices."""
    return Workload(square(**{**_PARAMETERS, "y_scale": 4_000.0}), "multiply", SIZE**3)
