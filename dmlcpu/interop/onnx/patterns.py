"""Groups of nodes that become one call of these kernels."""

import copy
from collections import defaultdict

import onnx
from onnx import TensorProto, helper

from dmlcpu.interop.onnx.graphs import MICROSOFT, attribute, constants_of, name_of, reads, result_of

_BYTE_TYPES = (TensorProto.INT8, TensorProto.UINT8)
_FLOAT_TYPES = (TensorProto.FLOAT,)
# MatMulInteger's int32 wraps. A sum of fewer products than these does not, and then one call has the nodes' bits.
_MOST_PRODUCTS = (2**31 - 1) // (255 * 255)


class _Values:
    """The values of a graph: their constants, makers and readers."""

    def __init__(self, graph: onnx.GraphProto, nodes: list[onnx.NodeProto]) -> None:
        self.constants = constants_of(graph)
        self.makers = {name: node for node in nodes for name in node.output if name}
        self.readers: dict[str, list[onnx.NodeProto | None]] = defaultdict(list)  # None: it is a result of the graph
        for each in graph.output:
            self.readers[each.name].append(None)
        for node in nodes:
            for name in reads(node):
                self.readers[name].append(node)

    def made_by(self, name: str, operator: str) -> onnx.NodeProto | None:
        """Return the node that makes a value if it is this operator, else None."""
        node = self.makers.get(name)
        return node if node is not None and name_of(node) == operator else None

    def read_by(self, maker: onnx.NodeProto | None, operator: str) -> onnx.NodeProto | None:
        """Return the only reader of a node's first result if it is this operator, else None."""
        readers = self.readers[maker.output[0]] if maker is not None else []
        return next((node for node in readers if len(readers) == 1 and node and name_of(node) == operator), None)

    def shape(self, name: str, types: tuple[int, ...]) -> tuple[int, ...] | None:
        """Return the shape of a constant of one of these types, else None."""
        constant = self.constants.get(name)
        return tuple(constant.dims) if constant is not None and constant.data_type in types else None


def join(model: onnx.ModelProto, *, qdq: bool) -> None:
    """Replace each group of a model by one node; qdq: also those whose last step may differ."""
    graph = model.graph
    nodes = [copy.deepcopy(node) for node in graph.node]
    values, finders = _Values(graph, nodes), {"MatMulInteger": _scaled_product}
    if qdq:
        finders["MatMul"] = _product_between_quantizers
    groups = [finders[name](node, values) for node in nodes if (name := name_of(node)) in finders]
    joined = {result_of(node): node for node in groups if node is not None}
    kept, read = [], {each.name for each in graph.output}
    for node in reversed([joined.get(result_of(node), node) for node in nodes]):
        if not read.isdisjoint(node.output):
            kept.append(node)
            read |= reads(node)
    graph.ClearField("node")
    graph.node.extend(reversed(kept))


def _scaled_product(product: onnx.NodeProto, values: _Values) -> onnx.NodeProto | None:
    """MatMulInteger, Cast, Mul by the scales, and Add of a bias, as quantize_dynamic writes them, are one product."""
    shape = values.shape(product.input[1], _BYTE_TYPES)
    cast = values.read_by(product, "Cast")
    scaled = values.read_by(cast, "Mul")
    if shape is None or len(shape) != 2 or shape[0] > _MOST_PRODUCTS or scaled is None:
        return None
    scales = [name for name in scaled.input if name != result_of(cast)]
    multiplied = values.made_by(scales[0], "Mul") if len(scales) == 1 else None
    if multiplied is None or attribute(cast, "to", 0) != TensorProto.FLOAT:
        return None
    for a_scale, b_scale in (multiplied.input, reversed(multiplied.input)):
        quantizer = values.made_by(a_scale, "DynamicQuantizeLinear")
        is_of_b = values.shape(b_scale, _FLOAT_TYPES) in ((), (1,), (shape[1],))
        if is_of_b and quantizer is not None and a_scale == quantizer.output[1]:
            break
    else:
        return None
    last, bias = scaled, ""
    added = values.read_by(scaled, "Add")
    for name in added.input if added is not None else ():
        if values.shape(name, _FLOAT_TYPES) == (shape[1],):
            last, bias = added, name
    zeros = [*product.input[2:], "", ""][:2]
    inputs = [*product.input[:2], a_scale, b_scale, *zeros, bias]
    return helper.make_node("MatMulIntegerToFloat", inputs, [last.output[0]], name=product.name, domain=MICROSOFT)


def _product_between_quantizers(product: onnx.NodeProto, values: _Values) -> onnx.NodeProto | None:
    """DequantizeLinear of both operands, MatMul, and QuantizeLinear are QLinearMatMul."""
    last = values.read_by(product, "QuantizeLinear")
    a, b = (values.made_by(name, "DequantizeLinear") for name in product.input)
    if last is None or a is None or b is None or any(len(node.input) < 3 for node in (last, a, b)):
        return None
    shape = values.shape(b.input[0], _BYTE_TYPES)
    numbers = [name for node in (a, last) for name in node.input[1:3]]
    if shape is None or len(shape) != 2 or {values.shape(name, _FLOAT_TYPES + _BYTE_TYPES) for name in numbers} != {()}:
        return None
    axis = attribute(b, "axis", 1)
    of_b = {values.shape(b.input[1], _FLOAT_TYPES), values.shape(b.input[2], _BYTE_TYPES)}
    if of_b != {()} and (of_b != {(shape[1],)} or axis not in (1, -1)):
        return None
    return helper.make_node("QLinearMatMul", [*a.input, *b.input, *last.input[1:]], [last.output[0]], name=product.name)
