"""Nodes that these kernels run, with constant weights packed."""

from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from dmlcpu.common.data_types import BYTE_TYPES
from dmlcpu.interop.onnx.graphs import described
from dmlcpu.interop.onnx.ops import OPS
from dmlcpu.products.packing import PackedMatrix, pack_b


class Kernels:
    """A model of which these kernels run all nodes, called without the evaluator's steps between them."""

    def __init__(self, model: onnx.ModelProto) -> None:
        evaluator = ReferenceEvaluator(model, new_ops=OPS)
        # A result may be a view of a constant, and a caller who writes to it would change the model. Other constants
        # are copied: arrays from `numpy_helper` are read-only, and take a slower path.
        names = evaluator.output_names
        arrays = {name: np.asarray(each) for name, each in evaluator.rt_inits_.items()}
        fast = {
            name: np.array(each, each.dtype.type, order="C")
            for name, each in arrays.items()
            if name not in names and each.dtype.kind in "biuf"
        }
        self._constants, self._outputs, self._calls = {"": None, **arrays, **fast}, names, []
        packed: dict[str, PackedMatrix] = {}  # once for all nodes that read it
        for node in evaluator.rt_nodes_:
            attributes = {name: getattr(node, name) for name in node.attributes_names_}
            self._calls.append((node, attributes, tuple(node.input), tuple(node.output)))
            b = "" if node.B is None else node.input[node.B]
            weights = None if b in evaluator.input_names else arrays.get(b)  # an input may be given another value
            if weights is not None and weights.ndim >= 2 and weights.dtype.name in BYTE_TYPES:
                packed[b] = packed.get(b) or pack_b(node.oriented(fast.get(b, weights)))
                node.packed = packed[b]

    def run(self, names: None, feeds: dict[str, Any]) -> list[Any]:
        """Return all outputs, in order."""
        values = self._constants | feeds
        for node, attributes, inputs, outputs in self._calls:
            try:
                results = node._run(*[values[name] for name in inputs], **attributes)
            except Exception as error:
                error.add_note(described(node.onnx_node))
                raise
            values.update(zip(outputs, results, strict=False))  # some may have no name, and the last no place
            values[""] = None
        return [values[name] for name in self._outputs]
