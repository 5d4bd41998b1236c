"""Small calls of matmul_integer that between them compile all that a type needs on this machine."""

from collections.abc import Iterator

import numpy as np

from dmlcpu.common.arguments import Array
from dmlcpu.directml.base import OperatorDesc
from dmlcpu.directml.enums import TensorFlags
from dmlcpu.directml.tensor import describe
from dmlcpu.operators.matmul_integer.descriptor import MatrixMultiplyIntegerOperatorDesc
from dmlcpu.operators.table import Example
from dmlcpu.products.packing import pack_b

_ZERO_POINTS = {"a_zero_point": 3, "b_zero_point": -2}


def examples(dtype: str) -> Iterator[Example]:
    """Yield a plain call, whose few rows have a kernel of their own, then many rows and a packed matrix, then int64."""
    b = _matrix((64, 64), "int8")
    for sums in ("int32", "int64"):
        more = {**_ZERO_POINTS, "out_dtype": sums}
        yield Example({"a": _matrix((16, 64), dtype), "b": b, **more})
        yield Example({"a": _matrix((96, 64), dtype), "b": pack_b(b), **more})


def desc_examples() -> Iterator[tuple[OperatorDesc, dict[str, Array]]]:
    """Yield the plain call as a desc, with the inputs to bind: all but A are owned."""
    a = _matrix((16, 64), "int8")
    constants = {"b_tensor": _matrix((64, 64), "int8")}
    constants |= {f"{name}_tensor": np.array([[number]], np.int8) for name, number in _ZERO_POINTS.items()}
    desc = MatrixMultiplyIntegerOperatorDesc(
        a_tensor=describe(a),
        output_tensor=describe(np.empty((16, 64), np.int32)),
        **{name: describe(array, TensorFlags.OWNED_BY_DML) for name, array in constants.items()},
    )
    yield desc, {"a_tensor": a, **constants}


def _matrix(shape: tuple[int, int], dtype: str) -> Array:
    return (np.arange(shape[0] * shape[1]) * 37 % 101).astype(dtype).reshape(shape)
