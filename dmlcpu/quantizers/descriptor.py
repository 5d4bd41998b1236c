"""What the descs of quantizers share: how their tensors are bound to kernels."""

from functools import lru_cache, partial
from operator import itemgetter
from typing import Any, ClassVar, NamedTuple

import numpy as np

from dmlcpu import reference
from dmlcpu.common.arguments import Array
from dmlcpu.common.bound import Steps
from dmlcpu.common.parameters import as_floats
from dmlcpu.directml.base import Bound, OperatorDesc, Packed, Run
from dmlcpu.directml.enums import QuantizationType, TensorDataType
from dmlcpu.directml.tensor import TensorDesc
from dmlcpu.kernels.scales import are_positive
from dmlcpu.quantizers import nibbles
from dmlcpu.quantizers.arguments import check_positive
from dmlcpu.quantizers.execution import words_of, zero_layout
from dmlcpu.quantizers.layout import Layout, layout_of
from dmlcpu.quantizers.plan import Plan, plan, run, steps as plan_steps
from dmlcpu.runtime import threads
from dmlcpu.runtime.compilation import can_compile
from dmlcpu.runtime.memory import packed_strides
from dmlcpu.runtime.threads import Budget

_FLOAT32 = TensorDataType.FLOAT32


class Role(NamedTuple):
    """A tensor of an operator: its field, or an element of one, and its desc."""

    name: str
    dml_name: str
    tensor: TensorDesc

    @property
    def layout(self) -> Layout:
        """The layout of the tensor's buffer."""
        tensor, type_ = self.tensor, self.tensor.data_type
        strides = tensor.strides or packed_strides(tensor.sizes)
        return Layout(tensor.sizes, strides, type_.name.lower(), type_.bits == 4)

    @property
    def packed_layout(self) -> Layout:
        """The layout of the tensor bound as a packed array."""
        return self.layout._replace(strides=packed_strides(self.tensor.sizes))


class QuantizerDesc(OperatorDesc[Array]):
    """The base of the descs that quantize by a scale, or dequantize."""

    __slots__ = ()
    KERNELS: ClassVar[str]  # the operator whose kernels compute it

    def _roles(self) -> tuple[Role, Role, Role | None, Role]:
        """Return x, scale, zero point and y."""
        raise NotImplementedError

    def _is_quantize(self) -> bool:
        return self.KERNELS == "quantize_linear"

    def _check_types(self) -> None:
        """Refuse a scale or zero point whose type is not that of its side, if that side's type fits the operator."""
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
                check_positive(self.operator, scale.dml_name, kept)
            return kept
        return array.copy()

    def _make_run(self, owned: Bound) -> Run:
        roles = [role for role in self._roles() if role]
        scale = self._roles()[1]
        is_plain = scale.tensor.data_type is _FLOAT32 and all(role.tensor.data_type.bits > 4 for role in roles)
        return Run(self._general(owned), None if owned or not is_plain else self._packed())

    def _general(self, owned: Bound) -> Any:
        """Return how it runs on tensors of any strides."""
        roles = self._roles()
        names = [role.name if role else "" for role in roles]
        field, checks = roles[1].dml_name, self._is_quantize() and roles[1].name not in owned

        def general(bound: Bound) -> Any:
            tensors: list[Any] = [bound[name] if name else None for name in names]
            x, given, zero, y = tensors
            scale = as_floats(self.operator, field, given)
            if checks:
                check_positive(self.operator, field, scale)
            if not can_compile():
                self._refer(x, scale, zero, y)
                return y
            of_x, of_y = (_layout(role, array) for role, array in ((roles[0], x), (roles[3], y)))
            quantized = of_y if self._is_quantize() else of_x
            of_zero = _layout(roles[2], zero) if roles[2] else zero_layout(None, quantized._replace(is_packed=False))
            layouts = (of_x, layout_of(scale), of_zero, of_y)
            run(plan(self.KERNELS, *layouts, threads.budget()), *words_of(layouts, (x, scale, zero, y)))
            return y

        return general

    def _refer(self, x: Array, scale: Array, zero: Array | None, y: Array) -> None:
        """Compute by the reference, 4 bits as 8."""
        of_x, _, of_zero, of_y = self._roles()
        function = getattr(reference, self.KERNELS)
        x = nibbles.elements(of_x.tensor, x)
        zero = None if zero is None or of_zero is None else nibbles.elements(of_zero.tensor, zero)
        if of_y.tensor.data_type.bits > 4:
            function(x, scale, zero, out_dtype=y.dtype, out=y)
            return
        wide = np.int8 if of_y.tensor.data_type is TensorDataType.INT4 else np.uint8
        nibbles.store(of_y.tensor, function(x, scale, zero, out_dtype=wide), y)

    def _packed(self) -> Packed:
        """Return the shorter way for packed tensors."""
        x, scale, zero, y = self._roles()
        quantized = y if self._is_quantize() else x
        of_zero = zero.packed_layout if zero else zero_layout(None, quantized.layout)
        layouts = (x.packed_layout, scale.packed_layout, of_zero, y.packed_layout)
        plan_within = lru_cache(maxsize=8)(partial(self._plan, layouts))
        missing = np.zeros(1, of_zero.word)
        named = [(role.name, layout.word) for role, layout in zip((x, scale, zero, y), layouts, strict=True) if role]
        words = {name: np.dtype(np.float32) if name == scale.name else word for name, word in named}

        def mine(words: list[Array]) -> list[Array]:
            return words if zero else [*words[:2], missing, words[2]]

        def check(bound: Bound, scales: Array) -> None:
            if not are_positive(scales):
                check_positive(self.operator, scale.dml_name, bound[scale.name])

        def packed(bound: Bound, words: list[Array]) -> None:
            if self._is_quantize():
                check(bound, words[1])
            run(threads.plan_for_now(plan_within), *mine(words))

        def steps(bound: Bound, words: list[Array]) -> Steps:
            checks = partial(check, bound, words[1]) if self._is_quantize() else None
            return plan_steps(plan_within, checks, *mine(words))

        return Packed(words, packed, itemgetter(y.name), steps)

    def _plan(self, layouts: tuple[Layout, ...], budget: Budget) -> Plan:
        return plan(self.KERNELS, *layouts, budget)


class ElementWiseDesc(QuantizerDesc):
    """The base of ELEMENT_WISE_QUANTIZE_LINEAR and ELEMENT_WISE_DEQUANTIZE_LINEAR."""

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
    """The base of QUANTIZE and DEQUANTIZE."""

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
    """Return the layout of a bound tensor: of 4 bits, a buffer of bytes has two elements in each."""
    is_buffer = role.tensor.data_type.bits == 4 and array.dtype == np.uint8
    return role.layout if is_buffer else layout_of(array)
