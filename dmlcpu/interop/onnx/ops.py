"""Operators for ONNX's reference evaluator, which otherwise computes them in plain NumPy."""

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import TensorProto, helper
from onnx.reference.op_run import OpRun
from onnx.reference.ops import load_op

from dmlcpu.annotations import Reduction
from dmlcpu.common.arguments import Array
from dmlcpu.common.parameters import as_floats, check_scale
from dmlcpu.errors import BindingError, DmlError, UnsupportedError
from dmlcpu.interop.onnx.runtime import run_alone
from dmlcpu.operators.argmax.function import argmax
from dmlcpu.operators.argmin.function import argmin
from dmlcpu.operators.dequantize_linear.function import dequantize_linear
from dmlcpu.operators.dynamic_quantize_linear.function import DynamicQuantized, dynamic_quantize_linear
from dmlcpu.operators.dynamic_quantize_matmul.function import dynamic_quantize_matmul
from dmlcpu.operators.gather_elements.function import gather_elements
from dmlcpu.operators.matmul_integer.function import matmul_integer
from dmlcpu.operators.matmul_integer_to_float.function import matmul_integer_to_float
from dmlcpu.operators.quantize_linear.function import quantize_linear
from dmlcpu.operators.quantized_matmul.function import quantized_matmul
from dmlcpu.operators.scatter_elements.function import scatter_elements
from dmlcpu.operators.scatter_nd.function import scatter_nd
from dmlcpu.operators.top_k.function import TopK as TopKResult, top_k
from dmlcpu.products.packing import PackedMatrix

OPS: list[type[OpRun]] = []
"""For ``onnx.reference.ReferenceEvaluator(model, new_ops=OPS)``."""


class _Operator(OpRun):  # type: ignore[misc]
    """The base of operators: `_compute` calls the function. What that does not support, ONNX's own class computes."""

    # ONNX does not define how NaN, infinities and scales of 0 quantize: ONNX Runtime computes them if it is installed.
    quantizes = False
    op_domain = ""  # ONNX's own
    own = ""  # ONNX's class if it has another name
    B: int | None = None  # the place of a product's B among its inputs; `Kernels` packs it once if it is constant
    packed: PackedMatrix | None = None

    def __init_subclass__(cls) -> None:
        OPS.append(cls)

    def oriented(self, b: Array) -> Array:
        """Return B as it is multiplied and packed: transposed if a QGemm says so."""
        return b.T if getattr(self, "transB", 0) else b

    def _run(self, *inputs: Any, **attributes: Any) -> tuple[Any, ...]:
        operands = [*inputs]
        if self.B is not None:
            operands[self.B] = self.oriented(operands[self.B]) if self.packed is None else self.packed
        try:
            return self._compute(*operands, **attributes)  # type: ignore[no-any-return]
        except (UnsupportedError, TypeError):  # strings, for instance
            if self.op_domain:
                raise
            node = load_op("", self.own or self.op_type)(self.onnx_node, self.run_params)
            return node._run(*inputs, **attributes)  # type: ignore[no-any-return]
        except DmlError:
            if self.quantizes:
                with contextlib.suppress(Exception):  # its errors have no class in common
                    return run_alone(self.onnx_node, inputs, self.run_params["opsets"])
            raise


class TopK(_Operator):
    """ONNX TopK, versions 1 to 24, by `dmlcpu.top_k`."""

    def _compute(self, data: Array, k: Any, axis: int = -1, largest: int = 1, sorted: int = 1) -> TopKResult:
        if np.size(k) != 1:  # in version 1 k is an attribute
            raise BindingError("TopK", "K.shape", str(np.shape(k)), "(1,)")
        return top_k(data, int(np.asarray(k).item()), axis=axis, largest=bool(largest), sorted=bool(sorted))


