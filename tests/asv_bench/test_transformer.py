"""A whole model of ONNX Runtime's quantize_dynamic through the backend."""

import numpy as np
import pytest
from asv_files import load

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from onnx.reference import ReferenceEvaluator

from dmlcpu.interop.onnx import prepare


@pytest.fixture(scope="module")
def model():
    transformer = load("benchmarks.transformer")
    return transformer.quantized(transformer.transformer(width=32, layers=2))


@pytest.mark.parametrize("take", ["auto", "all"])
@pytest.mark.parametrize("batch", [1, 3])
def test_quantized_transformer_runs_whole(model, batch, take):
    tokens = {"tokens": load("benchmarks.transformer").tokens(batch, 7)}
    (scores,) = prepare(model, take=take).run(tokens)
    # Erf may differ in the last place, which one step of a quantized tensor may follow.
    np.testing.assert_allclose(scores, ReferenceEvaluator(model).run(None, tokens)[0], atol=0.02, strict=True)
    assert scores.shape == (batch, 8)
    assert np.ptp(scores) > 0.1


def test_what_can_be_taken_is_named(model):
    report = prepare(model, take="all").report()
    assert report["dmlcpu"]["com.microsoft.MatMulIntegerToFloat"] == 2 * 6 + 1
    assert {"DynamicQuantizeLinear", "com.microsoft.MatMulIntegerToFloat"} == report["dmlcpu"].keys()
    assert {"Add", "LayerNormalization", "Softmax"} <= report["onnxruntime"].keys()
    assert not {"MatMulInteger", "Cast"} & report["onnxruntime"].keys()


def test_it_is_left_whole_because_cuts_cost_more(model):
    report = prepare(model).report()
    assert report["dmlcpu"] == {}
    assert report["passed on"]["left whole: ONNX Runtime is faster here"] == 13
