"""Time whole ONNX models: ONNX's reference evaluator, the backend of dmlcpu, and ONNX Runtime, in turns.

    python asv_bench/onnx_backend.py
    python asv_bench/onnx_backend.py --turns 25 --models TopK

A figure is the median of a contender's turns, followed by the shortest turn, for shared machines. Sessions are created
beforehand.
"""

import argparse
import importlib.util
import statistics
import time

import numpy as np
import transformer
from benchmarks import THREADS, conditions
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from dmlcpu.interop import onnx as dmlcpu_onnx


def models(scale=1):
    """Return the models by name, each with its inputs; scale divides their sizes."""
    rng = np.random.default_rng(0)
    rows, columns, width = 1_024 // scale, 10_240 // scale, 768 // scale
    scores = rng.standard_normal((rows, columns), np.float32)
    table, updates = (rng.standard_normal((n, 64), np.float32) for n in (columns, rows * 16))
    at = rng.integers(0, columns, (rows * 16, 1))
    x = rng.integers(0, 256, (128, width), np.uint8)
    weights = [rng.integers(-128, 128, shape, np.int8) for shape in ((width, 4 * width), (4 * width, width))]
    one, zero = np.float32(0.02), np.uint8(128)
    scales = {"one": one, "zero": zero, "s": np.float32(0.02), "zw": np.int8(0), "y": np.float32(2)}
    quantized = [
        helper.make_node("QLinearMatMul", [a, "one", "zero", b, "s", "zw", "y", "zero"], [c])
        for a, b, c in (("x", "w0", "h"), ("h", "w1", "out"))
    ]
    integer = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "q_scale", "q_zero"]),
        helper.make_node("MatMulInteger", ["q", "w0", "q_zero"], ["sums"]),
        helper.make_node("Cast", ["sums"], ["f"], to=1),
        helper.make_node("Mul", ["f", "q_scale"], ["out"]),
    ]
    return {
        f"TopK: 10 of {rows} rows of {columns}": _model(
            [helper.make_node("TopK", ["x", "k"], ["values", "out"])], {"x": scores}, {"k": np.array([10])}
        ),
        f"ScatterND: {rows * 16} rows of 64 added to {columns}": _model(
            [helper.make_node("ScatterND", ["x", "at", "updates"], ["out"], reduction="add")],
            {"x": table, "at": at, "updates": updates},
        ),
        f"QLinearMatMul: 128 rows, {width} to {4 * width} to {width}": _model(
            quantized, {"x": x}, {"w0": weights[0], "w1": weights[1], **scales}
        ),
        f"MatMulInteger, dynamically quantized: 128 rows, {width} to {4 * width}": _model(
            integer, {"x": x.astype(np.float32)}, {"w0": weights[0]}
        ),
        **_transformers(scale),
    }


def _transformers(scale):
    """Return a transformer quantized by ONNX Runtime, if that is installed."""
    if importlib.util.find_spec("onnxruntime") is None:
        return {}
    width = max(256 // scale, 4)
    model = transformer.quantized(transformer.transformer(width))
    inputs = {batch: {"tokens": transformer.tokens(batch, max(64 // scale, 2))} for batch in (1, 16)}
    return {
        f"Transformer by quantize_dynamic: 3 layers of {width}, batch {batch}": (model, tokens)
        for batch, tokens in inputs.items()
    }


def _model(nodes, inputs, constants=None):
    def info(name, array):
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)

    initializers = [numpy_helper.from_array(np.asarray(array), name) for name, array in (constants or {}).items()]
    graph = helper.make_graph(nodes, "model", [info(*each) for each in inputs.items()], [], initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    (out,) = ReferenceEvaluator(model).run(["out"], inputs)
    model.graph.output.append(info("out", out))
    return model, inputs


def contenders(model, inputs):
    """Return a call of each contender that is installed."""
    evaluator, prepared = ReferenceEvaluator(model), dmlcpu_onnx.prepare(model)
    calls = {"reference": lambda: evaluator.run(None, inputs), "dmlcpu": lambda: prepared.run(inputs)}
    try:
        import onnxruntime
    except ImportError:
        return calls
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = THREADS
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return {**calls, "onnxruntime": lambda: session.run(None, inputs)}


def measure(calls, turns):
    """Return the median and the shortest of each contender's turns, in milliseconds."""
    times = {name: [] for name in calls}
    for turn in range(turns + 1):
        for name, call in calls.items():
            time.sleep(conditions.REST)
            start = time.perf_counter()
            call()
            if turn:  # the first may compile
                times[name].append((time.perf_counter() - start) * 1000)
    return {name: (statistics.median(each), min(each)) for name, each in times.items()}


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default="", metavar="TEXT", help="only models whose name contains this")
    parser.add_argument("--turns", type=int, default=15, metavar="N", help="default: %(default)s")
    parser.add_argument("--scale", type=int, default=1, metavar="N", help="divide sizes by N")
    args = parser.parse_args(arguments)
    for name, (model, inputs) in models(args.scale).items():
        if args.models in name:
            found = measure(contenders(model, inputs), args.turns).items()
            print(f"{name}: {', '.join(f'{who} {ms:.3g} ms ({least:.3g})' for who, (ms, least) in found)}", flush=True)


if __name__ == "__main__":
    main()
