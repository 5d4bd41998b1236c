"""The backend: whole models, devices, packed weights, and wrong inputs."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

import dmlcpu  # noqa: E402
from dmlcpu.interop import onnx as ours  # noqa: E402
from dmlcpu.interop.onnx import kernels  # noqa: E402

RNG = np.random.default_rng(0)
W1, W2 = (RNG.integers(-128, 128, shape, np.int8) for shape in ((8, 16), (16, 4)))
X = RNG.integers(0, 256, (5, 8), np.uint8)
ONE, ZERO = np.float32(1), np.uint8(0)


def info(name, array_type, shape):
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(array_type)), shape)


def model_of(nodes, inputs, outputs, constants=None, functions=(), domains=()):
    """Make a valid model. constants: name -> array, initializers."""
    initializers = [numpy_helper.from_array(np.asarray(array), name) for name, array in (constants or {}).items()]
    graph = helper.make_graph(nodes, "model", inputs, outputs, initializers)
    opsets = [helper.make_opsetid("", 21), *(helper.make_opsetid(domain, 1) for domain in domains)]
    model = helper.make_model(graph, opset_imports=opsets, functions=functions, ir_version=10)
    onnx.checker.check_model(model)
    return model


def layers():
    """Two layers, and the two best of each row. One weight is an initializer, the other comes from a Constant node."""
    nodes = [
        helper.make_node("QLinearMatMul", ["x", "one", "zero", "w1", "scale", "zero_w", "one", "zero"], ["h"]),
        helper.make_node("Constant", [], ["w2"], value=numpy_helper.from_array(W2)),
        helper.make_node("MatMulInteger", ["h", "w2"], ["s"]),
        helper.make_node("Cast", ["s"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Relu", ["f"], ["r"]),
        helper.make_node("TopK", ["r", "two"], ["values", "indices"]),
    ]
    constants = {"one": ONE, "zero": ZERO, "w1": W1, "scale": np.float32(0.01), "zero_w": np.int8(0), "two": [2]}
    outputs = [info("values", np.float32, ["n", 2]), info("indices", np.int64, ["n", 2])]
    return model_of(nodes, [info("x", np.uint8, ["n", 8])], outputs, constants)


def expected(x):
    h = dmlcpu.reference.quantized_matmul(x, ONE, ZERO, W1, 0.01, None, ONE, ZERO)
    sums = dmlcpu.reference.matmul_integer(h, None, W2, None).astype(np.float32)
    return dmlcpu.reference.top_k(np.maximum(sums, 0), 2)


@pytest.fixture
def packings(monkeypatch):
    """List the matrices that are packed."""
    seen = []
    monkeypatch.setattr(kernels, "pack_b", lambda b: (seen.append(b), dmlcpu.pack_b(b))[1])
    return seen


@pytest.fixture
def multiplied(monkeypatch):
    """List the B of each product."""
    seen = []
    for name, place in (("quantized_matmul", 3), ("matmul_integer", 2), ("matmul_integer_to_float", 3)):
        function = getattr(dmlcpu, name)
        monkeypatch.setattr(dmlcpu, name, lambda *a, _f=function, _p=place: (seen.append(a[_p]), _f(*a))[1])
    return seen


def test_constant_weights_are_packed_once(packings, multiplied):
    prepared = ours.prepare(layers(), take="all")
    assert [b.tolist() for b in packings] == [W1.tolist(), W2.tolist()]
    for x in (X, X[:2], X[:0]):
        for mine, right in zip(prepared.run([x]), expected(x), strict=True):
            np.testing.assert_array_equal(mine, right, strict=True)
    assert len(packings) == 2
    assert [type(b) for b in multiplied] == [dmlcpu.PackedMatrix] * 6


def test_products_of_onnx_runtimes_domain(packings, multiplied):
    """As onnxruntime's optimizer writes them: constant weights with a scale for each column, and a bias."""
    inputs = ["x", "w1", "one", "scale", "", "", "bias"]
    nodes = [helper.make_node("MatMulIntegerToFloat", inputs, ["y"], domain="com.microsoft")]
    scale, bias = RNG.random(16, np.float32), RNG.random(16, np.float32)
    constants = {"w1": W1, "one": ONE, "scale": scale, "bias": bias}
    output = info("y", np.float32, [5, 16])
    model = model_of(nodes, [info("x", np.uint8, [5, 8])], [output], constants, domains=["com.microsoft"])
    right = dmlcpu.reference.matmul_integer_to_float(X, ONE, None, W1, scale, None, bias)
    np.testing.assert_array_equal(ours.run_model(model, [X], take="all")[0], right, strict=True)
    assert len(packings) == 1
    assert [type(b) for b in multiplied] == [dmlcpu.PackedMatrix]
    (y,) = ours.Backend.run_node(nodes[0], [X, W1, ONE, scale, bias])
    np.testing.assert_array_equal(y, right, strict=True)


