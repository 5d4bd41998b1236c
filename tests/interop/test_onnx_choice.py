"""What is taken: what ONNX Runtime computes wrongly, and what makes the whole model faster."""

import copy
import json
import os
import pickle
import platform
import subprocess
import sys
from functools import partial

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
from onnx import helper, numpy_helper  # noqa: E402
from onnx_parts import RNG, dynamic, info, model_of, node  # noqa: E402

from dmlcpu.interop.onnx import BackendRep, InferenceSession, choice, costs, prepare, program  # noqa: E402
from dmlcpu.runtime.isa import Isa, detected  # noqa: E402

LEFT = "left whole: ONNX Runtime is faster here"


@pytest.fixture(autouse=True)
def cut_of_100_microseconds(monkeypatch):
    monkeypatch.setattr(choice, "cost_of_cut", lambda threads: 100_000)


@pytest.fixture
def vnni(monkeypatch, request):
    """Set whether this processor seems to have VNNI."""
    isas = frozenset([Isa.GENERIC, Isa.AVX2, *([Isa.AVXVNNI] if request.param else [])])
    monkeypatch.setattr(choice, "detected", lambda: isas)
    monkeypatch.setattr(choice.platform, "machine", lambda: "x86_64")
    return request.param


def product(a, b, between=(), k=512, n=512, weights=None):
    """Return a model of QLinearMatMul between two other nodes."""
    weights = RNG.integers(-64, 64, (k, n)).astype(b) if weights is None else weights
    zero = np.zeros((), a)
    constants = {"w": weights, "s": np.float32(0.02), "z": zero, "wz": np.zeros((), b), "ys": np.float32(5)}
    nodes = [
        node("Identity", ["x"], ["t"]),
        node("QLinearMatMul", ["t", "s", "z", "w", "s", "wz", "ys", "z"], ["y"], "product"),
        node("DequantizeLinear", ["y", "s", "z"], ["out"]),
    ]
    return model_of(nodes, [info("x", a, ["n", k])], [info("out", np.float32, ["n", n])], constants)


def scattered(operator, shape, **attributes):
    at = [shape[0], 1] if operator == "ScatterND" else list(shape)
    nodes = [node("Neg", ["x"], ["t"]), node(operator, ["t", "i", "u"], ["y"], **attributes)]
    inputs = [info("x", np.float32, [100, shape[1]]), info("i", np.int64, at), info("u", np.float32, list(shape))]
    return model_of(nodes, inputs, [info("y", np.float32, [100, shape[1]])])


def best(columns, shape=(64,)):
    nodes = [node("Neg", ["x"], ["t"]), node("TopK", ["t", "k"], ["v", "i"])]
    inputs = [info("x", np.float32, [*shape, columns])]
    return model_of(nodes, inputs, [info("i", np.int64, [*shape, 5])], {"k": np.array([5])})


GAINS = {
    "int8 by int8": product(np.int8, np.int8, k=1024, n=1024),
    "TopK of long rows": best(50_000),
    "ScatterElements": scattered("ScatterElements", (10_000, 8)),
}
LOSSES = {
    "uint8 by int8": product(np.uint8, np.int8),
    "a little int8 by int8": product(np.int8, np.int8, k=64, n=64),
    "TopK of short rows": best(100),
    "TopK of few": best(1_000, (1,)),
    "ScatterElements of few": scattered("ScatterElements", (10, 8)),
    "ScatterND that overwrites": scattered("ScatterND", (10_000, 8)),
    "TopK of as many as there are": best("n", ("rows",)),
}


@pytest.mark.parametrize("vnni", [True, False], indirect=True)
@pytest.mark.parametrize("name", GAINS)
def test_what_gains_is_taken(name, vnni):
    assert sum(prepare(GAINS[name]).report()["dmlcpu"].values()) == 1


@pytest.mark.parametrize("vnni", [True, False], indirect=True)
@pytest.mark.parametrize("name", LOSSES)
def test_else_the_model_is_one_session(name, vnni):
    prepared = prepare(LOSSES[name])
    assert prepared.report()["dmlcpu"] == {}
    assert prepared.report()["passed on"] == {LEFT: 1}
    assert type(prepared.session).__module__.startswith("onnxruntime")


def test_a_cut_that_costs_more_leaves_the_model_whole(monkeypatch):
    monkeypatch.setattr(choice, "cost_of_cut", lambda threads: 50_000_000)
    report = prepare(GAINS["TopK of long rows"]).report()
    assert (report["dmlcpu"], report["passed on"][LEFT]) == ({}, 1)


