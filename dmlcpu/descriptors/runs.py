"""How the tensors bound to each operator become the arguments of its `execute`."""

import functools
import math
from collections.abc import Callable
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from dmlcpu.descriptors.base import OperatorDesc
from dmlcpu.descriptors.quantized_linear_matrix_multiply import QuantizedLinearMatrixMultiplyOperatorDesc
from dmlcpu.descriptors.scatter_nd import ScatterNDOperatorDesc
from dmlcpu.descriptors.tensor import TensorDesc
from dmlcpu.descriptors.top_k1 import TopK1OperatorDesc, TopKOperatorDesc
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
from dmlcpu.runtime.memory import packed_strides
from dmlcpu.runtime.threads import Budget, budget

Bound = dict[str, Any]  # tensor name -> array; for an owned B, the packed matrix
Run = Callable[[Bound], Any]
View = Callable[[Array], Array]


class PackedRun(NamedTuple):
    """How an operator runs on tensors that are packed in memory of their own."""

    words: dict[str, np.dtype[Any]]  # what its kernel sees each tensor as
    run: Callable[[Bound, list[Array]], Any]  # on what is bound, and the words of each


def make_packed_run(desc: OperatorDesc, owned: Bound) -> PackedRun | None:
    """Return the shortest way to run a desc's operator on tensors that are not `owned`, if it has one."""
    if isinstance(desc, QuantizedLinearMatrixMultiplyOperatorDesc):
        return _packed_quantized_matmul(desc, owned)
    if owned:
        return None
    if isinstance(desc, TopKOperatorDesc | TopK1OperatorDesc):
        return _packed_top_k(desc)
    return _packed_scatter_nd(desc) if isinstance(desc, ScatterNDOperatorDesc) else None


def _packed_top_k(desc: TopKOperatorDesc | TopK1OperatorDesc) -> PackedRun:
    x, values, indices = desc.input_tensor, desc.output_value_tensor, desc.output_index_tensor
    word = np.dtype(f"u{x.dtype.itemsize}")
    strides = tuple([packed_strides(tensor.sizes, tensor.dtype.itemsize) for tensor in (x, values, indices)])
    request = (x.sizes, x.dtype, desc.axis, desc.k, desc.largest, indices.dtype.itemsize, strides)

    @functools.lru_cache(maxsize=8)
    def plan(limits: Budget) -> TopKPlan:
        return plan_top_k(*request, limits, None, True)

    def run(bound: Bound, words: list[Array]) -> TopK:
        run_top_k(plan(budget()), *words)
        return TopK(bound["output_value_tensor"], bound["output_index_tensor"])

    return PackedRun({"input_tensor": word, "output_value_tensor": word, "output_index_tensor": INDEX_WORD}, run)


def _packed_scatter_nd(desc: ScatterNDOperatorDesc) -> PackedRun:
    D, dtype, index_type = desc.input_tensor.dimension_count, desc.input_tensor.dtype, desc.indices_tensor.dtype
    shape, indices_shape = desc.input_shape, desc.indices_shape
    drop_indices = _drop(D - desc.indices_dimension_count)
    word = np.dtype(f"u{dtype.itemsize}")
    strides = (
        _packed_strides(shape, dtype),
        _packed_strides(indices_shape, index_type),
        _packed_strides(desc.updates_shape, dtype),
    )
    request = (shape, dtype, word, indices_shape, index_type, strides, "none", "raise", BY_KERNEL)

    @functools.lru_cache(maxsize=8)
    def plan(limits: Budget) -> ScatterNDPlan:
        return plan_scatter_nd(*request, limits)

    def run(bound: Bound, words: list[Array]) -> Array:
        place = run_scatter_nd(plan(budget()), *words)
        if place != VALID:
            indices = drop_indices(bound["indices_tensor"])
            raise out_of_range(indices, place, shape, desc.operator, "IndicesTensor")
        out: Array = bound["output_tensor"]
        return out

    words = {"input_tensor": word, "indices_tensor": SCATTER_INDEX_WORD, "updates_tensor": word, "output_tensor": word}
    return PackedRun(words, run)


