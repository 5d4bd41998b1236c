"""Models for the tests of ONNX models in parts, and how they are compared."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

from dmlcpu.interop.onnx import runtime  # noqa: E402

RNG = np.random.default_rng(0)
W = RNG.integers(-128, 128, (8, 6), np.int8)
X = RNG.standard_normal((5, 8), np.float32)
node = helper.make_node
needs_runtime = pytest.mark.skipif(runtime.runtime() is None, reason="onnxruntime is not installed")


def info(name, dtype, shape):
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)


def model_of(nodes, inputs, outputs, constants=None, opset=17, **options):
    """Make a valid model; X is its usual input x."""
    initializers = [numpy_helper.from_array(np.asarray(array), name) for name, array in (constants or {}).items()]
    graph = helper.make_graph(nodes, "model", inputs or [info("x", np.float32, ["n", 8])], outputs, initializers)
    graph.sparse_initializer.extend(options.pop("sparse", ()))
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(each, 1) for each in options.pop("domains", ()))]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8, **options)
    onnx.checker.check_model(model)
    return model


SCALE, BIAS = RNG.random(6, np.float32), RNG.standard_normal(6, np.float32)
CONSTANTS = {"w": W, "scale": SCALE, "zero": np.zeros(6, np.int8), "bias": BIAS, "two": np.array([2])}


def dynamic(**changes):
    """Return a product as quantize_dynamic of ONNX Runtime writes it, between others. changes: replace nodes."""
    nodes = {
        "negated": node("Neg", ["x"], ["t"]),
        "quantize": node("DynamicQuantizeLinear", ["t"], ["q", "q_scale", "q_zero"]),
        "scales": node("Mul", ["q_scale", "scale"], ["scales"]),
        "product": node("MatMulInteger", ["q", "w", "q_zero", "zero"], ["sums"], "product"),
        "cast": node("Cast", ["sums"], ["floats"], to=TensorProto.FLOAT),
        "scaled": node("Mul", ["floats", "scales"], ["scaled"]),
        "added": node("Add", ["bias", "scaled"], ["added"]),
        "relu": node("Relu", ["added"], ["r"]),
        "best": node("TopK", ["r", "two"], ["values", "indices"], axis=-1),
    }
    outputs = [info("values", np.float32, ["n", 2]), info("indices", np.int64, ["n", 2]), *changes.pop("outputs", ())]
    constants = CONSTANTS | changes.pop("constants", {})
    nodes |= changes
    return model_of([each for each in nodes.values() if each], None, outputs, constants)


def assert_as_the_reference(model, prepared, inputs):
    found, wanted = prepared.run(inputs), ReferenceEvaluator(model).run(None, inputs)
    for mine, right in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(mine, right, strict=True)


def quantized():
    """Return a product between quantizers, as quantize_static of ONNX Runtime writes it."""
    nodes = [
        node("QuantizeLinear", ["x", "xs", "xz"], ["q"]),
        node("DequantizeLinear", ["q", "xs", "xz"], ["a"]),
        node("DequantizeLinear", ["w", "ws", "wz"], ["b"], axis=1),
        node("MatMul", ["a", "b"], ["y"]),
        node("QuantizeLinear", ["y", "ys", "yz"], ["out"]),
    ]
    weights = W >> 1  # seven bits, with which ONNX Runtime is exact on processors without VNNI, too
    constants = {"xs": np.float32(0.02), "xz": np.uint8(128), "w": weights, "ws": SCALE * 0.02}
    constants["wz"] = np.zeros(6, np.int8)
    constants |= {"ys": np.float32(0.05), "yz": np.uint8(120)}
    return model_of(nodes, None, [info("out", np.uint8, ["n", 6])], constants)
