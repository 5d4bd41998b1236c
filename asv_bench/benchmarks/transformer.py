"""A small transformer as an ONNX model with random weights, quantized dynamically by ONNX Runtime."""

import contextlib
import tempfile
from pathlib import Path

import numpy as np

with contextlib.suppress(ImportError):  # then asv still finds the other benchmarks
    import onnx
    from onnx import TensorProto, helper, numpy_helper

HEADS, VOCABULARY, CLASSES = 4, 1_000, 8


class Graph:
    """The nodes and weights of a model while it is built."""

    def __init__(self, seed=0):
        self.rng = np.random.default_rng(seed)
        self.nodes, self.weights = [], []

    def add(self, op, *inputs, **attributes):
        """Add a node with one output; return its name."""
        name = f"{op.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], name, **attributes))
        return name

    def constant(self, array):
        """Add an initializer; return its name."""
        name = f"weight_{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def random(self, *shape):
        """Add random weights of about unit gain; return their name."""
        return self.constant(self.rng.standard_normal(shape, np.float32) / np.float32(np.sqrt(shape[0])))

    def linear(self, x, inputs, outputs):
        """Multiply by a weight and add a bias."""
        return self.add("Add", self.add("MatMul", x, self.random(inputs, outputs)), self.random(outputs))

    def norm(self, x, width):
        """Normalize along the last axis."""
        one, zero = (self.constant(np.full(width, value, np.float32)) for value in (1, 0))
        return self.add("LayerNormalization", x, one, zero, axis=-1)

    def heads(self, x, width, perm):
        """Return (batch, tokens, width) as (batch, heads, ...) in the order of perm."""
        split = self.add("Reshape", x, self.constant(np.array([0, 0, HEADS, width // HEADS])))
        return self.add("Transpose", split, perm=perm)

    def attention(self, x, width):
        """Attend to all tokens."""
        orders = (0, 2, 1, 3), (0, 2, 3, 1), (0, 2, 1, 3)
        q, k, v = (self.heads(self.linear(x, width, width), width, perm) for perm in orders)
        scale = self.constant(np.float32((width // HEADS) ** -0.5))
        weights = self.add("Softmax", self.add("Mul", self.add("MatMul", q, k), scale), axis=-1)
        mixed = self.add("Transpose", self.add("MatMul", weights, v), perm=(0, 2, 1, 3))
        return self.linear(self.add("Reshape", mixed, self.constant(np.array([0, 0, width]))), width, width)

    def gelu(self, x):
        """Apply the exact Gelu, as exporters write it."""
        half, one, root = (self.constant(np.float32(value)) for value in (0.5, 1, np.sqrt(2)))
        erf = self.add("Add", self.add("Erf", self.add("Div", x, root)), one)
        return self.add("Mul", self.add("Mul", x, erf), half)


def transformer(width=256, layers=3):
    """Return an encoder: tokens (batch, tokens) int64 to scores (batch, CLASSES) float32."""
    g = Graph()
    x = g.norm(g.add("Gather", g.random(VOCABULARY, width), "tokens"), width)
    for _ in range(layers):
        x = g.norm(g.add("Add", x, g.attention(x, width)), width)
        inner = g.linear(g.gelu(g.linear(x, width, 4 * width)), 4 * width, width)
        x = g.norm(g.add("Add", x, inner), width)
    first = g.add("Gather", x, g.constant(np.int64(0)), axis=1)
    g.nodes.append(helper.make_node("Identity", [g.linear(first, width, CLASSES)], ["scores"]))
    tokens = helper.make_tensor_value_info("tokens", TensorProto.INT64, ["batch", "tokens"])
    scores = helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", CLASSES])
    graph = helper.make_graph(g.nodes, "transformer", [tokens], [scores], g.weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def quantized(model):
    """Return a model quantized by ONNX Runtime's quantize_dynamic, with weights of seven bits: see onnx_models.py."""
    from onnxruntime.quantization import quantize_dynamic

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "quantized.onnx"
        quantize_dynamic(model, path, reduce_range=True)
        return onnx.load(path)


def tokens(batch, count=64):
    """Return random tokens."""
    return np.random.default_rng(1).integers(0, VOCABULARY, (batch, count))
