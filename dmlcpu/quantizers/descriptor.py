"""Shared by the descs of quantizers: how tensors are bound to kernels."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

import numpy as np

from dmlcpu import reference
from dmlcpu.common.arguments import Array
from dmlcpu.common.forms import Form, form_of, strides_of
from dmlcpu.common.parameters import as_float32, as_floats, check_scale, is_usable
from dmlcpu.common.prepared import ByFunction, Prepared, converting
from dmlcpu.directml.base import Bound, Key, OperatorDesc
from dmlcpu.directml.enums import QuantizationType, TensorDataType
from dmlcpu.directml.tensor import TensorDesc
from dmlcpu.quantizers.layout import Layout, elements_of, layout_of, store_elements
from dmlcpu.quantizers.plan import Layouts, layouts_of, plan_layouts, prepare
from dmlcpu.runtime.memory import packed_strides
from dmlcpu.runtime.threads import REFERENCE, Budget

_FLOAT32 = TensorDataType.FLOAT32


class Role(NamedTuple):
    """A tensor of an operator: its field or element of a field, and its desc."""

    name: str
    dml_name: str
    tensor: TensorDesc

    @property
    def layout(self) -> Layout:
        """The layout of the tensor's buffer."""
        tensor, type_ = self.tensor, self.tensor.data_type
        strides = tensor.strides or packed_strides(tensor.sizes)
        return Layout(tensor.sizes, strides, type_.name.lower(), type_.bits == 4)


class QuantizerDesc(OperatorDesc[Array]):
    """The base class of the descs that quantize by a scale, or dequantize."""

    __slots__ = ()
    KERNELS: ClassVar[str]  # the operator whose kernels compute it

    def _roles(self) -> tuple[Role, Role, Role | None, Role]:
        """Return x, scale, zero point and y."""
        raise NotImplementedError

    def _is_quantize(self) -> bool:
        return self.KERNELS == "quantize_linear"

    def _check_types(self) -> None:
        """Refuse a scale or zero point of another type than its tensor's, if the operator supports that type."""
        x, scale, zero, y = self._roles()
        high, quantized = (x, y) if self._is_quantize() else (y, x)
        is_integer = high.tensor.data_type is TensorDataType.INT32
        wanted = _FLOAT32 if is_integer else high.tensor.data_type
        why = "as INT32 is divided" if is_integer else f"{high.dml_name}.DataType"
        if scale.tensor.data_type is not wanted and self._takes(high.dml_name, high.tensor):
            raise self._refusal(f"{scale.dml_name}.DataType", scale.tensor.data_type.name, f"{wanted.name} ({why})")
        kind = quantized.tensor.data_type
        if zero and zero.tensor.data_type is not kind and self._takes(quantized.dml_name, quantized.tensor):
            allowed = f"{kind.name} ({quantized.dml_name}.DataType)"
            raise self._refusal(f"{zero.dml_name}.DataType", zero.tensor.data_type.name, allowed)

    def _keep(self, name: str, array: Array) -> Any:
        scale = self._roles()[1]
        if name == scale.name:
            kept = as_floats(self.operator, scale.dml_name, array).copy()
            if self._is_quantize():
                check_scale(self.operator, scale.dml_name, kept)
            return kept
        return array.copy()

    def _make_arrays(self, owned: Bound) -> Callable[[Bound], Sequence[Any]]:
        names = [role.name if role else "" for role in self._roles()]
        return lambda bound: [bound.get(name) for name in names]

    def _key(self, arrays: Any) -> Key:
        roles = self._roles()
        if any(role and role.tensor.data_type.bits == 4 for role in roles):
            layouts = tuple([role and _layout(role, array) for role, array in zip(roles, arrays, strict=True)])
            return _prepare_packed, (self, layouts)
        x, scale, zero, y = arrays
        forms = form_of(x), form_of(scale), None if zero is None else form_of(zero), strides_of(y)
        return prepare, (self.KERNELS, forms, (None, None, y.dtype))

    def _refuse(self, bound: Bound, refused: Any) -> None:
        scale = self._roles()[1]
        scales = as_floats(self.operator, scale.dml_name, bound[scale.name])
        check_scale(self.operator, scale.dml_name, scales, bound[scale.name])

    def _refer(self, x: Array, scale: Array, zero: Array | None, y: Array) -> bool | None:
        """Run the reference, with 4-bit elements as bytes."""
        if self._is_quantize() and not is_usable(scale):
            return True
        of_x, _, of_zero, of_y = self._roles()
        function = getattr(reference, self.KERNELS)
        x = elements_of(of_x.tensor, x)
        zero = None if zero is None or of_zero is None else elements_of(of_zero.tensor, zero)
        if of_y.tensor.data_type.bits > 4:
            function(x, scale, zero, out_dtype=y.dtype, out=y)
        else:
            wide = np.int8 if of_y.tensor.data_type is TensorDataType.INT4 else np.uint8
            store_elements(of_y.tensor, function(x, scale, zero, out_dtype=wide), y)
        return None


