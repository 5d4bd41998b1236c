"""Small calls of matmul_integer_to_float that together compile all that a type needs on this machine."""

from collections.abc import Iterator

import numpy as np

from dmlcpu.common.arguments import Array
from dmlcpu.directml.base import OperatorDesc
from dmlcpu.operators.matmul_integer_to_float.descriptor import MatrixMultiplyIntegerToFloatOperatorDesc
from dmlcpu.operators.table import Example, Workload
from dmlcpu.products.examples import SIZE, calls, desc_example, square

_PARAMETERS = {"a_scale": 0.5, "a_zero_point": 3, "b_scale": 0.25, "b_zero_point": -2}
_BIAS = np.linspace(-1, 1, 64, dtype=np.float32)


def examples(dtype: str) -> Iterator[Example]:
    """Yield calls with results of both types; the first is a plain one."""
    for result in ("float32", "float16"):
        yield from map(Example, calls(dtype, **_PARAMETERS, bias=_BIAS, out_dtype=result))


def desc_examples() -> Iterator[tuple[OperatorDesc, dict[str, Array]]]:
    """Yield the plain call as a desc."""
    bias, dtype = np.tile(_BIAS, (16, 1)), np.dtype(np.float32)
    yield desc_example(MatrixMultiplyIntegerToFloatOperatorDesc, _PARAMETERS, dtype, bias_tensor=bias)


def workload(_nbytes: int) -> Workload:
    """Return a product of square matrices."""
    return Workload(square(**_PARAMETERS), "multiply", SIZE**3)
