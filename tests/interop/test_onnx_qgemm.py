"""QGemm of ONNX Runtime's domain: a product of bytes with an int32 C in its sums."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
from onnx_parts import RNG, info, model_of, node  # noqa: E402

from dmlcpu.interop.onnx import prepare  # noqa: E402

K, N = 12, 5
BIASES = {"none": None, "one": np.int32(700), "columns": RNG.integers(-5000, 5000, N).astype(np.int32)}
BIASES["rows"] = RNG.integers(-5000, 5000, (3, 1)).astype(np.int32)


def model(a, b, bias, is_float, by_column, **attributes):
    """Return a model of one node, and its constants."""
    shape = (N, K) if attributes.get("transB") else (K, N)
    low, high = (-64, 64) if b == np.int8 else (0, 256)  # with seven bits, ONNX Runtime is exact on any processor
    constants = {"as": np.float32(0.031), "az": np.array(7, a), "b": RNG.integers(low, high, shape).astype(b)}
    constants["bs"] = RNG.random(N, np.float32) if by_column else np.float32(0.02)
    constants["bz"] = RNG.integers(0, 9, N).astype(b) if by_column else np.array(3, b)
    constants |= {} if bias is None else {"c": bias}
    constants |= {} if is_float else {"ys": np.float32(1.7), "yz": np.array(11, a)}
    names = ["x", "as", "az", "b", "bs", "bz", "" if bias is None else "c", *([] if is_float else ["ys", "yz"])]
    nodes = [node("QGemm", names, ["y"], "gemm", domain="com.microsoft", **attributes)]
    sizes = [K, 3] if attributes.get("transA") else [3, K]
    output = info("y", np.float32 if is_float else a, [3, N])
    return model_of(nodes, [info("x", a, sizes)], [output], constants, domains=["com.microsoft"]), sizes, constants


def exact(x, c, alpha=1.0, transA=0, transB=0):
    """Compute it by its definition."""
    a = (x.T if transA else x).astype(np.int64) - c["az"]
    b = (c["b"].T if transB else c["b"]).astype(np.int64)
    sums = a @ (b - c["bz"]) + c.get("c", 0)
    scale = np.float32(alpha) * c["as"] * c["bs"]
    if "ys" not in c:
        return sums.astype(np.float32) * scale
    limits = np.iinfo(x.dtype)
    return np.clip(np.rint(sums.astype(np.float32) * (scale / c["ys"])) + float(c["yz"]), limits.min, limits.max)


@pytest.mark.parametrize(
    ("bias", "by_column", "is_float"),
    [
        ("none", False, False),
        ("columns", True, False),
        ("rows", False, False),
        ("one", True, True),
        ("none", False, True),
    ],
)
@pytest.mark.parametrize("attributes", [{}, {"alpha": 0.3}, {"transA": 1, "transB": 1, "alpha": 2.0}, {"transB": 1}])
@pytest.mark.parametrize("types", [(np.uint8, np.int8), (np.int8, np.int8), (np.uint8, np.uint8)])
def test_qgemm_is_exact_and_as_in_onnx_runtime(types, attributes, bias, by_column, is_float):
    made, sizes, constants = model(*types, BIASES[bias], is_float, by_column, **attributes)
    x = RNG.integers(*((-128, 128) if types[0] == np.int8 else (0, 256)), sizes).astype(types[0])
    prepared = prepare(made, take="all")
    assert prepared.report()["dmlcpu"] == {"com.microsoft.QGemm": 1}
    (y,) = prepared.run([x])
    np.testing.assert_array_equal(y, exact(x, constants, **attributes))
    theirs = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    (wanted,) = theirs.run(None, {"x": x})
    assert y.dtype == wanted.dtype
    np.testing.assert_array_equal(y, wanted)


def test_sums_beyond_32_bits_are_exact():
    """They wrap in ONNX Runtime."""
    made, _, constants = model(np.uint8, np.int8, np.full(N, 2**31 - 1, np.int32), True, False)
    x = np.full((3, K), 255, np.uint8)
    np.testing.assert_array_equal(prepare(made, take="all").run([x])[0], exact(x, constants))


def test_report_names_a_qgemm_that_is_left():
    made, *_ = model(np.uint8, np.int8, None, False, False)
    nodes = made.graph.node
    nodes[0].input[0] = "t"
    nodes.insert(0, node("Identity", ["x"], ["t"]))
    report = prepare(made).report()
    assert report["onnxruntime"]["com.microsoft.QGemm"] == 1
    assert report["passed on"] == {"left whole: ONNX Runtime is faster here": 1}


def test_a_matrix_that_one_node_turns_is_packed_for_each():
    nodes = [
        node("QGemm", ["x", "s", "z", "b", "s", "bz"], [name], domain="com.microsoft", transB=turned)
        for turned, name in enumerate(("y", "turned"))
    ]
    b = RNG.integers(-64, 64, (K, K)).astype(np.int8)
    constants = {"s": np.float32(1), "z": np.uint8(0), "b": b, "bz": np.int8(0)}
    outputs = [info(name, np.float32, [3, K]) for name in ("y", "turned")]
    made = model_of(nodes, [info("x", np.uint8, [3, K])], outputs, constants, domains=["com.microsoft"])
    x = RNG.integers(0, 256, (3, K)).astype(np.uint8)
    y, turned = prepare(made, take="all").run([x])
    np.testing.assert_array_equal(y, x.astype(int) @ b)
    np.testing.assert_array_equal(turned, x.astype(int) @ b.T)
