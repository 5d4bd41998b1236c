"""Groups of nodes that become one call."""

import numpy as np
import pytest
from onnx_parts import BIAS, RNG, SCALE, X, assert_as_the_reference, dynamic, info, needs_runtime, node, quantized

from dmlcpu.interop import onnx as ours


def test_a_dynamically_quantized_product_is_one_call():
    model = dynamic()
    before = model.SerializeToString(deterministic=True)
    prepared = ours.prepare(model, take="all")
    assert model.SerializeToString(deterministic=True) == before
    assert prepared.report()["dmlcpu"] == {
        "DynamicQuantizeLinear": 1,
        "TopK": 1,
        "com.microsoft.MatMulIntegerToFloat": 1,
    }
    assert prepared.report()["onnxruntime"] == {"Neg": 1, "Relu": 1}
    for x in (X, X[:1]):
        assert_as_the_reference(model, prepared, {"x": x})


@pytest.mark.parametrize(
    "changes",
    [
        {"outputs": [info("sums", np.int32, ["n", 6])]},
        {"outputs": [info("floats", np.float32, ["n", 6])]},
        {"constants": {"scale": SCALE[:, None].T.repeat(5, 0)}},
        {"scales": node("Mul", ["scale", "scale"], ["scales"])},
        {"scales": node("Identity", ["scale"], ["scales"])},
        {"scales": node("Add", ["q_scale", "scale"], ["scales"])},
    ],
    ids=["sums are read", "floats are read", "a scale a row", "other scales", "one scale", "a sum"],
)
def test_other_groups_stay_nodes(changes):
    model = dynamic(**changes)
    prepared = ours.prepare(model, take="all")
    assert "MatMulInteger" in prepared.report()["dmlcpu"]
    assert_as_the_reference(model, prepared, {"x": X})


@pytest.mark.parametrize(
    "changes",
    [
        {"outputs": [info("scaled", np.float32, ["n", 6])]},
        {"outputs": [info("scales", np.float32, [6])]},
        {"constants": {"bias": BIAS[:1]}},
        {"constants": {"scale": np.float32(0.25)}},
        {
            "scaled": node("Mul", ["scales", "floats"], ["scaled"]),
            "scales": node("Mul", ["scale", "q_scale"], ["scales"]),
        },
    ],
    ids=["scaled is read", "scales are read", "one bias", "one scale", "the other way round"],
)
def test_parts_of_a_group_are_one_call(changes):
    model = (
        dynamic(**changes) if "scaled" not in changes else dynamic(scales=changes["scales"], scaled=changes["scaled"])
    )
    prepared = ours.prepare(model, take="all")
    assert prepared.report()["dmlcpu"]["com.microsoft.MatMulIntegerToFloat"] == 1
    assert_as_the_reference(model, prepared, {"x": X})


def test_a_product_between_quantizers_is_one_call_if_asked_for():
    model, x = quantized(), RNG.standard_normal((1000, 8), np.float32)
    (plain,), (joined,) = (ours.prepare(model, take="all", qdq=qdq).run([x]) for qdq in (False, True))
    assert ours.prepare(model, take="all", qdq=True).report()["dmlcpu"]["QLinearMatMul"] == 1
    assert "QLinearMatMul" not in ours.prepare(model, take="all").report()["dmlcpu"]
    assert joined.dtype == plain.dtype == np.uint8
    assert np.abs(joined.astype(int) - plain).max() <= 1


@needs_runtime
def test_quantizers_are_left_to_onnx_runtime():
    report = ours.prepare(quantized(), take="all").report()
    assert report["dmlcpu"] == {}
    assert report["passed on"] == {}
