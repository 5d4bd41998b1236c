"""What the descs of products of 8-bit matrices share: A, B, Output, and what A's rows and B's columns have."""

from collections.abc import Callable
from functools import lru_cache, partial
from math import inf
from operator import itemgetter
from typing import Any, ClassVar

import numpy as np

from dmlcpu.common.arguments import Array
from dmlcpu.common.bound import Steps
from dmlcpu.directml.base import Bound, OperatorDesc, Packed, Run, View, dml_name, without_leading
from dmlcpu.directml.checks import check_range
from dmlcpu.directml.enums import TensorDataType
from dmlcpu.directml.tensor import TensorDesc
from dmlcpu.kernels.scales import are_positive
from dmlcpu.products.operands import OPERANDS, PARAMETERS, Call, execute
from dmlcpu.products.packing import pack_b
from dmlcpu.products.plan import NO_BIAS, Layout, Plan, flat, form_of, plan, rhs, run, steps as plan_steps, word_of
from dmlcpu.products.quantization import check_scale
from dmlcpu.runtime import threads
from dmlcpu.runtime.memory import packed_strides
from dmlcpu.runtime.threads import Budget

_NOT_YET = np.empty(0, np.uint8)
# The desc's fields by the operands of `Call`; a desc need not have all of them.
_FIELDS = {operand: f"{operand.replace('y_', 'output_')}_tensor" for operand in (*OPERANDS, "bias")}


class ProductDesc(OperatorDesc[Array]):
    """The base of descs of products: sizes, how tensors are bound to kernels, and B packed once if it is owned."""

    __slots__ = ()
    KERNELS: ClassVar[str]  # the operator whose kernels multiply
    POSITIVE: ClassVar[tuple[str, ...]] = ()  # scales that have to be positive and finite

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
        self._check_sizes("BTensor", b, (*batch, K, N), "{..., K, N}, ATensor being {..., M, K}")
        self._check_sizes("OutputTensor", y, (*batch, M, N), "{..., M, N}")
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

    def _make_run(self, owned: Bound) -> Run:
        plan_within, given = self._plan_within(owned), self._given(owned)
        words = {field.name: word_of(tensor.dtype) for field, tensor in self.tensors() if field.name not in owned}
        names, arrays = list(given), list(given.values())
        places = [names.index(name) for name in words]
        scales = [(name, names.index(name)) for name in self.POSITIVE if name not in owned]

        def given_with(words: list[Array]) -> list[Array]:
            mine = arrays.copy()
            for place, array in zip(places, words, strict=True):
                mine[place] = array
            return mine

        def check_words(bound: Bound, mine: list[Array]) -> None:
            for name, place in scales:
                scale = mine[place]
                if not (0 < scale.item() < inf if scale.size == 1 else are_positive(scale)):
                    check_scale(self.operator, dml_name(name), bound[name])

        def packed(bound: Bound, words: list[Array]) -> None:
            mine = given_with(words)
            check_words(bound, mine)
            run(threads.plan_for_now(plan_within), *mine)

        def steps(bound: Bound, words: list[Array]) -> Steps:
            mine = given_with(words)
            check_mine = partial(check_words, bound, mine) if scales else None
            return plan_steps(plan_within, check_mine, [mine[place] for _, place in scales], *mine)

        general = self._general(owned, [name for name, _ in scales])
        if any(tensor.data_type is TensorDataType.FLOAT16 for _, tensor in self.tensors()):
            return Run(general)  # kernels read float32 only
        return Run(general, Packed(words, packed, itemgetter("output_tensor"), steps))

    def _general(self, owned: Bound, scales: list[str]) -> Callable[[Bound], Array]:
        """Return how it runs on any tensors. scales: those that each call checks."""
        views = {name: _view(getattr(self, name, None), operand) for operand, name in _FIELDS.items()}
        known = [view(owned[name]) if name in owned else None for name, view in views.items()]
        asked = [
            (place, name, view)
            for place, (name, view) in enumerate(views.items())
            if getattr(self, name, None) and name not in owned
        ]

        def general(bound: Bound) -> Array:
            for name in scales:
                check_scale(self.operator, dml_name(name), bound[name])
            operands = known.copy()
            for place, name, view in asked:
                operands[place] = view(bound[name])
            out: Array = bound["output_tensor"]
            execute(Call._make([self.KERNELS, *operands, out.dtype, out.shape, out.shape]), out)
            return out

        return general

    def _plan_within(self, owned: Bound) -> Callable[[Budget], Plan]:
        """Return what plans it on packed tensors."""
        tensors = (self.a_tensor, self.b_tensor, self.output_tensor)
        layouts = [Layout(each.sizes, packed_strides(each.sizes, each.dtype.itemsize), each.dtype) for each in tensors]
        parameters = [getattr(self, _FIELDS[operand], None) for operand in PARAMETERS]
        sizes = tuple([None if tensor is None else (1, *tensor.sizes)[-2:] for tensor in parameters])
        bias, form = None, form_of(owned.get("b_tensor"))
        if getattr(self, "bias_tensor", None):
            bias = Layout(layouts[-1].shape, packed_strides(layouts[-1].shape, 4), np.dtype(np.float32))
        return lru_cache(maxsize=8)(partial(plan, self.KERNELS, *layouts, sizes, bias, *form))

    def _given(self, owned: Bound) -> Bound:
        """Return what the kernel is given, in its order, as far as that is known before a call."""
        names, panels = ("b_tensor", "panels", "sums"), rhs(owned.get("b_tensor", _NOT_YET))
        given = {"a_tensor": flat(owned.get("a_tensor")), **dict(zip(names, panels, strict=True))}
        given |= {_FIELDS[operand]: flat(owned.get(_FIELDS[operand])) for operand in PARAMETERS}
        bias = owned.get("bias_tensor")
        return {**given, "bias_tensor": NO_BIAS if bias is None else flat(bias), "output_tensor": _NOT_YET}


def _view(tensor: TensorDesc | None, operand: str) -> View:
    """Return what makes matrices of scales and zero points; a and b have their dimensions."""
    return without_leading(0) if tensor is None or operand not in PARAMETERS else matrices_of(tensor)


def matrices_of(tensor: TensorDesc) -> View:
    """Return what makes matrices of scales, as float32, or zero points."""
    missing = tensor.dimension_count == 1
    view = itemgetter((np.newaxis, ...)) if missing else without_leading(tensor.dimension_count - 2)
    if tensor.data_type is not TensorDataType.FLOAT16:
        return view
    with_errors = np.errstate(invalid="ignore")  # NumPy reports a signalling NaN
    return with_errors(lambda array: view(array).astype(np.float32))
