"""Nodes that these kernels run, with constant weights packed."""

from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from dmlcpu.common.data_types import BYTE_TYPES
from dmlcpu.interop.onnx.graphs import name_of
from dmlcpu.interop.onnx.ops import OPS
from dmlcpu.products.packing import PackedMatrix, pack_b


class Kernels:
    """A model of which these kernels run all nodes, called without the evaluator's steps between them."""

    def __init__(self, model: onnx.ModelProto) -> None:
        evaluator = ReferenceEvaluator(model, new_ops=OPS)
        self._outputs, self._calls = evaluator.output_names, []
        # Arrays from `numpy_helper` are read-only, and take a slower path.
        constants = {name: np.array(each, order="C") for name, each in evaluator.rt_inits_.items()}
        self._constants = {"": None, **constants}
        packed: dict[tuple[str, int], PackedMatrix] = {}  # once for all nodes that read it
        for node in evaluator.rt_nodes_:
            attributes = {name: getattr(node, name) for name in node.attributes_names_}
            self._calls.append((node, attributes, tuple(node.input), tuple(node.output)))
            b = "" if node.B is None else node.input[node.B]
            weights = constants.get(b)
            if weights is not None and weights.ndim >= 2 and weights.dtype.name in BYTE_TYPES:
                key = b, attributes.get("transB", 0)
                packed[key] = packed.get(key) or pack_b(node.oriented(weights))
                node.packed = packed[key]

    def run(self, names: None, feeds: dict[str, Any]) -> list[Any]:
        """Return all outputs, in order."""
        values = self._constants | feeds
        for node, attributes, inputs, outputs in self._calls:
            try:
                results = node._run(*[values[name] for name in inputs], **attributes)
            except Exception as error:
                made = ", ".join(outputs)
                error.add_note(f"in the node {node.onnx_node.name!r} ({name_of(node.onnx_node)}), which makes {made}")
                raise
            values.update(zip(outputs, results, strict=False))  # some may have no name, and the last no place
            values[""] = None
        return [values[name] for name in self._outputs]
