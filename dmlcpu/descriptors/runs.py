"""How each operator runs on the tensors that are bound to it."""

import functools
from collections.abc import Callable
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from dmlcpu.descriptors.base import OperatorDesc
from dmlcpu.descriptors.quantized_linear_matrix_multiply import QuantizedLinearMatrixMultiplyOperatorDesc
from dmlcpu.descriptors.scatter_nd import ScatterNDOperatorDesc
from dmlcpu.descriptors.tensor import TensorDesc
from dmlcpu.descriptors.top_k1 import TopK1OperatorDesc, TopKOperatorDesc
from dmlcpu.kernels.registry import ROWS
from dmlcpu.kernels.scatter_nd.work import VALID
from dmlcpu.operators import TopK, pack_b
from dmlcpu.operators.arguments import Array
from dmlcpu.operators.product_plan import Layout, Plan as QuantizedMatmulPlan, plan as plan_product
from dmlcpu.operators.quantization import check_scale
from dmlcpu.operators.quantized_matmul import (
    execute as execute_quantized_matmul,
    flat,
    rhs,
    run as run_quantized_matmul,
)
from dmlcpu.operators.scatter_layout import INDEX_WORD as SCATTER_INDEX_WORD
from dmlcpu.operators.scatter_nd import (
    execute as execute_scatter_nd,
    out_of_range,
    run as run_scatter_nd,
)
from dmlcpu.operators.scatter_plan import (
    BY_KERNEL,
    Plan as ScatterNDPlan,
    plan as plan_scatter_nd,
)
from dmlcpu.operators.top_k import (
    INDEX_WORD,
    Plan as TopKPlan,
    execute as execute_top_k,
    plan as plan_top_k,
    run as run_top_k,
)
from dmlcpu.runtime import threads
from dmlcpu.runtime.memory import packed_strides
from dmlcpu.runtime.threads import Budget

Bound = dict[str, Any]  # tensor name -> array; for an owned B, the packed matrix
View = Callable[[Array], Array]


class Run(NamedTuple):
    """How an operator runs: on tensors however they lie, and on tensors that are packed in memory of their own.

    Of the latter nothing has to be viewed, checked or planned.
    """

    general: Callable[[Bound], Any]
    words: dict[str, np.dtype[Any]]  # what the kernels see packed tensors as; none: they have no way of their own
    packed: Callable[[Bound, list[Array]], Any] | None  # on what is bound, and the words of each


def make_run(desc: OperatorDesc, owned: Bound) -> Run:
    """Return how a desc's operator runs when it owns some of the tensors already."""
    return _RUNS[type(desc)](desc, owned)


def keep(operator: str, name: str, array: Array) -> Any:
    """Return an operator's own copy of an owned tensor, in the form its `execute` works with best."""
    if name in _SCALES:
        check_scale(operator, _SCALES[name], array)
    return pack_b(array) if name == "b_tensor" else array.copy()


def _run_top_k(desc: TopKOperatorDesc | TopK1OperatorDesc, owned: Bound) -> Run:
    tensors = (desc.input_tensor, desc.output_value_tensor, desc.output_index_tensor)
    dtype, index_width = desc.input_tensor.dtype, desc.output_index_tensor.dtype.itemsize
    strides = tuple([packed_strides(tensor.sizes, tensor.dtype.itemsize) for tensor in tensors])
    request = (desc.input_tensor.sizes, dtype, desc.axis, desc.k, desc.largest, index_width, strides)

    @functools.lru_cache(maxsize=8)
    def plan(budget: Budget) -> TopKPlan:
        return plan_top_k(*request, budget, None, True)

    def outputs(bound: Bound) -> TopK:
        return TopK(bound["output_value_tensor"], bound["output_index_tensor"])

    def general(bound: Bound) -> TopK:
        execute_top_k(bound["input_tensor"], desc.k, desc.axis, desc.largest, *outputs(bound))
        return outputs(bound)

    def packed(bound: Bound, words: list[Array]) -> TopK:
        run_top_k(plan(threads.budget()), *words)
        return outputs(bound)

    word = np.dtype(f"u{dtype.itemsize}")
    words = {"input_tensor": word, "output_value_tensor": word, "output_index_tensor": INDEX_WORD}
    return Run(general, {}, None) if owned else Run(general, words, packed)


def _run_scatter_nd(desc: ScatterNDOperatorDesc, owned: Bound) -> Run:
    D, dtype, index_type = desc.input_tensor.dimension_count, desc.input_tensor.dtype, desc.indices_tensor.dtype
    shape, indices_shape, updates_shape = desc.input_shape, desc.indices_shape, desc.updates_shape
    drop_input, drop_updates = _drop(D - len(shape)), _drop(D - len(updates_shape))
    drop_indices = _drop(D - len(indices_shape))
    word = np.dtype(f"u{dtype.itemsize}")
    widths = (dtype.itemsize, index_type.itemsize, dtype.itemsize)
    strides = tuple(map(packed_strides, (shape, indices_shape, updates_shape), widths))
    request = (shape, dtype, word, indices_shape, index_type, strides, "none", "raise", BY_KERNEL)

    @functools.lru_cache(maxsize=8)
    def plan(budget: Budget) -> ScatterNDPlan:
        return plan_scatter_nd(*request, budget)

    def general(bound: Bound) -> Array:
        x, output = bound["input_tensor"], bound["output_tensor"]
        out = drop_input(output)
        x = out if x is output else drop_input(x)
        indices, updates = drop_indices(bound["indices_tensor"]), drop_updates(bound["updates_tensor"])
        execute_scatter_nd(x, indices, updates, out, operator=desc.operator, field="IndicesTensor")
        result: Array = output
        return result

    def packed(bound: Bound, words: list[Array]) -> Array:
        place = run_scatter_nd(plan(threads.budget()), *words)
        if place != VALID:
            indices = drop_indices(bound["indices_tensor"])
            raise out_of_range(indices, place, shape, desc.operator, "IndicesTensor")
        out: Array = bound["output_tensor"]
        return out

    words = {"input_tensor": word, "indices_tensor": SCATTER_INDEX_WORD, "updates_tensor": word, "output_tensor": word}
    return Run(general, {}, None) if owned else Run(general, words, packed)


