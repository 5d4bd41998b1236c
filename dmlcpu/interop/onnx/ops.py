"""Operators for ONNX's reference evaluator, which otherwise computes them in plain NumPy."""

import contextlib
from typing import Any

import numpy as np
from onnx import TensorProto, helper
from onnx.reference.op_run import OpRun
from onnx.reference.ops import load_op

import dmlcpu
from dmlcpu.common.arguments import Array
from dmlcpu.common.parameters import as_floats, check_scale
from dmlcpu.errors import BindingError, DmlError, UnsupportedError
from dmlcpu.interop.onnx.runtime import run_alone
from dmlcpu.products.packing import PackedMatrix

OPS: list[type[OpRun]] = []


class _Operator(OpRun):  # type: ignore[misc]
    """The base of operators: `_compute` calls the function. What that does not support, ONNX's own class computes."""

    function = ""  # of this package, whose arguments are ONNX's inputs in order, and ONNX's attributes by name
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

    def _compute(self, *operands: Any, **attributes: Any) -> Any:
        """Return the result, or a tuple of several."""
        return getattr(dmlcpu, self.function)(*operands, **attributes)

    def _run(self, *inputs: Any, **attributes: Any) -> tuple[Any, ...]:
        operands = [*inputs]
        if self.B is not None:
            operands[self.B] = self.oriented(operands[self.B]) if self.packed is None else self.packed
        try:
            results = self._compute(*operands, **attributes)
            return results if isinstance(results, tuple) else (results,)
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

    def _compute(self, data: Array, k: Any, axis: int = -1, largest: int = 1, sorted: int = 1) -> Any:
        if np.size(k) != 1:  # in version 1 k is an attribute
            raise BindingError("TopK", "K.shape", str(np.shape(k)), "(1,)")
        return dmlcpu.top_k(data, int(np.asarray(k).item()), axis=axis, largest=bool(largest), sorted=bool(sorted))


