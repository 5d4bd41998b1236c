"""What nodes of a graph read and write."""

from collections import Counter
from collections.abc import Iterable, Iterator

import onnx

MICROSOFT = "com.microsoft"  # ONNX Runtime's own operators


def name_of(node: onnx.NodeProto) -> str:
    """Return an operator's name, with its domain unless that is ONNX's own."""
    return f"{node.domain}.{node.op_type}" if node.domain else node.op_type


def result_of(node: onnx.NodeProto) -> str:
    """Return the name of a node's first result, which no other node of its graph has."""
    return next(filter(None, node.output), "")


def described(node: onnx.NodeProto) -> str:
    """Return what an error says of the node in which it came up."""
    return f"in the node {node.name!r} ({name_of(node)}), which makes {', '.join(node.output)}"


def bodies(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    """Return a node's branches, or the body of a loop."""
    return [each.g for each in node.attribute if each.type == onnx.AttributeProto.GRAPH]


def nodes_inside(node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
    """Yield the nodes of a node's branches and loops, at any depth."""
    for body in bodies(node):
        for inner in body.node:
            yield inner
            yield from nodes_inside(inner)


def reads(node: onnx.NodeProto) -> set[str]:
    """Return the names that a node reads, also those that its branches and loops take from around them."""
    names = {name for name in node.input if name}
    for body in bodies(node):
        names |= _taken_from_around(body)
    return names


def _taken_from_around(body: onnx.GraphProto) -> set[str]:
    own = {each.name for each in (*body.input, *body.initializer)}
    own |= {each.values.name for each in body.sparse_initializer}
    own |= {name for node in body.node for name in node.output}
    names = {name for node in body.node for name in reads(node)} | {each.name for each in body.output}
    return names - own


class Readers:
    """Who reads each value of a graph."""

    def __init__(self, nodes: Iterable[onnx.NodeProto], outputs: Iterable[str]) -> None:
        self.counts = Counter(outputs)
        self.nodes: dict[str, list[onnx.NodeProto]] = {}
        for node in nodes:
            for name in reads(node):
                self.counts[name] += 1
                self.nodes.setdefault(name, []).append(node)

    def only(self, name: str, operator: str) -> onnx.NodeProto | None:
        """Return the only reader of a value if it is an operator of ONNX, else None."""
        readers = self.nodes.get(name, ())
        if self.counts[name] != 1 or len(readers) != 1 or name_of(readers[0]) != operator:
            return None
        return readers[0]
