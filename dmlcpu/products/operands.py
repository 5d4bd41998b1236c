"""The operands of products of bytes, as NumPy's matmul takes them."""

from typing import Any, TypeVar

import numpy as np

from dmlcpu.common.arguments import Array, check_apart, check_output
from dmlcpu.products.packing import PackedMatrix
from dmlcpu.products.quantization import check_matrix, common_batch
from dmlcpu.runtime.results import empty_result

Rhs = Array | PackedMatrix
Shape = tuple[int, ...]
_Operands = TypeVar("_Operands")

# Arguments of a product in their plain forms: a and b, the batch shape and the type of the result, and what the
# operator's `execute` takes before out.
Checked = tuple[Array, Rhs, Shape, np.dtype[Any], _Operands]


def check_operands(operator: str, a: Any, b: Any) -> tuple[Array, Rhs, Array, Rhs, Shape]:
    """Return two operands that fit together, as they are and as matrices, and the batch shape of their product."""
    a = check_matrix(operator, "a", a, at_least=1)
    if not isinstance(b, PackedMatrix):
        b = check_matrix(operator, "b", b, at_least=1)
    matrix_a = a if a.ndim > 1 else a[None, :]
    matrix_b = b if b.ndim > 1 else b[:, None]
    return (
        a,
        b,
        matrix_a,
        matrix_b,
        common_batch(operator, ("a", a.shape), ("b", b.shape), matrix_a.shape, matrix_b.shape),
    )


def result_shape(a: Shape, b: Shape, batch: Shape) -> Shape:
    """Return the shape of the product of operands of two shapes."""
    return (*batch, *a[-2:-1], *(b[-1:] if len(b) > 1 else ()))


def result_of(operator: str, a: Array, b: Rhs, batch: Shape, out: Any, dtype: np.dtype[Any]) -> tuple[Array, Array]:
    """Return the output, new or the one given, and a view of it as matrices; 1-D operands drop a dimension."""
    shape = result_shape(a.shape, b.shape, batch)
    if out is None:
        out = empty_result(shape, dtype)
    else:
        out = check_output(operator, "out", out, shape, dtype)
        check_apart(operator, "out", out, {"a": a} if isinstance(b, PackedMatrix) else {"a": a, "b": b})
    result = out if b.ndim > 1 else out[..., None]
    return out, result if a.ndim > 1 else result[..., None, :]
