"""Whole ONNX models: ONNX's reference evaluator, the backend of dmlcpu, and ONNX Runtime."""

from functools import partial
from importlib.util import find_spec

import numpy as np

from . import THREADS
from .conditions import ready
from .peers import parts


def top_k(scale):
    rows, columns = 1_024 // scale, 10_240 // scale
    scores = np.random.default_rng(0).standard_normal((rows, columns), np.float32)
    nodes = [("TopK", ["x", "k"], ["values", "out"], {})]
    return f"10 of {rows} rows of {columns}", *_model(nodes, {"x": scores}, {"k": np.array([10])})


def scatter_nd(scale):
    rng = np.random.default_rng(0)
    rows, updated = 10_240 // scale, 16_384 // scale
    table, updates = (rng.standard_normal((n, 64), np.float32) for n in (rows, updated))
    inputs = {"x": table, "at": rng.integers(0, rows, (updated, 1)), "updates": updates}
    nodes = [("ScatterND", ["x", "at", "updates"], ["out"], {"reduction": "add"})]
    return f"{updated} rows of 64 added to {rows}", *_model(nodes, inputs)


def q_linear_matmul(scale):
    x, width, weights = _layer(scale)
    constants = {
        "w0": weights[0],
        "w1": weights[1],
        "one": np.float32(0.02),
        "zero": np.uint8(128),
        "s": np.float32(0.02),
        "zw": np.int8(0),
        "y": np.float32(2),
    }
    nodes = [
        ("QLinearMatMul", [a, "one", "zero", b, "s", "zw", "y", "zero"], [c], {})
        for a, b, c in (("x", "w0", "h"), ("h", "w1", "out"))
    ]
    return f"128 rows, {width} to {4 * width} to {width}", *_model(nodes, {"x": x}, constants)


def matmul_integer(scale):
    x, width, weights = _layer(scale)
    nodes = [
        ("DynamicQuantizeLinear", ["x"], ["q", "q_scale", "q_zero"], {}),
        ("MatMulInteger", ["q", "w0", "q_zero"], ["sums"], {}),
        ("Cast", ["sums"], ["f"], {"to": 1}),
        ("Mul", ["f", "q_scale"], ["out"], {}),
    ]
    what = f"dynamically quantized: 128 rows, {width} to {4 * width}"
    return what, *_model(nodes, {"x": x.astype(np.float32)}, {"w0": weights[0]})


def transformer(scale, batch=1, width=256):
    """Return a transformer quantized by ONNX Runtime."""
    from . import transformer

    width = max(width // scale, 4)
    model = transformer.quantized(transformer.transformer(width))
    return f"3 layers of {width}, batch {batch}", model, {"tokens": transformer.tokens(batch, max(64 // scale, 2))}


def transformer_16(scale):
    return transformer(scale, 16)


def transformer_wide(scale):
    return transformer(scale, width=768)


LARGE = {"Transformer in batches": transformer_16, "Transformer, wide": transformer_wide}
MODELS = {"TopK": top_k, "ScatterND": scatter_nd, "QLinearMatMul": q_linear_matmul, "MatMulInteger": matmul_integer}
if find_spec("onnxruntime") is not None:
    MODELS |= {"Transformer": transformer, **LARGE}


def _layer(scale):
    rng, width = np.random.default_rng(0), 768 // scale
    x = rng.integers(0, 256, (128, width), np.uint8)
    # Weights of seven bits, with which ONNX Runtime is exact on processors without VNNI, too.
    return x, width, [rng.integers(-64, 64, shape, np.int8) for shape in ((width, 4 * width), (4 * width, width))]


def _model(nodes, inputs, constants=None):
    """Return a model of nodes, whose result is called out, and its inputs."""
    import onnx
    from onnx import helper, numpy_helper, shape_inference

    def info(name, array):
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)

    initializers = [numpy_helper.from_array(np.asarray(array), name) for name, array in (constants or {}).items()]
    made = [helper.make_node(op, given, results, **attributes) for op, given, results, attributes in nodes]
    output = onnx.ValueInfoProto(name="out")
    graph = helper.make_graph(made, "model", [info(*each) for each in inputs.items()], [output], initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    return shape_inference.infer_shapes(model), inputs


def reference(model, inputs):
    from onnx.reference import ReferenceEvaluator

    evaluator = ReferenceEvaluator(model)
    return lambda: evaluator.run(None, inputs)


def dmlcpu(model, inputs, take="auto"):
    from dmlcpu.interop.onnx import prepare

    prepared = prepare(model, take=take)
    return lambda: prepared.run(inputs)


def onnxruntime(model, inputs):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = THREADS
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, inputs)


CONTENDERS = {"reference": reference, "dmlcpu": dmlcpu, "dmlcpu all": partial(dmlcpu, take="all")}
if find_spec("onnxruntime") is not None:
    CONTENDERS["onnxruntime"] = onnxruntime


class Models:
    # The reference evaluator takes seconds for large models, and a small one says the same.
    params = (
        [f"{who}: {model}" for model in MODELS for who in CONTENDERS if who != "reference" or model not in LARGE],
    )
    param_names = ("cell",)
    number, warmup_time, repeat, version = 1, 0, (3, 10, 5.0), "1"

    def setup(self, cell):
        contender, model = parts(cell)
        if find_spec("onnx") is None:
            raise NotImplementedError("onnx is not installed")
        _, *built = MODELS[model](1)
        self.call = ready(CONTENDERS[contender](*built))

    def time_run(self, cell):
        return self.call()