def test_weights_shared_by_nodes_are_packed_once(packings, multiplied):
    nodes = [helper.make_node("MatMulInteger", ["x", "w1"], [name]) for name in ("y", "z")]
    nodes.append(helper.make_node("Cast", ["w1"], ["plain"], to=TensorProto.INT32))  # takes them unpacked
    outputs = [info("y", np.int32, [5, 16]), info("z", np.int32, [5, 16]), info("plain", np.int32, [8, 16])]
    model = model_of(nodes, [info("x", np.uint8, [5, 8])], outputs, {"w1": W1})
    y, z, plain = ours.run_model(model, {"x": X}, take="all")
    assert len(packings) == 1
    assert len(multiplied) == 2
    assert y.tolist() == z.tolist() == dmlcpu.reference.matmul_integer(X, None, W1, None).tolist()
    assert plain.tolist() == W1.tolist()


def test_initializer_that_is_an_input_is_not_packed(packings):
    """An initializer with the name of an input is its default."""
    nodes = [helper.make_node("MatMulInteger", ["x", "w1"], ["y"])]
    inputs = [info("x", np.uint8, [5, 8]), info("w1", np.int8, [8, 16])]
    prepared = ours.prepare(model_of(nodes, inputs, [info("y", np.int32, [5, 16])], {"w1": W1}), take="all")
    assert packings == []
    assert prepared.defaults == {"w1"}
    for given, weights in (({}, W1), ({"w1": ~W1}, ~W1)):
        (y,) = prepared.run({"x": X, **given})
        assert y.tolist() == dmlcpu.reference.matmul_integer(X, None, weights, None).tolist()
    (y,) = prepared.run(X)
    assert y.tolist() == dmlcpu.reference.matmul_integer(X, None, W1, None).tolist()


def test_a_vector_is_not_packed(packings):
    nodes = [helper.make_node("MatMulInteger", ["x", "v"], ["y"])]
    model = model_of(nodes, [info("x", np.uint8, [5, 8])], [info("y", np.int32, [5])], {"v": W1[:, 0]})
    assert ours.run_model(model, [X], take="all")[0].tolist() == (X.astype(int) @ W1[:, 0]).tolist()
    assert packings == []