@pytest.mark.parametrize("threads", [1, 2])
def test_reductions_on_several_threads_lose_updates_in_onnx_runtime(monkeypatch, threads):
    monkeypatch.setattr(program, "get_num_threads", lambda: threads)
    taken = [bool(prepare(scattered("ScatterND", (n, 8), reduction="add")).report()["dmlcpu"]) for n in (10, 10_000)]
    assert taken == [False, threads > 1]


FULL = RNG.integers(-128, 128, (64, 48)).astype(np.int8)
WEIGHTS = {"full range": FULL, "seven bits": np.clip(FULL, -64, 64)}
WEIGHTS["one of full range"] = np.where(np.arange(64 * 48).reshape(64, 48), 0, -128).astype(np.int8)
WEIGHTS["one pair"] = np.where((np.arange(64)[:, None] < 2) & (np.arange(48) < 1), 127, 0).astype(np.int8)


@pytest.mark.parametrize("vnni", [True, False], indirect=True)
@pytest.mark.parametrize("name", WEIGHTS)
def test_onnx_runtime_is_set_to_be_exact_where_pairs_saturate(name, vnni):
    model = product(np.uint8, np.int8, weights=WEIGHTS[name], k=64, n=48)
    prepared = prepare(model)
    saturates = not vnni and name in ("full range", "one pair")
    wanted = {"QLinearMatMul: ONNX Runtime is set to be exact": 1} if saturates else {}
    assert prepared.report()["passed on"] == wanted | {LEFT: 1}
    # By arithmetic: the result of the weights' sums, where ONNX Runtime's are wrong by default on such a processor.
    if saturates:
        x = np.full((3, 64), 255, np.uint8)
        sums = x.astype(np.int64) @ WEIGHTS[name]
        scale = np.float32(np.float32(0.02) * np.float32(0.02)) / np.float32(5)
        exact = np.clip(np.rint(sums.astype(np.float32) * scale), 0, 255).astype(np.float32) * np.float32(0.02)
        np.testing.assert_array_equal(prepared.run([x])[0], exact)


@pytest.mark.parametrize("vnni", [True, False], indirect=True)
def test_a_dynamically_quantized_product_stays_with_onnx_runtime(vnni):
    prepared = prepare(dynamic())
    assert prepared.report()["dmlcpu"] == {}
    exact = "MatMulInteger: ONNX Runtime is set to be exact"
    assert (exact in prepared.report()["passed on"]) is not vnni


WITHOUT_VNNI = """
import json, sys
import numpy as np
from dmlcpu.interop.onnx import choice, prepare
assert choice.saturates()
prepared = [prepare(sys.argv[1], take=take) for take in ("auto", "all", [])]
x = np.load(sys.argv[2])
np.save(sys.argv[3], [each.run([x])[0] for each in prepared])
print(json.dumps([each.report() for each in prepared]))
"""


def hidden_vnni():
    """Return variables with which Numba, and so this package, sees a processor with AVX2 and no later instructions."""
    from llvmlite import binding

    later = ("avx512", "avx10", "amx", "avxvnni", "evex", "egpr")
    features = [name for name, has in binding.get_host_cpu_features().items() if has and not name.startswith(later)]
    return {"NUMBA_CPU_NAME": "znver3", "NUMBA_CPU_FEATURES": ",".join(f"+{name}" for name in sorted(features))}


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="VNNI and Zen 3 are x86's")
@pytest.mark.skipif(Isa.AVX2 not in detected(), reason="the kernels of a Zen 3 need AVX2")
def test_a_process_that_sees_no_vnni_is_exact(tmp_path):
    """On any processor: the choice follows the variables, the kernels for AVX2 are exact, and the setting is no harm.

    ONNX Runtime reads the processor, not the variables. So that it is exact only because it is set to be shows on a
    processor without VNNI; with VNNI it would be exact anyway.
    """
    model = product(np.uint8, np.int8, weights=FULL, k=64, n=48)
    x = RNG.integers(0, 256, (100, 64)).astype(np.uint8)
    onnx.save(model, tmp_path / "model.onnx")
    np.save(tmp_path / "x.npy", x)
    paths = [str(tmp_path / name) for name in ("model.onnx", "x.npy", "found.npy")]
    command, variables = [sys.executable, "-c", WITHOUT_VNNI, *paths], os.environ | hidden_vnni()
    done = subprocess.run(command, env=variables, check=True, stdout=subprocess.PIPE, text=True)
    auto, everything, nothing = json.loads(done.stdout)
    exact = {"QLinearMatMul: ONNX Runtime is set to be exact": 1}
    assert (auto["dmlcpu"], auto["passed on"]) == ({}, exact | {LEFT: 1})
    assert everything["dmlcpu"] == {"QLinearMatMul": 1}
    assert (nothing["dmlcpu"], nothing["passed on"]) == ({}, exact | {LEFT: 1})
    sums = (x.astype(np.int64) @ FULL).astype(np.float32)
    bytes_ = np.clip(np.rint(sums * (np.float32(0.02) * np.float32(0.02) / np.float32(5))), 0, 255)
    for found in np.load(tmp_path / "found.npy"):
        np.testing.assert_array_equal(found, bytes_.astype(np.float32) * np.float32(0.02))


