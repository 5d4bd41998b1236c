"""A whole model of ONNX Runtime's quantize_dynamic through the backend."""

import numpy as np
import pytest
from asv_files import load

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from onnx.reference import ReferenceEvaluator

from dmlcpu.interop.onnx import prepare

OURS = {"DequantizeLinear", "DynamicQuantizeLinear", "Erf", "com.microsoft.MatMulIntegerToFloat"}


@pytest.fixture(scope="module")
def model():
    transformer = load("benchmarks.transformer")
    return transformer.quantized(transformer.transformer(width=32, layers=2))


@pytest.mark.parametrize("rest", ["evaluator", "onnxruntime"])
@pytest.mark.parametrize("batch", [1, 3])
def test_quantized_transformer_runs_whole(model, batch, rest):
    tokens = {"tokens": load("benchmarks.transformer").tokens(batch, 7)}
    (scores,) = prepare(model, rest=rest).run(tokens)
    # Erf may differ in the last place, which one step of a quantized tensor may follow.
    np.testing.assert_allclose(scores, ReferenceEvaluator(model).run(None, tokens)[0], atol=0.02, strict=True)
    assert scores.shape == (batch, 8)
    assert np.ptp(scores) > 0.1


@pytest.mark.parametrize("rest", ["evaluator", "onnxruntime"])
def test_operators_that_are_not_ours_are_named(model, rest):
    report = prepare(model, rest=rest).report()
    assert report["dmlcpu"]["com.microsoft.MatMulIntegerToFloat"] == 2 * 6 + 1
    assert {"DynamicQuantizeLinear", "com.microsoft.MatMulIntegerToFloat"} <= report["dmlcpu"].keys() <= OURS
    assert {"Add", "LayerNormalization", "Softmax"} <= report[rest].keys()
    assert not {"MatMulInteger", "Cast"} & report[rest].keys()
