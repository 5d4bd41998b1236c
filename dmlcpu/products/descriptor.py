"""What the descs of products of 8-bit matrices share: A, B, Output, and what A's rows and B's columns have."""

import functools
from collections.abc import Callable
from operator import itemgetter
from typing import Any, ClassVar

import numpy as np

from dmlcpu.common.arguments import Array
from dmlcpu.directml.base import Bound, OperatorDesc, Run, View, dml_name, without_leading
from dmlcpu.directml.checks import check_range
from dmlcpu.directml.tensor import TensorDesc
from dmlcpu.errors import InvalidDescriptorError
from dmlcpu.kernels.gemm.table import ROWS
from dmlcpu.products.packing import PackedMatrix, pack_b
from dmlcpu.products.plan import Layout, Plan, flat, plan, rhs, run, word_of
from dmlcpu.products.quantization import check_scale
from dmlcpu.runtime import threads
from dmlcpu.runtime.memory import packed_strides

# In the kernels' order; a desc need not have all of them.
_PARAMETERS = (
    "a_scale_tensor",
    "a_zero_point_tensor",
    "b_scale_tensor",
    "b_zero_point_tensor",
    "output_scale_tensor",
    "output_zero_point_tensor",
)
_NOT_YET = np.empty(0, np.uint8)

Parameters = list[Array | None]  # two-dimensional, in the kernels' order


class ProductDesc(OperatorDesc):
    """The base of descs of products: sizes, how tensors are bound to kernels, and B packed once if it is owned."""

    __slots__ = ()
    KERNELS: ClassVar[str]  # the operator that the registry lists them under
    POSITIVE: ClassVar[tuple[str, ...]] = ()  # scales that have to be positive and finite

    a_tensor: TensorDesc
    b_tensor: TensorDesc
    output_tensor: TensorDesc

    def _multiply(self, a: Array, b: Array | PackedMatrix, parameters: Parameters, out: Array) -> None:
        """Multiply arrays that fit."""
        raise NotImplementedError

    def _check_product(self) -> None:
        a, b, y = self.a_tensor, self.b_tensor, self.output_tensor
        check_range(self.operator, "ATensor.DimensionCount", a.dimension_count, 2, 8)
        self._check_same_count("BTensor", b, "ATensor", a)
        self._check_same_count("OutputTensor", y, "ATensor", a)
        *batch, M, K = a.sizes
        N = b.sizes[-1]
        self._check_sizes("BTensor", b, (*batch, K, N), "{..., K, N}, ATensor being {..., M, K}")
        self._check_sizes("OutputTensor", y, (*batch, M, N), "{..., M, N}")

    def _check_rows(self, field: str, tensor: TensorDesc) -> None:
        self._check_values(field, tensor, (self.a_tensor.sizes[-2], 1), "one for each row")

    def _check_columns(self, field: str, tensor: TensorDesc) -> None:
        self._check_values(field, tensor, (self.b_tensor.sizes[-1],), "one for each column")

    def _check_values(self, field: str, tensor: TensorDesc, per: tuple[int, ...], meaning: str) -> None:
        D = tensor.dimension_count
        one = (1,) * D
        each = (1,) * (D - len(per)) + per
        if tensor.sizes == one or tensor.sizes == each:
            return
        allowed = f"{one}, or {each} ({meaning})" if len(each) == D and each != one else f"{one}"
        raise InvalidDescriptorError(self.operator, f"{field}.Sizes", str(tensor.sizes), allowed)

    def _check_zero_points(self) -> None:
        for of, check in (("a", self._check_rows), ("b", self._check_columns), ("output", self._check_rows)):
            zero_point = getattr(self, f"{of}_zero_point_tensor", None)
            if zero_point is not None:
                field, tensor = dml_name(f"{of}_zero_point_tensor"), f"{of}_tensor"
                check(field, zero_point)
                self._check_same_type(field, zero_point, dml_name(tensor), getattr(self, tensor))

    def _keep(self, name: str, array: Array) -> Any:
        if name in self.POSITIVE:
            check_scale(self.operator, dml_name(name), array)
        return pack_b(array) if name == "b_tensor" else array.copy()

    def _make_run(self, owned: Bound) -> Run:
        views = {name: _as_matrix(getattr(self, name, None)) for name in _PARAMETERS}
        plan_within, given = self._packed_product(owned)
        tensors = {field.name: tensor for field, tensor in self.tensors() if field.name not in owned}
        words = {name: word_of(tensor.dtype) for name, tensor in tensors.items()}
        scales = [name for name in self.POSITIVE if name not in owned]
        arrays, places = list(given.values()), [list(given).index(name) for name in words]

        def check(bound: Bound) -> None:
            for name in scales:
                check_scale(self.operator, dml_name(name), bound[name])

        def general(bound: Bound) -> Array:
            check(bound)
            matrices = [view(bound[name]) if name in bound else None for name, view in views.items()]
            out: Array = bound["output_tensor"]
            self._multiply(bound["a_tensor"], bound["b_tensor"], matrices, out)
            return out

        def packed(bound: Bound, words: list[Array]) -> Array:
            check(bound)
            mine = arrays.copy()
            for place, array in zip(places, words, strict=True):
                mine[place] = array
            run(plan_within(threads.budget()), *mine)
            out: Array = bound["output_tensor"]
            return out

        return Run(general, words, packed)

    def _packed_product(self, owned: Bound) -> tuple[Callable[[threads.Budget], Plan], Bound]:
        """Return what plans a product of packed tensors, and what its kernel is given, as far as that is known."""
        tensors = (self.a_tensor, self.b_tensor, self.output_tensor)
        layouts = [Layout(each.sizes, packed_strides(each.sizes, each.dtype.itemsize), each.dtype) for each in tensors]
        parameters = {name: getattr(self, name, None) for name in _PARAMETERS}
        sizes = tuple([None if tensor is None else (1, *tensor.sizes)[-2:] for tensor in parameters.values()])
        b = owned.get("b_tensor")
        b_layout = ROWS if b is None else b.layout

        @functools.lru_cache(maxsize=8)
        def plan_within(budget: threads.Budget) -> Plan:
            return plan(self.KERNELS, *layouts, sizes, b_layout, budget)

        names, panels = ("b_tensor", "panels", "sums"), rhs(_NOT_YET if b is None else b)
        given = {"a_tensor": flat(owned.get("a_tensor")), **dict(zip(names, panels, strict=True))}
        given |= {name: flat(owned.get(name)) for name in parameters}
        return plan_within, {**given, "output_tensor": _NOT_YET}


def _as_matrix(tensor: TensorDesc | None) -> View:
    """Return what makes a tensor of scales or zero points two-dimensional."""
    if tensor is None or tensor.dimension_count == 1:
        return itemgetter((np.newaxis, ...))
    return without_leading(tensor.dimension_count - 2)
