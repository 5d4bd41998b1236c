"""Small calls of matmul_integer that together compile all that a type needs on this machine."""

from collections.abc import Iterator

import numpy as np

from dmlcpu.common.arguments import Array
from dmlcpu.directml.base import OperatorDesc
from dmlcpu.operators.matmul_integer.descriptor import MatrixMultiplyIntegerOperatorDesc
from dmlcpu.operators.table import Example, Workload
from dmlcpu.products.examples import SIZE, calls, desc_example, square

_ZERO_POINTS = {"a_zero_point": 3, "b_zero_point": -2}


def examples(dtype: str) -> Iterator[Example]:
    """Yield calls with sums of both types; the first is a plain one."""
    for sums in ("int32", "int64"):
        yield from map(Example, calls(dtype, **_ZERO_POINTS, out_dtype=sums))


def desc_examples() -> Iterator[tuple[OperatorDesc, dict[str, Array]]]:
    """Yield the plain call as a desc."""
    yield desc_example(MatrixMultiplyIntegerOperatorDesc, _ZERO_POINTS, np.dtype(np.int32))


def workload(_nbytes: int) -> Workload:
    """Return a product of square matrices."""
    return Workload(square(**_ZERO_POINTS), "multiply", SIZE**3)
