"""A graph cut into parts: nodes for these kernels, and runs of other nodes."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

import onnx

from dmlcpu.interop.onnx.graphs import name_of, reads, result_of

Constant: TypeAlias = onnx.TensorProto | onnx.SparseTensorProto


class Part(NamedTuple):
    """Nodes that run together."""

    is_ours: bool
    nodes: list[onnx.NodeProto]
    inputs: list[str]  # values that earlier parts, or the model's inputs, have
    outputs: list[str]  # values that later parts read, or that are the model's outputs


def cut(
    graph: onnx.GraphProto, constants: Mapping[str, Constant], is_ours: Callable[[onnx.NodeProto], bool]
) -> list[Part]:
    """Return the parts of a graph in the order in which they can run.

    A node's level is the least that its inputs allow: even for other nodes, odd for ours. So a level's nodes need only
    earlier levels and one another, and there are no more levels than changes of the kind along a path.
    """
    constant = constants.keys()
    level_of = {each.name: 0 for each in graph.input}
    levels: dict[int, list[onnx.NodeProto]] = defaultdict(list)
    read_in: dict[str, set[int]] = defaultdict(set)
    for node in graph.node:
        if result_of(node) in constant:
            continue
        names = reads(node) - constant
        level = max((level_of[name] for name in names), default=0)
        level += is_ours(node) != level % 2
        levels[level].append(node)
        for name in names:
            read_in[name].add(level)
        level_of.update((name, level) for name in node.output if name)
    results = {each.name for each in graph.output}
    parts = []
    for level, nodes in sorted(levels.items()):
        made = [name for node in nodes for name in node.output if name]
        inputs = {name for node in nodes for name in reads(node)} - constant - {*made}
        outputs = [name for name in made if name in results or read_in[name] - {level}]
        if outputs:  # else nothing comes of it
            parts.append(Part(level % 2 == 1, nodes, sorted(inputs), outputs))
    return parts


def constants_of(graph: onnx.GraphProto) -> dict[str, Constant]:
    """Return the initializers that no input replaces, and the tensors of Constant nodes, by their names."""
    given = {each.name for each in graph.input}
    found: dict[str, Constant] = {each.name: each for each in graph.initializer if each.name not in given}
    found |= {each.values.name: each for each in graph.sparse_initializer}
    for node in graph.node:
        if name_of(node) == "Constant" and node.attribute[0].name == "value":
            found[node.output[0]] = tensor = onnx.TensorProto()
            tensor.CopyFrom(node.attribute[0].t)
            tensor.name = node.output[0]
    return found


def model_of(
    part: Part, model: onnx.ModelProto, constants: Mapping[str, Constant], types: Mapping[str, onnx.TypeProto]
) -> onnx.ModelProto:
    """Return the model of a part."""
    used = sorted({name for node in part.nodes for name in reads(node)} & constants.keys())
    found = onnx.ModelProto(ir_version=model.ir_version, opset_import=model.opset_import)
    graph = found.graph
    graph.name = model.graph.name or "model"
    graph.node.extend(part.nodes)
    graph.input.extend(onnx.ValueInfoProto(name=name, type=types[name]) for name in part.inputs)
    graph.output.extend(onnx.ValueInfoProto(name=name, type=types.get(name)) for name in part.outputs)
    for constant in (constants[name] for name in used):
        is_sparse = isinstance(constant, onnx.SparseTensorProto)
        (graph.sparse_initializer if is_sparse else graph.initializer).append(constant)
    return found