class ArgMax(_Operator):
    """ONNX ArgMax, versions 1 to 13, by `dmlcpu.argmax`."""

    function = "argmax"

    def _compute(self, data: Array, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Any:
        return super()._compute(data, axis=axis, keepdims=bool(keepdims), select_last=bool(select_last_index))


class ArgMin(ArgMax):
    """ONNX ArgMin, versions 1 to 13, by `dmlcpu.argmin`."""

    function = "argmin"


class ScatterND(_Operator):
    """ONNX ScatterND, versions 11 to 18, by `dmlcpu.scatter_nd`."""

    function = "scatter_nd"


class GatherElements(_Operator):
    """ONNX GatherElements, versions 11 and 13, by `dmlcpu.gather_elements`."""

    function = "gather_elements"

    def _compute(self, data: Array, indices: Array, *updates: Array, **attributes: Any) -> Any:
        """Return the result; errors name ONNX's operator."""
        if indices.ndim != data.ndim:
            raise BindingError(self.op_type, "indices.ndim", str(indices.ndim), f"{data.ndim}, as data has")
        try:
            return super()._compute(data, indices, *updates, **attributes)
        except UnsupportedError:
            raise
        except DmlError as error:
            raise type(error)(self.op_type, error.field, error.found, error.allowed) from error


class ScatterElements(GatherElements):
    """ONNX ScatterElements, versions 11 to 18, by `dmlcpu.scatter_elements`."""

    function = "scatter_elements"


class Scatter(ScatterElements):
    """ONNX Scatter, versions 9 and 10: the older name of ScatterElements, which the evaluator lacks."""

    own = "ScatterElements"


class QLinearMatMul(_Operator):
    """ONNX QLinearMatMul, versions 10 and 21, by `dmlcpu.quantized_matmul`."""

    function = "quantized_matmul"
    B = 3


class MatMulInteger(_Operator):
    """ONNX MatMulInteger, version 10, by `dmlcpu.matmul_integer`."""

    B = 1

    def _compute(self, a: Array, b: Array, a_zero: Any = None, b_zero: Any = None) -> Any:
        return dmlcpu.matmul_integer(a, a_zero, b, b_zero)


class MatMulIntegerToFloat(_Operator):
    """MatMulIntegerToFloat of ONNX Runtime's domain, version 1, by `dmlcpu.matmul_integer_to_float`."""

    op_domain = "com.microsoft"
    B = 1

    def _compute(self, a: Array, b: Array, a_scale: Array, b_scale: Array, *optional: Any) -> Any:
        a_zero, b_zero, bias = (*optional, None, None, None)[:3]
        return dmlcpu.matmul_integer_to_float(a, a_scale, a_zero, b, b_scale, b_zero, bias)


class DynamicQuantizeMatMul(_Operator):
    """DynamicQuantizeMatMul of ONNX Runtime's domain, version 1, by `dmlcpu.dynamic_quantize_matmul`."""

    function = "dynamic_quantize_matmul"
    op_domain = "com.microsoft"
    quantizes = True
    B = 1


class QGemm(_Operator):
    """QGemm of ONNX Runtime's domain, version 1: a product with C added to its sums, which are exact."""

    op_domain = "com.microsoft"
    B = 3

    def _compute(self, *operands: Any, alpha: float = 1.0, transA: int = 0, transB: int = 0) -> Any:
        a, a_scale, a_zero, b, b_scale, b_zero, c, y_scale, y_zero = (*operands, None, None, None)[:9]
        a = a.T if transA else a
        if c is None and y_scale is not None and alpha == 1:
            return dmlcpu.quantized_matmul(a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero)
        sums = dmlcpu.matmul_integer(a, a_zero, b, b_zero, out_dtype=np.int64)
        scale = np.float32(alpha) * a_scale * b_scale
        with np.errstate(all="ignore"):
            numbers = (sums if c is None else sums + c).astype(np.float32)
            if y_scale is None:
                return numbers * scale
            numbers *= scale / y_scale
        return dmlcpu.quantize_linear(numbers, np.float32(1), y_zero, out_dtype=a.dtype)


class QuantizeLinear(_Operator):
    """ONNX QuantizeLinear, versions 10 to 25, by `dmlcpu.quantize_linear`; ONNX computes float8 and others."""

    quantizes = True

    def _compute(
        self, x: Array, scale: Array, zero: Any = None, output_dtype: Any = 0, precision: Any = 0, **layout: Any
    ) -> Any:
        dtype = zero.dtype if zero is not None else _type(output_dtype)
        along = _along(scale, zero, **layout)
        if not precision:  # from version 23 on the scale's type; before, float32, as in ONNX Runtime
            is_new = self.run_params["opsets"].get("", 0) >= 23
            precision = helper.np_dtype_to_tensor_dtype(scale.dtype) if is_new else TensorProto.FLOAT
        if precision in (TensorProto.FLOAT16, TensorProto.BFLOAT16):
            x, scale = _quotients(x, scale, _type(precision), **along), np.ones((), np.float32)
        elif precision != TensorProto.FLOAT:
            raise UnsupportedError("QuantizeLinear", "precision", str(precision), "FLOAT, FLOAT16, BFLOAT16")
        return dmlcpu.quantize_linear(x, scale, zero, **along, out_dtype=dtype)


def _quotients(x: Array, scale: Array, dtype: Any, axis: int | None = None, block_size: int | None = None) -> Array:
    """Return x / scale, both rounded to a type of 16 bits, and divided in it."""
    check_scale("quantize_linear", "scale", as_floats("quantize_linear", "scale", scale), scale)
    ones = np.ones(x.shape, np.int8)
    each = dmlcpu.dequantize_linear(ones, scale, axis=axis, block_size=block_size, out_dtype=dtype)
    with np.errstate(all="ignore"):
        quotients: Array = x.astype(dtype) / each
        return quotients


class DequantizeLinear(_Operator):
    """ONNX DequantizeLinear, versions 10 to 25, by `dmlcpu.dequantize_linear`; ONNX computes float8 and others."""

    def _compute(self, x: Array, scale: Array, zero: Any = None, output_dtype: Any = 0, **layout: Any) -> Any:
        dtype = _type(output_dtype) or scale.dtype
        return dmlcpu.dequantize_linear(x, scale, zero, **_along(scale, zero, **layout), out_dtype=dtype)


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

    function = "dynamic_quantize_linear"
    quantizes = True


BY_NAME = {f"{each.op_domain}.{each.__name__}".lstrip("."): each for each in OPS}