def test_report_counts_nodes_by_what_runs_them():
    body = [helper.make_node("Neg", ["a"], ["b"]), helper.make_node("Celu", ["b"], ["c"])]
    function = helper.make_function("mine", "Twice", ["a"], ["c"], body, [helper.make_opsetid("", 21)])
    branches = {
        name: helper.make_graph([helper.make_node(op, ["s"], [name])], name, [], [info(name, np.int32, [5, 16])])
        for name, op in (("then_branch", "Abs"), ("else_branch", "Neg"))
    }
    nodes = [
        helper.make_node("MatMulInteger", ["x", "w"], ["s"]),
        helper.make_node("If", ["which"], ["z"], **branches),
        helper.make_node("Cast", ["z"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Twice", ["f"], ["y"], domain="mine"),
    ]
    inputs = [info("x", np.uint8, [5, 8]), info("which", np.bool_, [])]
    model = model_of(nodes, inputs, [info("y", np.float32, [5, 16])], {"w": W1}, [function], ["mine"])
    report = ours.prepare(model, take="all").report()
    assert report["dmlcpu"] == {"MatMulInteger": 1}
    assert report["onnxruntime"] == {"Abs": 1, "Cast": 1, "Celu": 1, "If": 1, "Neg": 2}
    assert report["passed on"] == {}


def test_other_operators_run_as_in_onnx():
    node = helper.make_node("Softmax", ["x"], ["y"], axis=0)
    model = model_of([node], [info("x", np.float32, [3, 2])], [info("y", np.float32, [3, 2])])
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    np.testing.assert_array_equal(
        ours.run_model(model, [x], take="all")[0], ReferenceEvaluator(model).run(None, {"x": x})[0]
    )


def test_models_come_as_protos_bytes_and_files(tmp_path):
    model = layers()
    path = tmp_path / "model.onnx"
    onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    model = layers()
    for given in (model, model.SerializeToString(), path, str(path)):
        assert ours.run_model(given, [X], take="all")[1].tolist() == expected(X).indices.tolist()


def test_prepared_model_describes_its_inputs_and_outputs():
    prepared = ours.prepare(layers(), take="all")
    assert prepared.inputs == {"x": ours.Tensor(np.dtype(np.uint8), ("n", 8))}
    assert list(prepared.outputs) == ["values", "indices"]
    assert prepared.outputs["indices"] == (np.int64, ("n", 2))
    assert prepared.defaults == frozenset()


@pytest.mark.parametrize(
    ("device", "right"), [("CPU", True), ("CPU:0", True), ("CUDA", False), ("CPU:x", False), ("", False)]
)
def test_devices(device, right):
    assert ours.supports_device(device) is ours.Backend.supports_device(device) is right
    assert ours.is_compatible(layers(), device) is right
    if right:
        assert len(ours.run_model(layers(), [X], device)) == 2
        return
    node = helper.make_node("Relu", ["x"], ["y"])
    for call in (lambda: ours.prepare(layers(), device), lambda: ours.run_node(node, [np.ones(2)], device)):
        with pytest.raises(dmlcpu.UnsupportedError) as caught:
            call()
        assert str(caught.value) == f"onnx: device is {device!r}; allowed: 'CPU'"


def test_unknown_operator_is_refused():
    node = helper.make_node("Foo", ["x"], ["y"], domain="com.example")
    model = model_of([node], [info("x", np.float32, [2])], [info("y", np.float32, [2])], domains=["com.example"])
    assert not ours.is_compatible(model)
    with pytest.raises(dmlcpu.UnsupportedError) as caught:
        ours.prepare(model, take="all")
    assert str(caught.value).startswith("onnx: model is invalid for ONNX Runtime (")
    assert "com.example:Foo" in str(caught.value)
    assert str(caught.value).endswith("; allowed: models that ONNX Runtime runs")


def test_a_model_that_is_not_valid():
    model = layers()
    model.graph.node[0].input[0] = "nowhere"
    assert not ours.is_compatible(model)
    with pytest.raises(dmlcpu.UnsupportedError, match="nowhere"):
        ours.prepare(model, take="all")


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([X, X], "onnx: inputs is 2 arrays; allowed: 1, for x"),
        ([], "onnx: inputs['x'] is missing; allowed: an array"),
        ({}, "onnx: inputs['x'] is missing; allowed: an array"),
        ({"x": X, "w1": W1}, "onnx: inputs['w1'] is unknown; allowed: x"),
        ([X.astype(np.int8)], "onnx: inputs['x'].dtype is int8; allowed: uint8"),
        ([X[0]], "onnx: inputs['x'].shape is (8,); allowed: [n, 8]"),
        ({"x": X[:, :7]}, "onnx: inputs['x'].shape is (5, 7); allowed: [n, 8]"),
    ],
)
def test_inputs_that_do_not_fit(inputs, message):
    with pytest.raises(dmlcpu.BindingError) as caught:
        ours.prepare(layers(), take="all").run(inputs)
    assert str(caught.value) == message


def test_one_node(multiplied):
    node = helper.make_node("MatMulInteger", ["a", "b", "", "z"], ["y"])
    (y,) = ours.run_node(node, [X, W1, np.int8(3)])
    assert y.tolist() == dmlcpu.reference.matmul_integer(X, None, W1, 3).tolist()
    assert len(multiplied) == 1
    old = helper.make_node("Squeeze", ["x"], ["y"], axes=[0])  # an input since version 13
    (y,) = ours.run_node(old, np.ones((1, 2)), opset_version=11)
    assert y.shape == (2,)
    with pytest.raises(dmlcpu.BindingError, match="onnx: inputs is 1 arrays; allowed: 3, for a, b, z"):
        ours.run_node(node, [X])


def test_many_functions_are_prepared():
    names = [f"F{i}" for i in range(40)]
    body = [helper.make_node("Neg", ["a"], ["b"])]
    functions = [helper.make_function("m", name, ["a"], ["b"], body, opset("m")) for name in names]
    nodes = [helper.make_node(name, [f"x{i}"], [f"x{i + 1}"], domain="m") for i, name in enumerate(names)]
    inputs, outputs = [info("x0", np.float32, [2])], [info("x40", np.float32, [2])]
    (y,) = ours.prepare(model_of(nodes, inputs, outputs, functions=functions, domains=["m"]), take="all").run(
        [np.ones(2, "f4")]
    )
    assert y.tolist() == [1, 1]


