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
from dmlcpu.operators.top_k.function import top_k
from dmlcpu.products.packing import PackedMatrix

# ONNX's own implementation computes arguments that the functions refuse, strings for instance.
_NOT_TAKEN = (UnsupportedError, TypeError)


class TopK(_ReferenceTopK):  # type: ignore[misc]
    """ONNX TopK, versions 1 to 24, by `dmlcpu.top_k`."""

    op_domain = ""

    def _run(self, data: Array, k: Any, axis: int = -1, largest: int = 1, sorted: int = 1) -> tuple[Array, Array]:
        if np.size(k) != 1:  # of version 1 an attribute
            raise BindingError("TopK", "K.shape", str(np.shape(k)), "(1,)")
        number = int(np.asarray(k).item())
        try:
            return top_k(data, number, axis=axis, largest=bool(largest), sorted=bool(sorted))
        except _NOT_TAKEN:
            return super()._run(data, [number], axis=axis, largest=largest, sorted=sorted)  # type: ignore[no-any-return]


class ScatterND(_ReferenceScatterND):  # type: ignore[misc]
    """ONNX ScatterND, versions 11 to 18, by `dmlcpu.scatter_nd`."""

    op_domain = ""

    def _run(self, data: Array, indices: Array, updates: Array, reduction: str = "none") -> tuple[Array]:
        try:
            return (scatter_nd(data, indices, updates, reduction=reduction),)
        except _NOT_TAKEN:
            return super()._run(data, indices, updates, reduction=reduction)  # type: ignore[no-any-return]


class ScatterElements(_ReferenceScatterElements):  # type: ignore[misc]
    """ONNX ScatterElements, versions 11 to 18, by `dmlcpu.scatter_nd` of one index tuple an element."""

    op_domain = ""

    def _run(self, data: Array, indices: Array, updates: Array, axis: int = 0, reduction: str = "none") -> tuple[Array]:
        axis = as_axis("ScatterElements", "axis", axis, "data", data.ndim)
        _check_elements(data, indices, axis)
        tuples = np.moveaxis(np.indices(indices.shape, np.int64), 0, -1)
        tuples[..., axis] = indices
        try:
            return (scatter_nd(data, tuples, updates, reduction=reduction),)
        except _NOT_TAKEN:
            return super()._run(data, indices, updates, axis=axis, reduction=reduction)  # type: ignore[no-any-return]


def _check_elements(data: Array, indices: Array, axis: int) -> None:
    """Refuse arguments in ONNX's words, as errors of scatter_nd would name tuples that the caller has not given."""
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


class Product(OpRun):  # type: ignore[misc]
    """The base of products. A constant input B is packed once."""

    B: int  # its number among the inputs
    packed: PackedMatrix | None = None

    def rhs(self, b: Array) -> Array | PackedMatrix:
        """Return B as the kernels read it fastest."""
        return b if self.packed is None else self.packed


class QLinearMatMul(Product, _ReferenceQLinearMatMul):  # type: ignore[misc]
    """ONNX QLinearMatMul, versions 10 and 21, by `dmlcpu.quantized_matmul`."""

    op_domain = ""
    B = 3

    def _run(self, *operands: Array) -> tuple[Array]:
        given: list[Any] = [*operands]
        given[self.B] = self.rhs(operands[self.B])
        try:
            return (quantized_matmul(*given),)
        except _NOT_TAKEN:
            return super()._run(*operands)  # type: ignore[no-any-return]


class MatMulInteger(Product, _ReferenceMatMulInteger):  # type: ignore[misc]
    """ONNX MatMulInteger, version 10, by `dmlcpu.matmul_integer`."""

    op_domain = ""
    B = 1

    def _run(
        self, a: Array, b: Array, a_zero_point: Array | None = None, b_zero_point: Array | None = None
    ) -> tuple[Array]:
        try:
            return (matmul_integer(a, a_zero_point, self.rhs(b), b_zero_point),)
        except _NOT_TAKEN:
            return super()._run(a, b, a_zero_point, b_zero_point)  # type: ignore[no-any-return]


OPS: list[type[OpRun]] = [TopK, ScatterND, ScatterElements, QLinearMatMul, MatMulInteger]
"""For ``onnx.reference.ReferenceEvaluator(model, new_ops=OPS)``."""
