"""DynamicQuantizeMatMul of ONNX Runtime's domain: floats quantized by their range, times bytes, with a bias."""

import sys

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
from onnx_parts import RNG, info, model_of, node  # noqa: E402

from dmlcpu import reference  # noqa: E402
from dmlcpu.errors import DmlError  # noqa: E402
from dmlcpu.interop.onnx import choice, kernels, prepare, program, run_node  # noqa: E402

K, N = 12, 5
TAKEN = {"com.microsoft.DynamicQuantizeMatMul": 1}


def constants(dtype, by_column=False, zero=False, bias=False, low=-64, sizes=(K, N)):
    """Return what x is multiplied by; with seven bits, ONNX Runtime is exact on any processor."""
    low, high = (low, -low) if dtype == np.int8 else (0, 256)
    found = {"b": RNG.integers(low, high, sizes).astype(dtype)}
    found["bs"] = RNG.random(N, np.float32) if by_column else np.float32(0.02)
    if zero:
        found["bz"] = RNG.integers(0, 9, N).astype(dtype) if by_column else np.array(3, dtype)
    return found | ({"bias": RNG.standard_normal(N, np.float32)} if bias else {})


def model(given, shape=("n", K), between=False):
    names = ["t" if between else "x", *(name if name in given else "" for name in ("b", "bs", "bz", "bias"))]
    nodes = [node("DynamicQuantizeMatMul", names, ["y"], domain="com.microsoft")]
    nodes = [node("Identity", ["x"], ["t"]), *nodes] if between else nodes
    output = info("y", np.float32, [*shape[:-1], given["b"].shape[-1]])
    return model_of(nodes, [info("x", np.float32, shape)], [output], given, domains=["com.microsoft"])


def theirs(made, x):
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0]


def wanted(given, x):
    return reference.dynamic_quantize_matmul(x, given["b"], given["bs"], given.get("bz"), given.get("bias"))


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("by_column", [False, True])
@pytest.mark.parametrize(("zero", "bias"), [(False, False), (True, True), (True, False), (False, True)])
@pytest.mark.parametrize("shape", [(3, K), (2, 3, K)])
def test_it_has_the_bits_of_onnx_runtime(dtype, by_column, zero, bias, shape):
    given, x = constants(dtype, by_column, zero, bias), RNG.standard_normal(shape, np.float32)
    made = model(given, shape)
    prepared = prepare(made, take="all")
    assert prepared.report()["dmlcpu"] == TAKEN
    (y,) = prepared.run([x])
    np.testing.assert_array_equal(y, wanted(given, x), strict=True)
    np.testing.assert_array_equal(y, theirs(made, x), strict=True)


def test_weights_of_full_range_are_exact():
    """ONNX Runtime's products of them saturate without VNNI."""
    given, x = constants(np.int8, low=-128), RNG.uniform(0, 1, (40, K)).astype(np.float32)
    given["b"] = np.abs(given["b"] | 64)
    for take in ("auto", "all"):
        np.testing.assert_array_equal(prepare(model(given), take=take).run([x])[0], wanted(given, x), strict=True)


NAN, INF = np.nan, np.inf
ROWS = [[1, 2, NAN, -3], [NAN] * 2, [INF, 1, -2], [-INF, 1, 2], [INF, -INF, 1], [3e38, -3e38, 1], [0, 0]]


@pytest.mark.parametrize("row", ROWS)
def test_floats_without_a_range_are_onnx_runtimes(row):
    made, x = model(constants(np.int8, True, True, True)), np.resize(np.array(row, np.float32), (4, K))
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(prepare(made, take="all").run([x])[0], theirs(made, x))


def test_other_errors_are_the_functions_own():
    given = constants(np.int8) | {"bs": np.float32([1, 2])}
    with pytest.raises(DmlError, match=r"dynamic_quantize_matmul: b_scale\.shape is \(2,\)"):
        prepare(model(given), take="all").run([np.ones((3, K), np.float32)])


def test_without_onnx_runtime_they_are_refused(monkeypatch):
    given, x = constants(np.int8, low=-128), RNG.standard_normal((3, K), np.float32)
    with monkeypatch.context() as patched:
        patched.setattr(program, "runtime", lambda: None)
        prepared = prepare(model(given))
    np.testing.assert_array_equal(prepared.run([x])[0], wanted(given, x))
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    x[1, 2] = NAN
    with pytest.raises(DmlError, match=r"^dynamic_quantize_matmul: x\[1, 2\] is nan"):
        prepared.run([x])


def test_constant_weights_are_packed_once(monkeypatch):
    packed, pack = [], kernels.pack_b
    monkeypatch.setattr(kernels, "pack_b", lambda b: packed.append(b.shape) or pack(b))
    given, x = constants(np.int8), RNG.standard_normal((3, K), np.float32)
    prepared = prepare(model(given), take="all")
    assert np.array_equal(*(prepared.run([x])[0] for _ in range(2)))
    assert packed == [(K, N)]


def test_one_node():
    given, x = constants(np.int8, bias=True), RNG.standard_normal((3, K), np.float32)
    single = node("DynamicQuantizeMatMul", ["x", "b", "s", "", "bias"], ["y"], domain="com.microsoft")
    (y,) = run_node(single, [x, *given.values()])
    np.testing.assert_array_equal(y, wanted(given, x))


@pytest.mark.parametrize("sizes", [(1, 256, 256), (128, 768, 3072)])
@pytest.mark.parametrize("saturates", [False, True])
def test_it_stays_with_onnx_runtime(monkeypatch, sizes, saturates):
    """A cut costs more than a product of floats gains."""
    monkeypatch.setattr(choice, "saturates", lambda: saturates)
    rows, *others = sizes
    prepared = prepare(model(constants(np.int8, sizes=others), (rows, others[0]), between=True))
    assert prepared.report()["dmlcpu"] == {}
    assert prepared.report()["passed on"] == {"left whole: ONNX Runtime is faster here": 1}


@pytest.mark.parametrize("saturates", [False, True])
@pytest.mark.parametrize("exact", [False, True])
def test_weights_that_are_no_constants_are_multiplied_here_if_pairs_may_saturate(monkeypatch, saturates, exact):
    monkeypatch.setattr(choice, "saturates", lambda: saturates)
    nodes = [node("Neg", ["x"], ["t"]), node("DynamicQuantizeMatMul", ["t", "b", "s"], ["y"], domain="com.microsoft")]
    inputs = [info("x", np.float32, ["n", K]), info("b", np.int8, [K, N])]
    made = model_of(nodes, inputs, [info("y", np.float32, ["n", N])], {"s": np.float32(0.5)}, domains=["com.microsoft"])
    prepared, x = prepare(made, exact=exact), RNG.standard_normal((4, K), np.float32)
    assert prepared.report()["dmlcpu"] == (TAKEN if saturates and exact else {})
    if saturates and exact:
        given = {"b": RNG.integers(-128, 128, (K, N)).astype(np.int8), "bs": np.float32(0.5)}
        np.testing.assert_array_equal(prepared.run([x, given["b"]])[0], wanted(given, -x), strict=True)
