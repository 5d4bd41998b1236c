"""Which nodes these kernels take: what ONNX Runtime computes wrongly, and what makes the whole model faster."""

import math
import os
import platform
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from dmlcpu.errors import BindingError
from dmlcpu.interop.onnx.costs import cost_of_cut
from dmlcpu.interop.onnx.cut import cut
from dmlcpu.interop.onnx.graphs import NAME, attribute, bodies, constants_of, model_nodes, name_of, reads, result_of
from dmlcpu.interop.onnx.loading import Source
from dmlcpu.interop.onnx.ops import BY_NAME
from dmlcpu.interop.onnx.runtime import NUMBERS
from dmlcpu.kernels.gemm.table import TARGETS
from dmlcpu.runtime.isa import Isa, allowed, detected

PRODUCTS = {name: operator.B for name, operator in BY_NAME.items() if operator.B}
TAKEN = {"TopK", "ScatterND", "ScatterElements", "Scatter", *PRODUCTS}

AUTO, ALL = "auto", "all"
_UNKNOWN = onnx.TypeProto()
_SIZES = 1, 256  # what a size that the model leaves open may be: the choice has to pay with each of them
_MARGIN = 2  # the gain has to be this many times what the cuts take: estimates hold within a factor of 2
_VNNI = {Isa.AVXVNNI, Isa.AVX512VNNI, Isa.AMX}
_LONG_ROW = 512  # elements of a row from which TopK gains
_RACES = 1024  # elements from which ONNX Runtime may reduce on several threads

# In nanoseconds, of ONNX Runtime 1.32 less these kernels, on one thread (Zen 3): int8 by int8 for an element of B and
# for a product; a scale for each column, for an element of the result; an element that TopK reads; one that
# ScatterElements writes. ONNX Runtime scatters on one thread; other gains are divided by the number of threads.
_OF_B, _OF_PRODUCT, _OF_COLUMN, _OF_TOP_K, _OF_ELEMENT = 1.2, 0.06, 1.0, 0.8, 10.0
_NEVER_SATURATING = "ConvInteger", "Gather"
_ZERO_POINTS = {"QLinearMatMul": 2, "QLinearConv": 2, "QGemm": 2, "MatMulInteger": 2}  # their types are those of A
_ZERO_POINTS |= {"MatMulIntegerToFloat": 4, "QAttention": 6}
_MOST = 128  # of the sum of two int8, whose products by 255 then fit in 16 bits
_CALL = 5_000  # and what calling a kernel takes


class Wanted(NamedTuple):
    """What a caller of `prepare` asks for."""

    take: str | Sequence[str] = AUTO
    qdq: bool = False
    exact: bool = True


class Values:
    """The types, shapes and constants of a graph's values; joined: results of products that were floats."""

    def __init__(self, graph: onnx.GraphProto, types: Mapping[str, onnx.TypeProto], joined: set[str]) -> None:
        self.graph, self.constants, self.joined, self._types = graph, constants_of(graph), joined, types

    def dtype(self, name: str) -> int:
        """Return the type of a tensor's elements; 0 if it is not known."""
        return int(self._types.get(name, _UNKNOWN).tensor_type.elem_type)

    def shape(self, name: str, size: int) -> tuple[int, ...] | None:
        """Return a tensor's shape, with a size for dimensions that the model leaves open; None if it has none."""
        tensor = self._types.get(name, _UNKNOWN).tensor_type
        return tuple(max(each.dim_value, 0) or size for each in tensor.shape.dim) if tensor.HasField("shape") else None

    def elements(self, name: str, size: int) -> int:
        """Return the number of a tensor's elements."""
        shape = self.shape(name, size)
        return size if shape is None else math.prod(shape)


def candidates(values: Values) -> list[onnx.NodeProto]:
    """Return the nodes that these kernels can run: of numbers that NumPy has."""
    return [node for node in values.graph.node if name_of(node) in TAKEN and values.dtype(node.input[0]) in NUMBERS]


def chosen(values: Values, wanted: Wanted, threads: int) -> set[str]:
    """Return the nodes that these kernels run, by their results."""
    graph, able, take = values.graph, {result_of(node): node for node in candidates(values)}, wanted.take
    if take == ALL:
        taken = {*able}
    elif take == AUTO:
        must = {name for name, node in able.items() if _is_needed(node, values, threads, exact=wanted.exact)}
        taken = _paying(values, able, must, threads)
    else:
        taken = {name for name, node in able.items() if not {node.name, name}.isdisjoint(take)}
        known = taken | {able[name].name for name in taken}
        for name in take:
            if name not in known:
                names = ", ".join(node.name or result for result, node in able.items())
                raise BindingError(NAME, "take", repr(name), names or "nothing: the model has no such nodes")
    if not taken:
        return taken
    left = {name for node in graph.node if result_of(node) not in taken for name in reads(node)}
    left |= {each.name for each in graph.output}
    dynamic = [node for node in graph.node if name_of(node) == "DynamicQuantizeLinear"]
    return taken | {result_of(node) for node in dynamic if left.isdisjoint(node.output)}


