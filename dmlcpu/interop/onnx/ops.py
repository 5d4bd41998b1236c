"""Operators for ONNX's reference evaluator, which otherwise computes them in plain NumPy."""

from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun
from onnx.reference.ops.op_matmul_integer import MatMulInteger as _ReferenceMatMulInteger
from onnx.reference.ops.op_qlinear_matmul import QLinearMatMul as _ReferenceQLinearMatMul
from onnx.reference.ops.op_scatter_elements import ScatterElements as _ReferenceScatterElements
from onnx.reference.ops.op_scatternd import ScatterND as _ReferenceScatterND
from onnx.reference.ops.op_topk import TopK_11 as _ReferenceTopK

from dmlcpu.common.arguments import Array, as_axis
from dmlcpu.errors import BindingError, IndexOutOfRangeError, UnsupportedError
from dmlcpu.operators.matmul_integer.function import matmul_integer
from dmlcpu.operators.quantized_matmul.function import quantized_matmul
from dmlcpu.operators.scatter_nd.function import scatter_nd
from dmlcpu.operators.top_k.function import TopK as TopKResult, top_k
from dmlcpu.products.packing import PackedMatrix


class _Operator(OpRun):  # type: ignore[misc]
    """The base of operators: `compute` calls the function; ONNX's own `_run` computes what that refuses."""

    op_domain = ""

    def _run(self, *inputs: Any, **attributes: Any) -> tuple[Any, ...]:
        try:
            return self.compute(*inputs, **attributes)  # type: ignore[no-any-return]
        except (UnsupportedError, TypeError):  # strings, for instance
            return super()._run(*inputs, **attributes)  # type: ignore[no-any-return]


class TopK(_Operator, _ReferenceTopK):  # type: ignore[misc]
    """ONNX TopK, versions 1 to 24, by `dmlcpu.top_k`."""

    def _run(self, data: Array, k: Any, **attributes: Any) -> tuple[Any, ...]:
        if np.size(k) != 1:  # in version 1 k is an attribute
            raise BindingError("TopK", "K.shape", str(np.shape(k)), "(1,)")
        return super()._run(data, [int(np.asarray(k).item())], **attributes)

    def compute(self, data: Array, k: list[int], axis: int = -1, largest: int = 1, sorted: int = 1) -> TopKResult:
        """Return values and indices."""
        return top_k(data, k[0], axis=axis, largest=bool(largest), sorted=bool(sorted))


class ScatterND(_Operator, _ReferenceScatterND):  # type: ignore[misc]
    """ONNX ScatterND, versions 11 to 18, by `dmlcpu.scatter_nd`."""

    def compute(self, data: Array, indices: Array, updates: Array, reduction: str = "none") -> tuple[Array]:
        """Return the updated copy of data."""
        return (scatter_nd(data, indices, updates, reduction=reduction),)


class ScatterElements(_Operator, _ReferenceScatterElements):  # type: ignore[misc]
    """ONNX ScatterElements, versions 11 to 18, by `dmlcpu.scatter_nd` of one index tuple an element."""

    def compute(
        self, data: Array, indices: Array, updates: Array, axis: int = 0, reduction: str = "none"
    ) -> tuple[Array]:
        """Return the updated copy of data."""
        axis = as_axis("ScatterElements", "axis", axis, "data", data.ndim)
        _check_elements(data, indices, axis)
        tuples = np.moveaxis(np.indices(indices.shape, np.int64), 0, -1)
        tuples[..., axis] = indices
        return (scatter_nd(data, tuples, updates, reduction=reduction),)


def _check_elements(data: Array, indices: Array, axis: int) -> None:
    """Refuse arguments in ONNX's words: errors of scatter_nd would name index tuples, and there are none."""
    if indices.dtype.kind not in "iu":
        raise BindingError("ScatterElements", "indices.dtype", str(indices.dtype), "int32, int64")
    if indices.ndim != data.ndim:
        raise BindingError("ScatterElements", "indices.ndim", str(indices.ndim), f"{data.ndim}, as data has")
    size = data.shape[axis]
    bad = (indices < -size) | (indices >= size)
    if bad.any():
        where = np.unravel_index(int(bad.argmax()), bad.shape)
        place = ", ".join(map(str, where))
        allowed = f"{-size} to {size - 1}" if size else "none"
        raise IndexOutOfRangeError(
            "ScatterElements", f"indices[{place}]", str(indices[where]), f"{allowed} (axis {axis} has {size} elements)"
        )


class Product(_Operator):
    """The base of products. A constant input B is packed once."""

    B: int  # its number among the inputs
    packed: PackedMatrix | None = None

    def with_packed(self, *operands: Any) -> list[Any]:
        """Return the inputs, with B as the kernels read it fastest."""
        b = operands[self.B] if self.packed is None else self.packed
        return [*operands[: self.B], b, *operands[self.B + 1 :]]


class QLinearMatMul(Product, _ReferenceQLinearMatMul):  # type: ignore[misc]
    """ONNX QLinearMatMul, versions 10 and 21, by `dmlcpu.quantized_matmul`."""

    B = 3

    def compute(self, *operands: Array) -> tuple[Array]:
        """Return the quantized product."""
        return (quantized_matmul(*self.with_packed(*operands)),)


class MatMulInteger(Product, _ReferenceMatMulInteger):  # type: ignore[misc]
    """ONNX MatMulInteger, version 10, by `dmlcpu.matmul_integer`."""

    B = 1

    def compute(self, *operands: Array) -> tuple[Array]:
        """Return the product; zero points may be missing."""
        a, b, a_zero, b_zero = (*self.with_packed(*operands), None, None)[:4]
        return (matmul_integer(a, a_zero, b, b_zero),)


OPS: list[type[OpRun]] = [TopK, ScatterND, ScatterElements, QLinearMatMul, MatMulInteger]
"""For ``onnx.reference.ReferenceEvaluator(model, new_ops=OPS)``."""