@lru_cache(maxsize=1024)
def _prepare_packed(desc: QuantizerDesc, layouts: Layouts, budget: Budget) -> Prepared:
    """Return the prepared call of a desc with 4-bit tensors."""
    x, scale, zero, y = layouts
    if budget == REFERENCE:
        found: Prepared = ByFunction(operator=desc.KERNELS, kernel="reference", results=(), function=desc._refer)
    else:
        floats = scale if scale.type == "float32" else Layout(scale.shape, packed_strides(scale.shape), "float32")
        full = layouts_of(desc.KERNELS, x, floats, zero, y)
        found = plan_layouts(desc.KERNELS, full, (0, not desc._is_quantize(), False), (), budget)
    is_half = scale.type == "float16"
    return converting(found, [(1, as_float32)] if is_half else [])


class ElementWiseDesc(QuantizerDesc):
    """The base class of ELEMENT_WISE_QUANTIZE_LINEAR and ELEMENT_WISE_DEQUANTIZE_LINEAR."""

    __slots__ = ()
    input_tensor: TensorDesc
    scale_tensor: TensorDesc
    zero_point_tensor: TensorDesc | None
    output_tensor: TensorDesc

    def _check(self) -> None:
        for role in self._roles()[1:]:
            if role:
                self._check_same_count(role.name, "input_tensor")
                self._check_sizes(role.dml_name, role.tensor, self.input_tensor.sizes, "InputTensor.Sizes")
        self._check_types()

    def _roles(self) -> tuple[Role, Role, Role | None, Role]:
        zero = self.zero_point_tensor
        return (
            Role("input_tensor", "InputTensor", self.input_tensor),
            Role("scale_tensor", "ScaleTensor", self.scale_tensor),
            Role("zero_point_tensor", "ZeroPointTensor", zero) if zero else None,
            Role("output_tensor", "OutputTensor", self.output_tensor),
        )


class BlockedDesc(QuantizerDesc):
    """The base class of QUANTIZE and DEQUANTIZE."""

    __slots__ = ()
    input_tensor: TensorDesc
    quantization_type: QuantizationType
    quantization_tensors: tuple[TensorDesc, ...]
    output_tensor: TensorDesc

    def _check(self) -> None:
        if self.quantization_type is QuantizationType.NONE:
            raise self._refusal("QuantizationType", "NONE", "SCALE, SCALE_ZERO_POINT")
        count = int(self.quantization_type)
        if len(self.quantization_tensors) != count:
            allowed = f"{count} (QuantizationType is {self.quantization_type.name})"
            raise self._refusal("QuantizationTensorCount", len(self.quantization_tensors), allowed)
        scale, zero = self._roles()[1:3]
        self._check_sizes("OutputTensor", self.output_tensor, self.input_tensor.sizes, "InputTensor.Sizes")
        found, sizes = scale.tensor.sizes, self.input_tensor.sizes
        if len(found) != len(sizes):
            allowed = f"{len(sizes)} (InputTensor.DimensionCount)"
            raise self._refusal(f"{scale.dml_name}.DimensionCount", len(found), allowed)
        if any(n % size for n, size in zip(sizes, found, strict=True)):
            raise self._refusal(f"{scale.dml_name}.Sizes", found, f"sizes that divide {sizes} (InputTensor.Sizes)")
        if zero:
            self._check_sizes(zero.dml_name, zero.tensor, found, f"{scale.dml_name}.Sizes")
        self._check_types()

    def _roles(self) -> tuple[Role, Role, Role | None, Role]:
        names = ((f"quantization_tensors[{i}]", f"QuantizationTensors[{i}]") for i in range(2))
        scale, *zero = (Role(*each, tensor) for each, tensor in zip(names, self.quantization_tensors, strict=False))
        return (
            Role("input_tensor", "InputTensor", self.input_tensor),
            scale,
            zero[0] if zero else None,
            Role("output_tensor", "OutputTensor", self.output_tensor),
        )


def _layout(role: Role, array: Array) -> Layout:
    """Return the layout of a bound tensor: the byte buffer of a 4-bit tensor has two elements in each byte."""
    is_buffer = role.tensor.data_type.bits == 4 and array.dtype == np.uint8
    return role.layout if is_buffer else layout_of(Form(*form_of(array)))