class ArgMax(_Operator):
    """ONNX ArgMax, versions 1 to 13, by `dmlcpu.argmax`."""

    def _compute(self, data: Array, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> tuple[Array]:
        return (argmax(data, axis=axis, keepdims=bool(keepdims), select_last=bool(select_last_index)),)


class ArgMin(_Operator):
    """ONNX ArgMin, versions 1 to 13, by `dmlcpu.argmin`."""

    def _compute(self, data: Array, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> tuple[Array]:
        return (argmin(data, axis=axis, keepdims=bool(keepdims), select_last=bool(select_last_index)),)


class ScatterND(_Operator):
    """ONNX ScatterND, versions 11 to 18, by `dmlcpu.scatter_nd`."""

    def _compute(self, data: Array, indices: Array, updates: Array, reduction: Reduction = "none") -> tuple[Array]:
        return (scatter_nd(data, indices, updates, reduction=reduction),)


class ScatterElements(_Operator):
    """ONNX ScatterElements, versions 11 to 18, by `dmlcpu.scatter_elements`."""

    def _compute(
        self, data: Array, indices: Array, updates: Array, axis: int = 0, reduction: Reduction = "none"
    ) -> tuple[Array]:
        return _of_elements(self.op_type, scatter_elements, data, indices, updates, axis=axis, reduction=reduction)


class Scatter(ScatterElements):
    """ONNX Scatter, versions 9 and 10: the older name of ScatterElements, which the evaluator lacks."""

    own = "ScatterElements"


class GatherElements(_Operator):
    """ONNX GatherElements, versions 11 and 13, by `dmlcpu.gather_elements`."""

    def _compute(self, data: Array, indices: Array, axis: int = 0) -> tuple[Array]:
        return _of_elements("GatherElements", gather_elements, data, indices, axis=axis)


def _of_elements(
    operator: str, run: Callable[..., Array], data: Array, indices: Array, *updates: Array, **options: Any
) -> tuple[Array]:
    """Return what a function returns; its errors name ONNX's operator."""
    if indices.ndim != data.ndim:
        raise BindingError(operator, "indices.ndim", str(indices.ndim), f"{data.ndim}, as data has")
    try:
        return (run(data, indices, *updates, **options),)
    except UnsupportedError:
        raise
    except DmlError as error:
        raise type(error)(operator, error.field, error.found, error.allowed) from error


class QLinearMatMul(_Operator):
    """ONNX QLinearMatMul, versions 10 and 21, by `dmlcpu.quantized_matmul`."""

    B = 3

    def _compute(self, *operands: Any) -> tuple[Array]:
        return (quantized_matmul(*operands),)


class MatMulInteger(_Operator):
    """ONNX MatMulInteger, version 10, by `dmlcpu.matmul_integer`."""

    B = 1

    def _compute(self, a: Array, b: Array, a_zero: Any = None, b_zero: Any = None) -> tuple[Array]:
        return (matmul_integer(a, a_zero, b, b_zero),)


class MatMulIntegerToFloat(_Operator):
    """MatMulIntegerToFloat of ONNX Runtime's domain, version 1, by `dmlcpu.matmul_integer_to_float`."""

    op_domain = "com.microsoft"
    B = 1

    def _compute(self, a: Array, b: Array, a_scale: Array, b_scale: Array, *optional: Any) -> tuple[Array]:
        a_zero, b_zero, bias = (*optional, None, None, None)[:3]
        return (matmul_integer_to_float(a, a_scale, a_zero, b, b_scale, b_zero, bias),)


class DynamicQuantizeMatMul(_Operator):
    """DynamicQuantizeMatMul of ONNX Runtime's domain, version 1, by `dmlcpu.dynamic_quantize_matmul`."""

    op_domain = "com.microsoft"
    quantizes = True
    B = 1

    def _compute(self, *operands: Any) -> tuple[Array]:
        return (dynamic_quantize_matmul(*operands),)


class QGemm(_Operator):
    """QGemm of ONNX Runtime's domain, version 1: a product with C added to its sums, which are exact."""

    op_domain = "com.microsoft"
    B = 3

    def _compute(self, *operands: Any, alpha: float = 1.0, transA: int = 0, transB: int = 0) -> tuple[Array]:
        a, a_scale, a_zero, b, b_scale, b_zero, c, y_scale, y_zero = (*operands, None, None, None)[:9]
        a = a.T if transA else a
        if c is None and y_scale is not None and alpha == 1:
            return (quantized_matmul(a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero),)
        sums = matmul_integer(a, a_zero, b, b_zero, out_dtype=np.int64)
        scale = np.float32(alpha) * a_scale * b_scale
        with np.errstate(all="ignore"):
            numbers = (sums if c is None else sums + c).astype(np.float32)
            if y_scale is None:
                return (numbers * scale,)
            numbers *= scale / y_scale
        return (quantize_linear(numbers, np.float32(1), y_zero, out_dtype=a.dtype),)


class QuantizeLinear(_Operator):
    """ONNX QuantizeLinear, versions 10 to 25, by `dmlcpu.quantize_linear`; ONNX computes float8 and others."""

    quantizes = True

    def _compute(
        self, x: Array, scale: Array, zero: Any = None, output_dtype: Any = 0, precision: Any = 0, **layout: Any
    ) -> tuple[Array]:
        dtype = zero.dtype if zero is not None else _type(output_dtype)
        along = _along(scale, zero, **layout)
        if not precision:  # from version 23 on the scale's type; before, float32, as in ONNX Runtime
            is_new = self.run_params["opsets"].get("", 0) >= 23
            precision = helper.np_dtype_to_tensor_dtype(scale.dtype) if is_new else TensorProto.FLOAT
        if precision in (TensorProto.FLOAT16, TensorProto.BFLOAT16):
            x, scale = _quotients(x, scale, _type(precision), **along), np.ones((), np.float32)
        elif precision != TensorProto.FLOAT:
            raise UnsupportedError("QuantizeLinear", "precision", str(precision), "FLOAT, FLOAT16, BFLOAT16")
        return (quantize_linear(x, scale, zero, **along, out_dtype=dtype),)


def _quotients(x: Array, scale: Array, dtype: Any, axis: int | None = None, block_size: int | None = None) -> Array:
    """Return x / scale, both rounded to a type of 16 bits, and divided in it."""
    check_scale("quantize_linear", "scale", as_floats("quantize_linear", "scale", scale), scale)
    ones = np.ones(x.shape, np.int8)
    each = dequantize_linear(ones, scale, axis=axis, block_size=block_size, out_dtype=dtype)
    with np.errstate(all="ignore"):
        quotients: Array = x.astype(dtype) / each
        return quotients


class DequantizeLinear(_Operator):
    """ONNX DequantizeLinear, versions 10 to 25, by `dmlcpu.dequantize_linear`; ONNX computes float8 and others."""

    def _compute(self, x: Array, scale: Array, zero: Any = None, output_dtype: Any = 0, **layout: Any) -> tuple[Array]:
        dtype = _type(output_dtype) or scale.dtype
        return (dequantize_linear(x, scale, zero, **_along(scale, zero, **layout), out_dtype=dtype),)


def _type(number: int | None) -> Any:
    """Return the type of a number of TensorProto.DataType; 0 stands for none."""
    return helper.tensor_dtype_to_np_dtype(number) if number else None


def _along(scale: Array, zero: Any, axis: int = 1, block_size: Any = 0, saturate: int = 1) -> dict[str, Any]:
    """Return axis and block size as far as they count: ONNX also gives an axis to tensors that have none."""
    if block_size:
        return {"axis": axis, "block_size": block_size}
    is_one = np.size(scale) == 1 and (zero is None or np.size(zero) == 1)
    return {} if is_one else {"axis": axis}


class DynamicQuantizeLinear(_Operator):
    """ONNX DynamicQuantizeLinear, version 11, by `dmlcpu.dynamic_quantize_linear`."""

    quantizes = True

    def _compute(self, x: Array) -> DynamicQuantized:
        return dynamic_quantize_linear(x)


BY_NAME = {f"{each.op_domain}.{each.__name__}".lstrip("."): each for each in OPS}
