"""Small calls of matmul_integer that between them compile all that a type needs on this machine."""

from collections.abc import Iterator

import numpy as np

from dmlcpu.common.arguments import Array
from dmlcpu.directml.base import OperatorDesc
from dmlcpu.operators.matmul_integer.descriptor import MatrixMultiplyIntegerOperatorDesc
from dmlcpu.operators.table import Example
from dmlcpu.products.examples import desc_example, matrix
from dmlcpu.products.packing import pack_b

_ZERO_POINTS = {"a_zero_point": 3, "b_zero_point": -2}


def examples(dtype: str) -> Iterator[Example]:
    """Yield a plain call, whose few rows have a kernel of their own, then many rows and a packed matrix, then int64."""
    b = matrix(64, "int8")
    for sums in ("int32", "int64"):
        more = {**_ZERO_POINTS, "out_dtype": sums}
        yield Example({"a": matrix(16, dtype), "b": b, **more})
        yield Example({"a": matrix(96, dtype), "b": pack_b(b), **more})


def desc_examples() -> Iterator[tuple[OperatorDesc, dict[str, Array]]]:
    """Yield the plain call as a desc."""
    yield desc_example(MatrixMultiplyIntegerOperatorDesc, _ZERO_POINTS, np.dtype(np.int32))