def _packed_quantized_matmul(desc: QuantizedLinearMatrixMultiplyOperatorDesc, owned: Bound) -> PackedRun:
    parameters = {name: getattr(desc, name) for name in _PARAMETERS}
    sizes = [None if tensor is None else (1, *tensor.sizes)[-2:] for tensor in parameters.values()]
    a, b, y = [
        Layout(tensor.sizes, _packed_strides(tensor.sizes, tensor.dtype), tensor.dtype)
        for tensor in (desc.a_tensor, desc.b_tensor, desc.output_tensor)
    ]
    owns_b = "b_tensor" in owned
    # What the kernel is given: some of it is known already, the rest is bound by each call.
    matrix = rhs(owned["b_tensor"] if owns_b else _NOT_YET)
    given = {"a_tensor": flat(owned.get("a_tensor")), **dict(zip(("b_tensor", "panels", "sums"), matrix, strict=True))}
    given |= {name: flat(owned.get(name)) for name in parameters}
    given["output_tensor"] = _NOT_YET
    tensors = {field.name: tensor for field, tensor in desc.tensors() if field.name not in owned}
    words = {name: tensor.dtype if name in _SCALES else _BYTE for name, tensor in tensors.items()}
    arrays, places = list(given.values()), [list(given).index(name) for name in words]
    unchecked = [(name, field) for name, field in _SCALES.items() if name in words]
    operator = desc.operator

    @functools.lru_cache(maxsize=8)
    def plan(limits: Budget) -> QuantizedMatmulPlan:
        return plan_product("quantized_matmul", a, b, y, tuple(sizes), owns_b, limits, None)

    def run(bound: Bound, words: list[Array]) -> Array:
        for name, field in unchecked:
            check_scale(operator, field, bound[name])
        mine = arrays.copy()
        for place, array in zip(places, words, strict=True):
            mine[place] = array
        run_quantized_matmul(plan(budget()), *mine)
        out: Array = bound["output_tensor"]
        return out

    return PackedRun(words, run)


def _packed_strides(sizes: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[int, ...]:
    """Return the strides of a packed array, in bytes."""
    return tuple(math.prod(sizes[d + 1 :]) * dtype.itemsize for d in range(len(sizes)))


def make_run(desc: OperatorDesc) -> Run:
    """Return the function that runs a desc's operator on its bound tensors, and returns the outputs."""
    return _RUNS[type(desc)](desc)


def keep(operator: str, name: str, array: Array) -> Any:
    """Return an operator's own copy of an owned tensor, in the form its `execute` works with best."""
    if name in _SCALES:
        check_scale(operator, _SCALES[name], array)
    return pack_b(array) if name == "b_tensor" else array.copy()


def _run_top_k(desc: TopKOperatorDesc | TopK1OperatorDesc) -> Run:
    k, axis, largest = desc.k, desc.axis, desc.largest

    def run(bound: Bound) -> TopK:
        values, indices = bound["output_value_tensor"], bound["output_index_tensor"]
        execute_top_k(bound["input_tensor"], k, axis, largest, values, indices)
        return TopK(values, indices)

    return run


def _run_scatter_nd(desc: ScatterNDOperatorDesc) -> Run:
    D = desc.input_tensor.dimension_count
    drop_input = _drop(D - desc.input_dimension_count)
    drop_indices = _drop(D - desc.indices_dimension_count)
    drop_updates = _drop(D - len(desc.updates_shape))
    operator = desc.operator

    def run(bound: Bound) -> Array:
        x, output = bound["input_tensor"], bound["output_tensor"]
        out = drop_input(output)
        execute_scatter_nd(
            out if x is output else drop_input(x),
            drop_indices(bound["indices_tensor"]),
            drop_updates(bound["updates_tensor"]),
            out,
            operator=operator,
            field="IndicesTensor",
        )
        result: Array = output
        return result

    return run


def _drop(leading: int) -> View:
    """Return what drops so many leading dimensions, which are 1 and do not count."""
    return itemgetter((0,) * leading + (...,)) if leading else _as_it_is


def _as_it_is(array: Array) -> Array:
    return array


def _run_quantized_matmul(desc: QuantizedLinearMatrixMultiplyOperatorDesc) -> Run:
    operator = desc.operator
    a_scale = _as_matrix(desc.a_scale_tensor)
    b_scale = _as_matrix(desc.b_scale_tensor)
    y_scale = _as_matrix(desc.output_scale_tensor)
    zero_points = [
        (name, _as_matrix(tensor))
        for name, tensor in (
            ("a_zero_point_tensor", desc.a_zero_point_tensor),
            ("b_zero_point_tensor", desc.b_zero_point_tensor),
            ("output_zero_point_tensor", desc.output_zero_point_tensor),
        )
    ]

    def run(bound: Bound) -> Array:
        for name, field in _SCALES.items():
            check_scale(operator, field, bound[name])
        a_zero_point, b_zero_point, y_zero_point = [
            view(bound[name]) if name in bound else None for name, view in zero_points
        ]
        out: Array = bound["output_tensor"]
        execute_quantized_matmul(
            bound["a_tensor"],
            a_scale(bound["a_scale_tensor"]),
            a_zero_point,
            bound["b_tensor"],
            b_scale(bound["b_scale_tensor"]),
            b_zero_point,
            y_scale(bound["output_scale_tensor"]),
            y_zero_point,
            out,
        )
        return out

    return run


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


_RUNS: dict[type[OperatorDesc], Callable[[Any], Run]] = {
    TopKOperatorDesc: _run_top_k,
    TopK1OperatorDesc: _run_top_k,
    ScatterNDOperatorDesc: _run_scatter_nd,
    QuantizedLinearMatrixMultiplyOperatorDesc: _run_quantized_matmul,
}
