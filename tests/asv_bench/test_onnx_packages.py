"""Models that packages bring, in ONNX Runtime and prepared: left out where a package is not installed."""

import re

import numpy as np
import pytest
from asv_files import load

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

from dmlcpu import get_num_threads  # noqa: E402
from dmlcpu.interop.onnx import prepare  # noqa: E402

RNG = np.random.default_rng(0)
packages = load("onnx_packages")
SOME = [model for model in packages.MODELS if model.startswith(("silero_vad/data/silero_vad_1", "magika"))]
SOME += ["rapidocr/models/ch_ppocr_mobile_v2.0_cls_mobile.onnx", "rapidocr/models/PP-OCRv6_rec_small.onnx"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("quantized")


def path_of(model):
    path = packages.path_of(model)
    return path if path and path.exists() else pytest.skip(f"{model.partition('/')[0]} is not installed")


def opened(path, model):
    """Return a session of ONNX Runtime, and its inputs."""
    session = packages.session_of(str(path), get_num_threads())
    return session, packages.feeds_of(session, packages.MODELS[model])


@pytest.mark.parametrize("model", packages.MODELS)
def test_models_as_they_come_give_onnx_runtimes_results(model):
    """All but those whose weights ONNX Runtime's sums saturate with, on a processor without VNNI."""
    path = path_of(model)
    theirs, feeds = opened(path, model)
    prepared = prepare(path)
    assert prepared.report()["dmlcpu"] == {}
    words = packages.compared(prepared, theirs, str(path), feeds)
    is_exact = any("set to be exact" in reason for reason in prepared.report()["passed on"])
    assert words == "equal" or (is_exact and words.endswith("ONNX Runtime's sums saturate"))


@pytest.mark.parametrize("model", SOME)  # of silero_vad_16k_op15 quantize_dynamic writes nodes that are not sorted
@pytest.mark.parametrize("take", ["auto", "all"])
def test_dynamically_quantized(model, take, folder):
    path_of(model)
    path = packages.quantized(model, "dynamic", folder)
    theirs, feeds = opened(path, model)
    prepared = prepare(path, take=take)
    products = sum(node.op_type == "MatMulInteger" for node in onnx.load(path).graph.node)
    taken = prepared.report()["dmlcpu"]
    found = taken.get("com.microsoft.MatMulIntegerToFloat", 0) + taken.get("MatMulInteger", 0)
    assert found == (products if take == "all" else 0)
    for mine, right in zip(prepared.run(feeds), theirs.run(None, feeds), strict=True):
        np.testing.assert_allclose(mine, right, rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize(
    ("model", "form", "taken"),
    [
        ("magika/models/standard_v3_3/model.onnx", "static, QOperator, int8 by int8", "2 QLinearMatMul"),
        ("silero_vad/data/silero_vad_16k_op15.onnx", "as it comes", "whole"),
    ],
)
def test_a_line_says_what_is_taken_and_how_long_it_takes(model, form, taken, folder, capsys):
    path_of(model)
    threads = str(get_num_threads())
    packages.main([str(folder), "--models", model, "--forms", form, "--seconds", "0.01", "--threads", threads])
    line = capsys.readouterr().out.splitlines()[-1]
    assert line.startswith(f"{model}, {form}: {taken}; equal; ")
    assert re.search(r"; [\d.e+]+ / [\d.e+]+ ms = [\d.]+$", line)


def test_a_difference_is_a_part_of_the_largest_number():
    assert packages.difference([np.array([1.0, -3.0])], [np.array([1.0, -2.0])]) == 0.5


def test_what_skl2onnx_writes():
    skl2onnx = pytest.importorskip("skl2onnx")
    neighbors = pytest.importorskip("sklearn.neighbors")
    x, y = RNG.standard_normal((200, 5), np.float32), RNG.integers(0, 3, 200)
    model = skl2onnx.to_onnx(neighbors.KNeighborsClassifier(3).fit(x, y), x[:1], target_opset=17)
    theirs, prepared = packages.session_of(model.SerializeToString()), prepare(model, take="all")
    labels, chances = prepared.run([x])
    wanted, others = theirs.run(None, {theirs.get_inputs()[0].name: x})
    assert labels.tolist() == wanted.tolist()
    for mine, right in zip(chances, others, strict=True):
        assert mine == pytest.approx(right)
    assert prepared.report()["dmlcpu"] == {"TopK": 1}