def opset(domain):
    return [helper.make_opsetid("", 21), helper.make_opsetid(domain, 1)]


def test_function_named_constant_is_not_a_constant(packings):
    body = [helper.make_node("BitwiseNot", ["a"], ["b"])]
    constant = helper.make_function("m", "Constant", ["a"], ["b"], body, opset("m"))
    nodes = [
        helper.make_node("Constant", ["q"], ["w"], domain="m"),
        helper.make_node("MatMulInteger", ["x", "w"], ["y"]),
    ]
    inputs, outputs = [info("x", np.uint8, [5, 8]), info("q", np.int8, [8, 16])], [info("y", np.int32, [5, 16])]
    prepared = ours.prepare(model_of(nodes, inputs, outputs, functions=[constant], domains=["m"]), take="all")
    np.testing.assert_array_equal(prepared.run([X, W1])[0], dmlcpu.matmul_integer(X, None, ~W1, None))
    assert packings == []


def test_a_negative_size_stands_for_any():
    node = helper.make_node("Identity", ["x"], ["y"])
    prepared = ours.prepare(
        model_of([node], [info("x", np.float32, [-1, 2])], [info("y", np.float32, [-1, 2])]), take="all"
    )
    assert prepared.inputs["x"].shape == (None, 2)
    assert prepared.run([np.zeros((3, 2), np.float32)])[0].shape == (3, 2)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "onnx: inputs['x'] is None; allowed: an array"),
        (np.array(["a", "b"]), "onnx: inputs['x'].dtype is <U1; allowed: float32"),
        (np.array([1, 2], object), "onnx: inputs['x'].dtype is object; allowed: float32"),
    ],
)
def test_inputs_of_other_kinds(value, message):
    node = helper.make_node("Identity", ["x"], ["y"])
    prepared = ours.prepare(model_of([node], [info("x", np.float32, [2])], [info("y", np.float32, [2])]), take="all")
    with pytest.raises(dmlcpu.DmlError) as caught:
        prepared.run({"x": value})
    assert str(caught.value) == message


@pytest.mark.parametrize("model", [None, 3, bytearray(b"x"), onnx.GraphProto()])
def test_wrong_type_of_model_is_refused(model):
    with pytest.raises(TypeError, match=f"onnx: model is {type(model).__name__}; allowed: onnx.ModelProto, bytes"):
        ours.prepare(model, take="all")


def test_unreadable_model_and_inputs_are_refused():
    with pytest.raises(dmlcpu.DmlError, match="onnx: model is unreadable"):
        ours.prepare(b"\x00junk", take="all")
    assert not ours.Backend.is_compatible(b"\x00junk")
    assert not ours.supports_device(None)
    with pytest.raises(TypeError, match="onnx: inputs is NoneType; allowed: a mapping or a sequence"):
        ours.prepare(layers(), take="all").run(None)


def test_a_node_of_another_domain_and_lists():
    node = helper.make_node("Binarizer", ["x"], ["y"], domain="ai.onnx.ml", threshold=0.5)
    assert ours.run_node(node, [np.array([[0.0, 1.0]], np.float32)])[0].tolist() == [[0, 1]]
    assert ours.run_node(helper.make_node("Neg", ["x"], ["y"], domain="ai.onnx"), [[1.0, 2.0]])[0].tolist() == [-1, -2]


DATA = np.zeros((3, 2), np.float32)


@pytest.mark.parametrize(
    ("node", "inputs", "message"),
    [
        (("TopK", ["x", "k"], ["v", "i"]), (DATA, np.array([], np.int64)), "TopK: K.shape is (0,); allowed: (1,)"),
        (("TopK", ["x", "k"], ["v", "i"]), (DATA, np.array([1, 2])), "TopK: K.shape is (2,); allowed: (1,)"),
        (
            ("ScatterElements", ["x", "i", "u"], ["y"]),
            (DATA, np.array([[0, 5]]), DATA[:1]),
            "ScatterElements: indices[0, 1] is 5; allowed: -3 to 2 (axis 0 has 3 elements)",
        ),
        (
            ("ScatterElements", ["x", "i", "u"], ["y"]),
            (DATA, np.array([0]), DATA[:1]),
            "ScatterElements: indices.ndim is 1; allowed: 2, as data has",
        ),
    ],
)
def test_errors_name_the_operator_of_onnx(node, inputs, message):
    with pytest.raises(dmlcpu.DmlError) as caught:
        ours.run_node(helper.make_node(*node), inputs)
    assert str(caught.value) == message
