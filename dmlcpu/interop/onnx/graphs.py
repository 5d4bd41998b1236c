"""What the nodes of a graph read and write, and its constants."""

import copy
from collections.abc import Iterable, Iterator, Mapping
from graphlib import TopologicalSorter
from typing import Any

import numpy as np
import onnx
from onnx import helper, inliner, numpy_helper

from dmlcpu.common.arguments import Array

NAME = "onnx"  # the operator that errors name
MICROSOFT = "com.microsoft"  # ONNX Runtime's own operators


def name_of(node: onnx.NodeProto) -> str:
    """Return an operator's name, with its domain unless that is ONNX's own."""
    return f"{node.domain}.{node.op_type}" if node.domain else node.op_type


def result_of(node: onnx.NodeProto) -> str:
    """Return the name of a node's first result, which no other node of its graph has."""
    return next(filter(None, node.output), "")


def attribute(node: onnx.NodeProto, name: str, default: Any) -> Any:
    """Return a node's attribute; its default if it is missing."""
    return next((helper.get_attribute_value(each) for each in node.attribute if each.name == name), default)


def model_of_node(node: onnx.NodeProto, feeds: Mapping[str, Array], opsets: Mapping[str, int]) -> onnx.ModelProto:
    """Return a model of one node, for inputs like these."""
    kinds = {name: helper.np_dtype_to_tensor_dtype(each.dtype) for name, each in feeds.items()}
    inputs = [helper.make_tensor_value_info(name, kind, feeds[name].shape) for name, kind in kinds.items()]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    imports = [helper.make_opsetid(*each) for each in opsets.items()]
    least = helper.find_min_ir_version_for(imports, True)
    graph = helper.make_graph([node], node.op_type, inputs, outputs)
    return helper.make_model(graph, opset_imports=imports, ir_version=least)


def bodies(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    """Return a node's branches, or the body of a loop."""
    return [each.g for each in node.attribute if each.type == onnx.AttributeProto.GRAPH]


def nested(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Yield nodes, each with those of its branches and loops, at any depth."""
    for node in nodes:
        yield node
        for body in bodies(node):
            yield from nested(body.node)


def model_nodes(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Yield the nodes of a model, with those of functions, branches and loops."""
    for each in (model.graph, *model.functions):
        yield from nested(each.node)


def reads(node: onnx.NodeProto) -> set[str]:
    """Return the names that a node reads, also those that its branches and loops take from around them."""
    names = {name for name in node.input if name}
    for body in bodies(node):
        sparse = (each.values for each in body.sparse_initializer)
        own = {each.name for each in (*body.input, *body.initializer, *sparse)}
        own |= {name for inner in body.node for name in inner.output}
        read = {name for inner in body.node for name in reads(inner)} | {each.name for each in body.output}
        names |= read - own
    return names


_ELEMENT_TYPES = {"value_float": np.float32, "value_floats": np.float32, "value_int": np.int64, "value_ints": np.int64}


def completed(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy with what ONNX's own tools require, without functions, and with initializers as only constants."""
    found = copy.deepcopy(inliner.inline_local_functions(model) if model.functions else model)
    graph, nodes = found.graph, [*model_nodes(found)]
    versions = [copy.deepcopy(each) for function in model.functions for each in function.opset_import]
    versions += found.opset_import  # of several versions of a domain, the model's last one counts
    for each in (*nodes, *versions):
        each.domain = "" if each.domain == "ai.onnx" else each.domain
    imports = {node.domain: 1 for node in nodes} | {MICROSOFT: 1, "": onnx.defs.onnx_opset_version()}
    imports |= {each.domain: each.version for each in versions}
    found.ClearField("opset_import")
    found.opset_import.extend(helper.make_opsetid(*each) for each in imports.items())
    found.ir_version = max(found.ir_version, 4)  # before, initializers had to be inputs
    constants = [node for node in graph.node if name_of(node) == "Constant"]
    others = _sorted([node for node in graph.node if name_of(node) != "Constant"])
    graph.initializer.extend(_constant(node.attribute[0], node.output[0]) for node in constants)
    graph.initializer.extend(_dense(each, each.values.name) for each in graph.sparse_initializer)
    for field in ("node", "sparse_initializer"):
        graph.ClearField(field)
    graph.node.extend(others)
    graph.name = graph.name or "model"
    return found


def _sorted(nodes: list[onnx.NodeProto]) -> list[onnx.NodeProto]:
    """Return copies of nodes, each after those whose results it reads."""
    makers = {name: place for place, node in enumerate(nodes) for name in node.output if name}
    before = {place: [makers[name] for name in reads(node) & makers.keys()] for place, node in enumerate(nodes)}
    is_sorted = all(each < place for place, places in before.items() for each in places)
    order: Iterable[int] = before if is_sorted else TopologicalSorter(before).static_order()
    return [copy.deepcopy(nodes[place]) for place in order]


def constants_of(graph: onnx.GraphProto) -> dict[str, onnx.TensorProto]:
    """Return the initializers that no input replaces, by their names."""
    given = {each.name for each in graph.input}
    return {each.name: each for each in graph.initializer if each.name not in given}


def _constant(attribute: onnx.AttributeProto, name: str) -> onnx.TensorProto:
    """Return what a Constant node makes."""
    value = helper.get_attribute_value(attribute)
    if isinstance(value, onnx.SparseTensorProto):
        return _dense(value, name)
    if isinstance(value, onnx.TensorProto):
        value.name = name  # of a copy of the model
        return value
    return numpy_helper.from_array(np.array(value, _ELEMENT_TYPES.get(attribute.name, object)), name)


def _dense(sparse: onnx.SparseTensorProto, name: str) -> onnx.TensorProto:
    values, indices = numpy_helper.to_array(sparse.values), numpy_helper.to_array(sparse.indices)
    shape = tuple(sparse.dims)
    array = np.zeros(shape, values.dtype)
    array[tuple(indices.T) if indices.ndim == 2 else np.unravel_index(indices, shape)] = values
    return numpy_helper.from_array(array, name)
