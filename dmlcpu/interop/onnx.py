"""Operators for ONNX's reference evaluator, which otherwise computes them in plain NumPy."""

from typing import Any

import numpy as np

from dmlcpu.common.arguments import Array
from dmlcpu.errors import UnsupportedError
from dmlcpu.operators.quantized_matmul.function import quantized_matmul
from dmlcpu.operators.scatter_nd.function import scatter_nd
from dmlcpu.operators.top_k.function import top_k

try:
    from onnx.reference.op_run import OpRun
    from onnx.reference.ops.op_qlinear_matmul import QLinearMatMul as _ReferenceQLinearMatMul
    from onnx.reference.ops.op_scatter_elements import ScatterElements as _ReferenceScatterElements
    from onnx.reference.ops.op_scatternd import ScatterND as _ReferenceScatterND
    from onnx.reference.ops.op_topk import TopK_11 as _ReferenceTopK
except ImportError as error:
    raise ImportError("dmlcpu.interop.onnx needs the package onnx: pip install 'dmlcpu[onnx]'") from error

# What the functions do not take, strings for instance, is left to ONNX's own implementation.
_NOT_TAKEN = (UnsupportedError, TypeError)


class TopK(_ReferenceTopK):  # type: ignore[misc]
    """ONNX TopK, versions 1 to 24, by `dmlcpu.top_k`."""

    op_domain = ""

    def _run(self, data: Array, k: Any, axis: int = -1, largest: int = 1, sorted: int = 1) -> tuple[Array, Array]:
        number = int(np.asarray(k).reshape(-1)[0])  # of version 1 an attribute
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
        tuples = np.moveaxis(np.indices(indices.shape, np.int64), 0, -1)
        tuples[..., axis] = indices
        try:
            return (scatter_nd(data, tuples, updates, reduction=reduction),)
        except _NOT_TAKEN:
            return super()._run(data, indices, updates, axis=axis, reduction=reduction)  # type: ignore[no-any-return]


class QLinearMatMul(_ReferenceQLinearMatMul):  # type: ignore[misc]
    """ONNX QLinearMatMul, versions 10 and 21, by `dmlcpu.quantized_matmul`."""

    op_domain = ""

    def _run(
        self,
        a: Array,
        a_scale: Array,
        a_zero_point: Array,
        b: Array,
        b_scale: Array,
        b_zero_point: Array,
        y_scale: Array,
        y_zero_point: Array,
    ) -> tuple[Array]:
        arguments = (a, a_scale, a_zero_point, b, b_scale, b_zero_point, y_scale, y_zero_point)
        try:
            return (quantized_matmul(*arguments),)
        except _NOT_TAKEN:
            return super()._run(*arguments)  # type: ignore[no-any-return]


OPS: list[type[OpRun]] = [TopK, ScatterND, ScatterElements, QLinearMatMul]
"""For ``onnx.reference.ReferenceEvaluator(model, new_ops=OPS)``."""
