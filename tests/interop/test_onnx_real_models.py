"""Models that packages bring, beside ONNX Runtime: left out where a package is not installed."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

from dmlcpu.interop.onnx import prepare  # noqa: E402

RNG = np.random.default_rng(0)
IMAGES = {"x": RNG.standard_normal((1, 3, 48, 192), np.float32)}
SOUND = {
    "input": RNG.standard_normal((1, 512), np.float32),
    "state": RNG.standard_normal((2, 1, 128), np.float32),
    "sr": np.array(16_000),
}
MODELS = {
    "silero_vad/data/silero_vad_16k_op15.onnx": SOUND,
    "silero_vad/data/silero_vad_op18_ifless.onnx": SOUND,
    "rapidocr/models/ch_ppocr_mobile_v2.0_cls_mobile.onnx": IMAGES,
    "rapidocr/models/PP-OCRv6_rec_small.onnx": IMAGES,
    "magika/models/standard_v3_3/model.onnx": {"bytes": RNG.integers(0, 256, (1, 2048)).astype(np.int32)},
}


def file_of(name):
    """Return the path of a package's file; the package is not imported."""
    package, _, path = name.partition("/")
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        pytest.skip(f"{package} is not installed")
    return Path(next(iter(spec.submodule_search_locations)), path)


def session(model):
    return onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])


def feeds_of(session, values):
    return {each.name: values[each.name] for each in session.get_inputs()}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_of_which_nothing_is_taken_gives_onnx_runtimes_results(name):
    path, theirs = file_of(name), session(str(file_of(name)))
    feeds, prepared = feeds_of(theirs, MODELS[name]), prepare(path)
    assert prepared.report()["dmlcpu"] == {}
    for mine, right in zip(prepared.run(feeds), theirs.run(None, feeds), strict=True):
        np.testing.assert_allclose(mine, right, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", MODELS)  # of silero_vad_16k_op15 quantize_dynamic writes nodes that are not sorted
@pytest.mark.parametrize("take", ["auto", "all"])
def test_dynamically_quantized(name, take, tmp_path):
    """Weights of seven bits, with which ONNX Runtime is exact on processors without VNNI, too."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    path = tmp_path / "quantized.onnx"
    quantize_dynamic(file_of(name), path, ["MatMul"], weight_type=QuantType.QInt8, per_channel=True, reduce_range=True)
    theirs, prepared = session(str(path)), prepare(path, take=take)
    feeds = feeds_of(theirs, MODELS[name])
    products = sum(node.op_type == "MatMulInteger" for node in onnx.load(path).graph.node)
    taken = prepared.report()["dmlcpu"]
    found = taken.get("com.microsoft.MatMulIntegerToFloat", 0) + taken.get("MatMulInteger", 0)
    assert found == (products if take == "all" else 0)
    for mine, right in zip(prepared.run(feeds), theirs.run(None, feeds), strict=True):
        np.testing.assert_allclose(mine, right, rtol=1e-2, atol=1e-3)


def test_what_skl2onnx_writes():
    skl2onnx = pytest.importorskip("skl2onnx")
    neighbors = pytest.importorskip("sklearn.neighbors")
    x, y = RNG.standard_normal((200, 5), np.float32), RNG.integers(0, 3, 200)
    model = skl2onnx.to_onnx(neighbors.KNeighborsClassifier(3).fit(x, y), x[:1], target_opset=17)
    theirs, prepared = session(model.SerializeToString()), prepare(model, take="all")
    labels, chances = prepared.run([x])
    wanted, others = theirs.run(None, {theirs.get_inputs()[0].name: x})
    assert labels.tolist() == wanted.tolist()
    for mine, right in zip(chances, others, strict=True):
        assert mine == pytest.approx(right)
    assert prepared.report()["dmlcpu"] == {"TopK": 1}