def _paying(values: Values, able: dict[str, onnx.NodeProto], must: set[str], threads: int) -> set[str]:
    """Return what must be taken and the nodes that make the whole model faster."""
    threads = min(threads, os.cpu_count() or 1)  # more of them gain nothing
    gains = {name: [_gain(able[name], values, size, threads) for size in _SIZES] for name in able.keys() - must}
    gains = {name: each for name, each in gains.items() if min(each) > 0}
    if not gains:
        return must
    cost, least = cost_of_cut(threads), _sessions(values, must) if must else 0
    large = {name for name, each in gains.items() if min(each) > 2 * _MARGIN * cost}  # each pays for two cuts
    for taken in ({*gains}, large):
        more = max(_sessions(values, must | taken) - least, 0)
        if taken and all(sum(each) > _MARGIN * cost * more for each in zip(*[gains[x] for x in taken], strict=True)):
            return must | taken
    return must


def _sessions(values: Values, taken: set[str]) -> int:
    """Return how many sessions ONNX Runtime has if these nodes are taken."""
    parts = cut(values.graph, values.constants, lambda node: result_of(node) in taken)
    return sum(not part.is_ours for part in parts)


def _is_needed(node: onnx.NodeProto, values: Values, threads: int, *, exact: bool) -> bool:
    """Return whether ONNX Runtime has no fast kernel for a node, or, if exact, computes it wrongly in any setting."""
    name = name_of(node)
    if name == "ScatterND":  # threads that reduce into one place lose updates
        is_reduction = attribute(node, "reduction", b"none") != b"none"
        return exact and is_reduction and threads > 1 and values.elements(node.input[2], _SIZES[-1]) >= _RACES
    if name not in PRODUCTS:
        return False
    b = node.input[PRODUCTS[name]]
    types = values.dtype(node.input[0]), values.dtype(b)
    if types == (TensorProto.INT8, TensorProto.UINT8):
        return True
    is_mixed = types[0] != TensorProto.INT8 and types[1] == TensorProto.INT8  # floats are quantized to uint8
    return exact and is_mixed and b not in values.constants and saturates()


def saturates() -> bool:
    """Return whether this processor lacks the instruction that adds products of uint8 by int8 in 32 bits."""
    return platform.machine() in ("x86_64", "AMD64") and not detected() & _VNNI


def saturating(source: Source) -> set[str]:
    """Return the int8 weights of which two products by uint8 can leave 16 bits, in which ONNX Runtime adds them."""
    if not saturates():
        return set()
    nodes = [*model_nodes(source.proto)]
    graphs = [source.proto.graph, *(body for node in nodes for body in bodies(node))]
    tensors = [(each.name, each) for graph in graphs for each in graph.initializer]
    tensors += [(node.output[0], each.t) for node in nodes if node.op_type == "Constant" for each in node.attribute]
    types = {name: tensor.data_type for name, tensor in tensors}
    read: set[str] = set()
    for node in nodes:
        place = _ZERO_POINTS.get(node.op_type, len(node.input))
        is_signed = [types.get(name) for name in node.input[place : place + 1]] == [TensorProto.INT8]
        if not is_signed and node.op_type not in _NEVER_SATURATING:
            read.update(node.input)
    found = set()
    for name, tensor in tensors:
        is_matrix = len(tensor.dims) > 1 and math.prod(tensor.dims) > 1
        if name in read and tensor.data_type == TensorProto.INT8 and is_matrix:
            weights = numpy_helper.to_array(tensor, source.folder).ravel()
            # Which two are added depends on the operator, and of weights of full range almost any two do.
            ordered = np.partition(weights, (1, -2)).astype(int)
            if ordered[-2:].sum() > _MOST or ordered[:2].sum() < -_MOST:
                found.add(name)
    return found


def _gain(node: onnx.NodeProto, values: Values, size: int, threads: int) -> float:
    """Return by how many nanoseconds this node is faster here than in ONNX Runtime."""
    match name_of(node):
        case "TopK":
            shape = values.shape(node.input[0], size) or (size,)
            is_long: bool = shape[attribute(node, "axis", -1)] >= _LONG_ROW
            return is_long * _OF_TOP_K * math.prod(shape) / threads - _CALL
        case "ScatterElements" | "Scatter":
            return _OF_ELEMENT * values.elements(node.input[1], size) - _CALL
        case "ScatterND":
            return 0
        case name:
            return _gain_of_product(node, values, size, PRODUCTS[name]) / threads - _CALL


def _gain_of_product(node: onnx.NodeProto, values: Values, size: int, b: int) -> float:
    """Return the gain of a product; b: the place of B."""
    shape = values.shape(node.input[b], size)
    # A MatMul between quantizers that was joined is a product of uint8 by int8 in ONNX Runtime.
    if shape is None or len(shape) < 2 or result_of(node) in values.joined:
        return 0
    depth, columns = shape[-2:][::-1] if attribute(node, "transB", 0) else shape[-2:]
    results = values.elements(node.input[0], size) // max(depth, 1) * columns
    if values.dtype(node.input[0]) == values.dtype(node.input[b]) == TensorProto.INT8:
        rate = max(target.rate for target in TARGETS if target.unit.isa in allowed())
        return _OF_B * math.prod(shape) + results * depth * (_OF_PRODUCT - 1 / rate)
    is_by_column = b == 3 and values.elements(node.input[4], 1) > 1  # scales of QLinearMatMul and QGemm
    return _OF_COLUMN * results if is_by_column else 0
