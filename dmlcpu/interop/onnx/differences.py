"""Nodes for which ONNX Runtime's answer is not the one that ONNX defines."""

from collections.abc import Mapping

import onnx
from onnx import numpy_helper

from dmlcpu.interop.onnx.graphs import name_of

# docs/onnx.rst has the figures.
_SUMS = "NumPy's FFT is more exact"
_RANDOM = "ONNX defines its random numbers as NumPy's"
_PLACES = "ONNX Runtime places values by another shape"
_MASKED = "ONNX Runtime masks by the lowest float, and ONNX by -inf"


def difference(node: onnx.NodeProto, constants: Mapping[str, onnx.TensorProto]) -> str | None:
    """Return why ONNX's evaluator runs a node even where ONNX Runtime could; None if ONNX Runtime is as good."""
    given = len([*filter(None, node.input)])
    match name_of(node):
        case "DFT" | "STFT":
            return _SUMS
        case "Dropout" if given == 3 and not _is_false(node.input[2], constants):
            return _RANDOM
        case "MaxUnpool" if given == 3:
            return _PLACES
        case "Attention" if len(node.output) == 4:
            return _MASKED
    return None


def _is_false(name: str, constants: Mapping[str, onnx.TensorProto]) -> bool:
    return name in constants and not numpy_helper.to_array(constants[name]).any()