def _drop(leading: int) -> View:
    """Return what drops so many leading dimensions, which are 1 and do not count."""
    return itemgetter((0,) * leading + (...,)) if leading else _as_it_is


def _as_it_is(array: Array) -> Array:
    return array


def _run_quantized_matmul(desc: QuantizedLinearMatrixMultiplyOperatorDesc, owned: Bound) -> Run:
    views = {name: _as_matrix(getattr(desc, name)) for name in _PARAMETERS}
    plan, given = _packed_product(desc, owned)
    tensors = {field.name: tensor for field, tensor in desc.tensors() if field.name not in owned}
    words = {name: tensor.dtype if name in _SCALES else _BYTE for name, tensor in tensors.items()}
    arrays, places = list(given.values()), [list(given).index(name) for name in words]

    def check(bound: Bound) -> None:
        for name, field in _SCALES.items():
            if name not in owned:
                check_scale(desc.operator, field, bound[name])

    def general(bound: Bound) -> Array:
        check(bound)
        matrices = {name: view(bound[name]) if name in bound else None for name, view in views.items()}
        a_scale, a_zero_point, b_scale, b_zero_point, y_scale, y_zero_point = matrices.values()
        out: Array = bound["output_tensor"]
        operands = (bound["a_tensor"], a_scale, a_zero_point, bound["b_tensor"], b_scale, b_zero_point)
        execute_quantized_matmul(*operands, y_scale, y_zero_point, out)  # type: ignore[arg-type]  # all scales are bound
        return out

    def packed(bound: Bound, words: list[Array]) -> Array:
        check(bound)
        mine = arrays.copy()
        for place, array in zip(places, words, strict=True):
            mine[place] = array
        run_quantized_matmul(plan(threads.budget()), *mine)
        out: Array = bound["output_tensor"]
        return out

    return Run(general, words, packed)


def _packed_product(
    desc: QuantizedLinearMatrixMultiplyOperatorDesc, owned: Bound
) -> tuple[Callable[[Budget], QuantizedMatmulPlan], Bound]:
    """Return what plans a product of packed tensors, and what its kernel is given, as far as that is known already."""
    tensors = (desc.a_tensor, desc.b_tensor, desc.output_tensor)
    layouts = [Layout(each.sizes, packed_strides(each.sizes, each.dtype.itemsize), each.dtype) for each in tensors]
    parameters = {name: getattr(desc, name) for name in _PARAMETERS}
    sizes = tuple([None if tensor is None else (1, *tensor.sizes)[-2:] for tensor in parameters.values()])
    b = owned.get("b_tensor")
    b_layout = ROWS if b is None else b.layout

    @functools.lru_cache(maxsize=8)
    def plan(budget: Budget) -> QuantizedMatmulPlan:
        return plan_product("quantized_matmul", *layouts, sizes, b_layout, budget, None)

    panels = rhs(_NOT_YET if b is None else b)
    given = {"a_tensor": flat(owned.get("a_tensor")), **dict(zip(("b_tensor", "panels", "sums"), panels, strict=True))}
    given |= {name: flat(owned.get(name)) for name in parameters}
    return plan, {**given, "output_tensor": _NOT_YET}


_BYTE = np.dtype(np.uint8)
_NOT_YET = np.empty(0, np.uint8)
_PARAMETERS = (
    "a_scale_tensor",
    "a_zero_point_tensor",
    "b_scale_tensor",
    "b_zero_point_tensor",
    "output_scale_tensor",
    "output_zero_point_tensor",
)
_SCALES = {
    "a_scale_tensor": "AScaleTensor",
    "b_scale_tensor": "BScaleTensor",
    "output_scale_tensor": "OutputScaleTensor",
}


def _as_matrix(tensor: TensorDesc | None) -> View:
    """Return what makes a tensor of scales or zero points two-dimensional."""
    if tensor is None or tensor.dimension_count == 1:
        return itemgetter((np.newaxis, ...))
    return _drop(tensor.dimension_count - 2)


_RUNS: dict[type[OperatorDesc], Callable[[Any, Bound], Run]] = {
    TopKOperatorDesc: _run_top_k,
    TopK1OperatorDesc: _run_top_k,
    ScatterNDOperatorDesc: _run_scatter_nd,
    QuantizedLinearMatrixMultiplyOperatorDesc: _run_quantized_matmul,
}