def convolution(weights):
    """Return a model of a quantized convolution, of sums up to some 100,000 a step of y."""
    constants = {"w": weights, "one": np.float32(1), "z": np.uint8(0), "wz": np.int8(0), "ys": np.float32(9_000)}
    nodes = [node("QLinearConv", ["x", "one", "z", "w", "one", "wz", "ys", "z"], ["y"])]
    sizes = [1, weights.shape[1], 9, 9]
    return model_of(nodes, [info("x", np.uint8, sizes)], [info("y", np.uint8, [1, len(weights), 7, 7])], constants)


@pytest.mark.parametrize("vnni", [True, False], indirect=True)
def test_convolutions_are_exact_by_arithmetic(vnni):
    weights = np.abs(RNG.integers(-127, 128, (8, 32, 3, 3))).astype(np.int8)
    prepared, x = prepare(convolution(weights)), RNG.integers(128, 256, (1, 32, 9, 9)).astype(np.uint8)
    wanted = {} if vnni else {"QLinearConv: ONNX Runtime is set to be exact": 1}
    assert prepared.report() == {"dmlcpu": {}, "onnxruntime": {"QLinearConv": 1}, "passed on": wanted}
    windows = np.lib.stride_tricks.sliding_window_view(x[0].astype(np.int64), (3, 3), axis=(1, 2))
    sums = np.einsum("chwij,mcij->mhw", windows, weights.astype(np.int64))
    exact = np.clip(np.rint(sums.astype(np.float32) / np.float32(9_000)), 0, 255)
    if not vnni:
        np.testing.assert_array_equal(prepared.run([x])[0][0], exact)


def test_what_onnx_runtime_refuses_to_compute_exactly_is_run_and_said(monkeypatch):
    """Set to be exact, it refuses int8 by int8. A product of that kind alone needs no setting."""
    monkeypatch.setattr(choice, "saturates", lambda: True)
    alone = product(np.int8, np.int8, weights=FULL, k=64, n=48)
    assert prepare(alone).report()["passed on"] == {LEFT: 1}
    both = copy.deepcopy(alone)
    both.graph.input.append(info("a", np.uint8, ["n", 64]))
    both.graph.output.append(info("sums", np.int32, ["n", 48]))
    both.graph.node.append(node("MatMulInteger", ["a", "w"], ["sums"]))
    report = prepare(both).report()["passed on"]
    assert (
        "MatMulInteger: it may saturate: ONNX Runtime refuses to be exact in a model that also multiplies int8 by int8"
        in report
    )


SATURATING = product(np.uint8, np.int8, weights=np.abs(FULL), k=64, n=48)


@pytest.mark.parametrize("again", [lambda each: each, copy.copy, lambda each: pickle.loads(pickle.dumps(each))])
@pytest.mark.parametrize("vnni", [False], indirect=True)
def test_a_caller_may_prefer_onnx_runtimes_sums(again, vnni):
    """Then the model is one plain session, and the report says what may saturate."""
    x = np.full((3, 64), 255, np.uint8)
    theirs = onnxruntime.InferenceSession(SATURATING.SerializeToString(), providers=["CPUExecutionProvider"])
    sessions = [InferenceSession(SATURATING, exact=False), prepare(SATURATING, exact=False)]
    for session in map(again, sessions):
        assert session.report()["passed on"] == {"QLinearMatMul: it may saturate, as exact=False allows": 1, LEFT: 1}
        run = session.run if session.__class__ is BackendRep else partial(session.run, None)
        np.testing.assert_array_equal(run({"x": x})[0], theirs.run(None, {"x": x})[0])


@pytest.mark.parametrize("vnni", [False], indirect=True)
def test_a_caller_who_prefers_them_leaves_what_may_be_wrong_but_not_what_is_refused(vnni):
    for a, b, taken in ((np.uint8, np.int8, {}), (np.int8, np.uint8, {"MatMulInteger": 1})):
        nodes = [node("Identity", ["a"], ["t"]), node("MatMulInteger", ["t", "b"], ["y"])]
        model = model_of(nodes, [info("a", a, ["m", 8]), info("b", b, [8, 8])], [info("y", np.int32, ["m", 8])])
        assert prepare(model, exact=False).report()["dmlcpu"] == taken
    assert prepare(scattered("ScatterND", (10_000, 8), reduction="add"), exact=False).report()["dmlcpu"] == {}


