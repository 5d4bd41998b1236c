"""The operands of products of bytes, as NumPy's matmul takes them."""

from typing import Any, NamedTuple

import numpy as np

from dmlcpu.common.arguments import Array, check_apart, check_output
from dmlcpu.common.packing import PackedMatrix
from dmlcpu.common.quantization import check_matrix, common_batch
from dmlcpu.runtime.results import empty_result


class Operands(NamedTuple):
    """What is multiplied, as matrices, and the shapes that follow from it."""

    operator: str
    given_a: Array
    given_b: Array | PackedMatrix
    a: Array  # (..., M, K)
    b: Array | PackedMatrix  # (..., K, N)
    batch: tuple[int, ...]
    row_shape: tuple[int, ...]  # (..., M, 1), of what a has for each row
    column_shape: tuple[int, ...]  # (..., 1, N), of what b has for each column

    def output(self, out: Any, dtype: np.dtype[Any]) -> tuple[Array, Array]:
        """Return a new output or the one given, checked, and a view of it as matrices."""
        has_rows, has_columns = self.given_a.ndim > 1, self.given_b.ndim > 1
        rows, columns = self.row_shape[-2], self.column_shape[-1]
        shape = (*self.batch, *([rows] if has_rows else []), *([columns] if has_columns else []))
        if out is None:
            out = empty_result(shape, dtype)
        else:
            out = check_output(self.operator, "out", out, shape, dtype)
            packed = isinstance(self.given_b, PackedMatrix)
            operands = {"a": self.given_a} if packed else {"a": self.given_a, "b": self.given_b}
            check_apart(self.operator, "out", out, operands)  # type: ignore[arg-type]  # an array if it is not packed
        result = out if has_columns else out[..., None]
        return out, result if has_rows else result[..., None, :]


def operands(operator: str, a: Any, b: Any) -> Operands:
    """Return two operands that fit together, or refuse them."""
    a = check_matrix(operator, "a", a, at_least=1)
    if not isinstance(b, PackedMatrix):
        b = check_matrix(operator, "b", b, at_least=1)
    matrix_a = a if a.ndim > 1 else a[None, :]
    matrix_b = b if b.ndim > 1 else b[:, None]
    batch = common_batch(operator, ("a", a.shape), ("b", b.shape), matrix_a.shape, matrix_b.shape)
    row_shape = (*matrix_a.shape[:-1], 1)
    column_shape = (*matrix_b.shape[:-2], 1, matrix_b.shape[-1])
    return Operands(operator, a, b, matrix_a, matrix_b, batch, row_shape, column_shape)
