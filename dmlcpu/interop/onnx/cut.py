"""A graph cut into parts: nodes that these kernels run, and runs of other nodes."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import NamedTuple

import onnx

from dmlcpu.interop.onnx.graphs import reads


class Part(NamedTuple):
    """Nodes that run together."""

    is_ours: bool
    nodes: list[onnx.NodeProto]
    inputs: list[str]  # values that earlier parts, or the model's inputs, have
    outputs: list[str]  # values that later parts read, or that are the model's outputs


def cut(
    graph: onnx.GraphProto, constants: Mapping[str, onnx.TensorProto], is_ours: Callable[[onnx.NodeProto], bool]
) -> list[Part]:
    """Return the parts of a graph, each the nodes of a level, in the order in which they can run."""
    constant, results = constants.keys(), {each.name for each in graph.output}
    reading = [reads(node) - constant for node in graph.node]
    levels: dict[int, list[onnx.NodeProto]] = defaultdict(list)
    read_in: dict[str, set[int]] = defaultdict(set)
    for node, names, level in zip(graph.node, reading, _levels(graph, reading, is_ours), strict=True):
        levels[level].append(node)
        for name in names:
            read_in[name].add(level)
    parts = []
    for level, nodes in sorted(levels.items()):
        made = [name for node in nodes for name in node.output if name]
        inputs = {name for node in nodes for name in reads(node)} - constant - {*made}
        outputs = [name for name in made if name in results or read_in[name] - {level}]
        if outputs:  # else no later part reads a result
            parts.append(Part(level % 2 == 1, nodes, sorted(inputs), outputs))
    return parts


def _levels(graph: onnx.GraphProto, reading: list[set[str]], is_ours: Callable[[onnx.NodeProto], bool]) -> list[int]:
    """Return the nodes' levels, the least that their inputs allow: even for other nodes, odd for ours."""
    level_of = {each.name: 0 for each in graph.input}  # without results that need only constants
    levels = []
    for node, names in zip(graph.node, reading, strict=True):
        before, is_our = [level_of[name] for name in names if name in level_of], is_ours(node)
        level = -1
        if before or is_our:
            level = max(before, default=0)
            level += is_our != level % 2
            level_of.update((name, level) for name in node.output if name)
        levels.append(level)
    # Other nodes that need only constants are where a result of theirs is first read: ONNX Runtime computes them in
    # advance there, and packs weights that they make.
    first: dict[str, int] = {}  # level in which a value is read
    for number, node in reversed([*enumerate(graph.node)]):
        if levels[number] < 0:
            level = min((first[name] for name in node.output if name in first), default=0)
            levels[number] = level - level % 2
        for name in reading[number]:
            first[name] = min(levels[number], first.get(name, levels[number]))
    return levels


def model_of(
    part: Part, model: onnx.ModelProto, constants: Mapping[str, onnx.TensorProto], types: Mapping[str, onnx.TypeProto]
) -> onnx.ModelProto:
    """Return the model of a part."""
    used = sorted({name for node in part.nodes for name in reads(node)} & constants.keys())
    functions = [] if part.is_ours else model.functions  # those of other opsets, which are not inlined
    found = onnx.ModelProto(ir_version=model.ir_version, opset_import=model.opset_import, functions=functions)
    graph = found.graph
    graph.name = model.graph.name
    graph.node.extend(part.nodes)
    graph.input.extend(onnx.ValueInfoProto(name=name, type=types[name]) for name in part.inputs)
    graph.output.extend(onnx.ValueInfoProto(name=name, type=types.get(name)) for name in part.outputs)
    graph.initializer.extend(constants[name] for name in used)
    return found