def test_an_empty_list_leaves_the_model_whole():
    assert prepare(GAINS["TopK of long rows"], take=[]).report()["dmlcpu"] == {}


def test_weights_in_a_branch_are_looked_at(monkeypatch):
    monkeypatch.setattr(choice, "saturates", lambda: True)
    constant = node("Constant", [], ["w"], value=numpy_helper.from_array(FULL[:, :8]))
    inner = [constant, node("MatMulInteger", ["x", "w"], ["y"])]
    body = helper.make_graph(inner, "branch", [], [info("y", np.int32, ["n", 8])])
    nodes = [node("If", ["yes"], ["z"], then_branch=body, else_branch=body)]
    inputs, outputs = [info("x", np.uint8, ["n", 64])], [info("z", np.int32, ["n", 8])]
    prepared = prepare(model_of(nodes, inputs, outputs, {"yes": np.array(True)}))
    assert prepared.report()["passed on"]["MatMulInteger: ONNX Runtime is set to be exact"] == 2
    x = np.full((3, 64), 255, np.uint8)
    np.testing.assert_array_equal(prepared.run([x])[0], x.astype(int) @ FULL[:, :8])


@pytest.mark.parametrize("vnni", [True, False], indirect=True)
def test_weights_that_are_no_constants_are_multiplied_here_if_pairs_may_saturate(vnni):
    nodes = [node("Identity", ["a"], ["t"]), node("MatMulInteger", ["t", "b"], ["y"])]
    inputs = [info("a", np.uint8, ["m", 8]), info("b", np.int8, [8, 8])]
    report = prepare(model_of(nodes, inputs, [info("y", np.int32, ["m", 8])])).report()
    assert report["dmlcpu"] == ({} if vnni else {"MatMulInteger": 1})


def test_int8_by_uint8_is_taken():
    """Of all products of int8 by uint8 it has only MatMulInteger, which is slow."""
    nodes = [node("Identity", ["a"], ["t"]), node("MatMulInteger", ["t", "b"], ["y"])]
    b = RNG.integers(0, 256, (8, 8)).astype(np.uint8)
    prepared = prepare(model_of(nodes, [info("a", np.int8, ["m", 8])], [info("y", np.int32, ["m", 8])], {"b": b}))
    a = RNG.integers(-128, 128, (3, 8)).astype(np.int8)
    assert prepared.run([a])[0].tolist() == (a.astype(int) @ b).tolist()


def test_the_cost_of_a_cut_is_measured_once_and_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(costs.os, "getloadavg", lambda: (0, 0, 0), raising=False)
    path, measured = tmp_path / "onnx.json", iter([5, 7])
    for threads, cost in ((1, 5), (1, 5), (2, 7), (2, 7)):
        assert costs._kept(path, threads, lambda: next(measured)) == cost
    assert json.loads(path.read_text()) == {"1": 5, "2": 7}
    assert [each.name for each in tmp_path.iterdir()] == ["onnx.json"]


def test_the_shipped_cost_holds_where_nothing_is_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(costs.os, "getloadavg", lambda: (99, 0, 0), raising=False)
    for path in (None, tmp_path / "onnx.json", tmp_path / "none" / "onnx.json"):
        for threads, cost in ((1, 50_000), (2, 150_000), (16, 150_000)):
            assert costs._kept(path, threads, lambda: 1 // 0) == cost
    (tmp_path / "onnx.json").write_text("[1]")
    assert costs._read(tmp_path / "onnx.json") == {}


def test_a_cut_costs_something():
    assert 20_000 <= costs._measured(1) < 50_000_000


def test_floats_between_quantizers_are_exact_where_onnx_runtime_makes_bytes_of_them():
    weights, one = RNG.integers(-128, 128, (256, 32)).astype(np.int8), np.float32(1)
    constants = {
        "w": weights,
        "one": one,
        "z": np.uint8(0),
        "wz": np.int8(0),
        "ys": np.float32(30_000),
        "yz": np.uint8(99),
    }
    nodes = [
        node("DequantizeLinear", ["x", "one", "z"], ["a"]),
        node("DequantizeLinear", ["w", "one", "wz"], ["b"]),
        node("MatMul", ["a", "b"], ["y"]),
        node("QuantizeLinear", ["y", "ys", "yz"], ["out"]),
    ]
    model = model_of(nodes, [info("x", np.uint8, ["n", 256])], [info("out", np.uint8, ["n", 32])], constants)
    x = RNG.integers(0, 256, (64, 256)).astype(np.uint8)
    sums = (x.astype(np.int64) @ weights).astype(np.float32)
    exact = np.clip(np.rint(sums * (one / np.float32(30_000))) + 99, 0, 255)
    np.testing.assert_array_equal(prepare(model).run([x])[0], exact)
