"""Nodes that ONNX Runtime computes otherwise than ONNX, or refuses: ONNX's evaluator runs them."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from onnx import helper, numpy_helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

from dmlcpu.interop.onnx import prepare  # noqa: E402

RNG = np.random.default_rng(0)
FLOATS = RNG.standard_normal((1, 32, 1), np.float32)
HEADS = RNG.standard_normal((1, 2, 4, 8), np.float32)


def info(name, value):
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), [None] * value.ndim)


def model_of(operator, inputs, constants, outputs=1, opset=22, **attributes):
    """Return a model of one node between two that ONNX Runtime runs."""
    first, *others = inputs
    names = ["twice", *others, *constants]
    results = [f"r{number}" for number in range(outputs)]
    nodes = [
        helper.make_node("Add", [first, first], ["twice"]),
        helper.make_node(operator, names, results, "the node", **attributes),
        helper.make_node("Neg", results[-1:], ["y"]),
    ]
    initializers = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    infos = [info(name, value) for name, value in inputs.items()]
    graph = helper.make_graph(nodes, "model", infos, [onnx.ValueInfoProto(name="y")], initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    model.graph.output[0].CopyFrom(info("y", ReferenceEvaluator(model).run(None, inputs)[0]))
    return model


CASES = {
    "DFT": model_of("DFT", {"x": FLOATS}, {}),
    "STFT": model_of("STFT", {"x": FLOATS}, {"step": np.int64(4), "window": np.hanning(12).astype(np.float32)}),
    "Dropout": model_of("Dropout", {"x": FLOATS}, {"ratio": np.float32(0.5), "trains": np.array(True)}, seed=0),
    "MaxUnpool": model_of(
        "MaxUnpool",
        {"x": np.ones((1, 1, 2, 2), np.float32)},
        {"places": np.array([[[[5, 7], [13, 15]]]]), "shape": np.array([1, 1, 5, 5])},
        kernel_shape=[2, 2],
        strides=[2, 2],
    ),
    "Attention": model_of(
        "Attention", {"x": HEADS, "k": HEADS, "v": HEADS}, {}, 4, 23, is_causal=1, qk_matmul_output_mode=2
    ),
}
INPUTS = {
    "MaxUnpool": {"x": np.ones((1, 1, 2, 2), np.float32)},
    "Attention": {"x": HEADS, "k": HEADS, "v": HEADS},
}


@pytest.mark.parametrize("name", CASES)
def test_the_evaluator_runs_what_onnx_runtime_computes_otherwise(name):
    model, inputs = CASES[name], INPUTS.get(name, {"x": FLOATS})
    prepared = prepare(model)
    (y,), (wanted,) = prepared.run(inputs), ReferenceEvaluator(model).run(None, inputs)
    np.testing.assert_allclose(y, wanted, rtol=1e-5, atol=1e-5)
    report = prepared.report()
    assert report["onnxruntime"] == {"Add": 1, "Neg": 1}
    assert {name: 1} in (report["evaluator"], report["dmlcpu"])
    assert [name] == [each.partition(":")[0] for each in report["passed on"]]
    assert prepare(model, rest="onnxruntime").report()["onnxruntime"] == {"Add": 1, name: 1, "Neg": 1}


def test_outputs_without_a_name_are_not_the_inputs_without_one():
    nodes = [
        helper.make_node("Attention", ["x", "x", "x"], ["one", "", "", "products"]),
        helper.make_node("Attention", ["one", "x", "x", "", "past", "past"], ["two", "key", "value", "y"]),
    ]
    infos = [info(name, HEADS) for name in ("x", "past")]
    graph = helper.make_graph(nodes, "model", infos, [info("y", HEADS)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    inputs = {"x": HEADS, "past": HEADS[:, :, :3]}
    (y,), (wanted,) = [prepare(model, rest=rest).run(inputs) for rest in ("auto", "onnxruntime")]
    np.testing.assert_allclose(y, wanted, rtol=1e-5, atol=1e-5)


def test_dropout_that_does_not_train_stays_with_onnx_runtime():
    model = model_of("Dropout", {"x": FLOATS}, {"ratio": np.float32(0.5), "trains": np.array(False)})
    prepared = prepare(model)
    assert prepared.report()["onnxruntime"] == {"Add": 1, "Dropout": 1, "Neg": 1}
    np.testing.assert_array_equal(prepared.run({"x": FLOATS})[0], -2 * FLOATS)


def convolution():
    """Return integers convolved with a zero point for each filter, which ONNX Runtime refuses in a run."""
    x, w = RNG.integers(0, 100, (1, 1, 4, 4), np.uint8), RNG.integers(0, 256, (2, 1, 2, 2), np.uint8)
    zeros = np.array([3, 200], np.uint8)
    return model_of("ConvInteger", {"x": x}, {"w": w, "x_zero": np.uint8(7), "w_zero": zeros}), x


def test_the_evaluator_runs_what_onnx_runtime_refuses_in_a_run(capfd):
    model, x = convolution()
    prepared = prepare(model)
    assert prepared.report()["passed on"] == {}
    for _ in range(2):
        (y,) = prepared.run({"x": x})
        np.testing.assert_array_equal(y, ReferenceEvaluator(model).run(None, {"x": x})[0])
    ((reason, count),) = prepared.report()["passed on"].items()
    assert reason.startswith("to the evaluator, in a run: ")
    assert "ConvInteger" in reason
    assert count == 3
    assert capfd.readouterr().err == ""
    with pytest.raises(Exception, match="ConvInteger"):
        prepare(model, rest="onnxruntime").run({"x": x})


def test_what_both_refuse_is_the_error_of_onnx_runtime():
    model = model_of("Gather", {"x": FLOATS, "at": np.array([0])}, {}, axis=1)
    prepared = prepare(model)
    with pytest.raises(Exception, match=r"ONNXRuntimeError.*Gather node"):
        prepared.run({"x": FLOATS, "at": np.array([99])})
    assert prepared.report()["passed on"] == {}
