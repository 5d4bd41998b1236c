"""Shared by the descs of 8-bit products: A, B, Output, and the parameters of A's rows and B's columns."""

import math
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, ClassVar

import numpy as np

from dmlcpu.common.arguments import Array
from dmlcpu.common.forms import Shape, form_of, strides_of
from dmlcpu.common.parameters import as_float32, check_scale
from dmlcpu.directml.base import Bound, Key, OperatorDesc, View, dml_name, without_leading
from dmlcpu.directml.checks import check_range
from dmlcpu.directml.enums import TensorDataType, TensorFlags
from dmlcpu.directml.tensor import TensorDesc
from dmlcpu.products.arguments import PARAMETERS, flat_of
from dmlcpu.products.packing import PackedMatrix, form_of_packed, pack_b
from dmlcpu.products.plan import prepare

_ZERO = np.zeros(1, np.uint8)
_FIELDS = [f"{name.replace('y_', 'output_')}_tensor" for name in PARAMETERS]  # a desc need not have all of them


class ProductDesc(OperatorDesc[Array]):
    """The base class of product descs: sizes, binding of tensors to kernels; B is packed once if it is owned."""

    __slots__ = ()
    KERNELS: ClassVar[str]  # the operator whose kernels multiply
    POSITIVE: ClassVar[tuple[str, ...]] = ()  # scales that must be positive and finite

    a_tensor: TensorDesc
    b_tensor: TensorDesc
    output_tensor: TensorDesc

    def _check(self) -> None:
        a, b, y = self.a_tensor, self.b_tensor, self.output_tensor
        check_range(self.operator, "ATensor.DimensionCount", a.dimension_count, 2, 8)
        self._check_same_count("b_tensor", "a_tensor")
        self._check_same_count("output_tensor", "a_tensor")
        *batch, M, K = a.sizes
        N = b.sizes[-1]
        self._check_sizes("BTensor", b, (*batch, K, N), "a row for each column of ATensor")
        self._check_sizes("OutputTensor", y, (*batch, M, N), "the rows of ATensor and the columns of BTensor")
        for name in self.POSITIVE:
            self._check_values(name)
        for of in ("a", "b", "output"):
            name = f"{of}_zero_point_tensor"
            if getattr(self, name, None) is not None:
                self._check_values(name)
                self._check_same_type(name, f"{of}_tensor")

    def _check_values(self, name: str) -> None:
        is_column, sizes = name.startswith("b"), getattr(self, name).sizes
        per = (self.b_tensor.sizes[-1],) if is_column else (self.a_tensor.sizes[-2], 1)
        one = (1,) * len(sizes)
        each = (1,) * (len(sizes) - len(per)) + per
        if sizes not in (one, each):
            meaning = "one for each column" if is_column else "one for each row"
            allowed = f"{one}, or {each} ({meaning})" if len(each) == len(one) and each != one else f"{one}"
            raise self._refusal(f"{dml_name(name)}.Sizes", sizes, allowed)

    def _keep(self, name: str, array: Array) -> Any:
        if name in self.POSITIVE:
            check_scale(self.operator, dml_name(name), array)
        return pack_b(array) if name == "b_tensor" else array.copy()

    def _make_arrays(self, owned: Bound) -> Callable[[Bound], Sequence[Any]]:
        present = [(place, name) for place, name in enumerate(_FIELDS) if getattr(self, name, None)]
        known = [_ZERO] * len(_FIELDS)
        for place, name in present:
            if name in owned:
                known[place] = _as_kernels_read(owned[name])
        given = [(place, name) for place, name in present if name not in owned]

        def arrays(bound: Bound) -> Sequence[Any]:
            numbers = known.copy()
            for place, name in given:
                numbers[place] = _as_kernels_read(bound[name])
            return bound["a_tensor"], bound["b_tensor"], numbers, bound.get("bias_tensor"), bound["output_tensor"]

        return arrays

    def _key(self, arrays: Any) -> Key:
        a, b, _, bias, y = arrays
        shapes = tuple([self._shape_of(name) for name in _FIELDS])
        b_form = form_of_packed(b) if isinstance(b, PackedMatrix) else form_of(b)
        bias_form = None if bias is None else form_of(bias)
        return prepare, (self.KERNELS, form_of(a), b_form, shapes, bias_form, strides_of(y), y.dtype)

    def _shape_of(self, name: str) -> Shape | None:
        """Return the shape of scales or zero points for a key: a single owned one is a number, checked before."""
        tensor = getattr(self, name, None)
        is_number = tensor and tensor.flags & TensorFlags.OWNED_BY_DML and math.prod(tensor.sizes) == 1
        return None if tensor is None or is_number else (1, *tensor.sizes)[-2:]

    def _refuse(self, bound: Bound, refused: Any) -> None:
        name = _FIELDS[refused]
        check_scale(self.operator, dml_name(name), bound[name])


def _as_kernels_read(array: Array) -> Array:
    """Return scales or zero points in the form that kernels read."""
    return flat_of(as_float32(array) if array.dtype == np.float16 else array)


def matrices_of(tensor: TensorDesc) -> View:
    """Return a function that makes matrices of scales, as float32, or of zero points."""
    missing = tensor.dimension_count == 1
    view = itemgetter((np.newaxis, ...)) if missing else without_leading(tensor.dimension_count - 2)
    return view if tensor.data_type is not TensorDataType.FLOAT16 else lambda array: as_float32(view(array))
