"""Models in parts: these kernels for their operators, ONNX Runtime for the rest."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402
from onnx_parts import CONSTANTS, W, X, assert_as_the_reference, dynamic, info, model_of, needs_runtime, node  # noqa: E402

from dmlcpu.errors import BindingError, UnsupportedError  # noqa: E402
from dmlcpu.interop import onnx as ours  # noqa: E402
from dmlcpu.interop.onnx import cut, program  # noqa: E402
from dmlcpu.interop.onnx.graphs import constants_of  # noqa: E402


def looped():
    """Return a model with TopK at the top, in a branch, and in a function."""
    branches = {}
    for name, operator in (("then_branch", "Neg"), ("else_branch", "Abs")):
        inner = [node(operator, ["r"], ["o"]), node("TopK", ["o", "two"], [name, f"{name} at"])]
        branches[name] = helper.make_graph(inner, name, [], [info(name, np.float32, ["n", 2])])
    body = [node("TopK", ["a", "b"], ["c", "d"]), node("Neg", ["c"], ["e"])]
    function = helper.make_function("own", "Best", ["a", "b"], ["e"], body, [helper.make_opsetid("", 17)])
    nodes = [
        node("Relu", ["x"], ["r"]),
        node("If", ["flag"], ["branch"], **branches),
        node("Best", ["r", "two"], ["best"], domain="own"),
    ]
    outputs = [info("branch", np.float32, ["n", 2]), info("best", np.float32, ["n", 2])]
    inputs = [info("x", np.float32, ["n", 8]), info("flag", np.bool_, [])]
    return model_of(nodes, inputs, outputs, {"two": np.array([2])}, functions=[function], domains=["own"])


@needs_runtime
@pytest.mark.parametrize("flag", [True, False])
def test_branches_run_whole_and_functions_in_parts(flag):
    prepared = ours.prepare(looped(), take="all")
    assert_as_the_reference(looped(), prepared, {"x": X, "flag": np.array(flag)})
    report = prepared.report()
    assert report["dmlcpu"] == {"TopK": 1}
    assert report["onnxruntime"] == {"Abs": 1, "If": 1, "Neg": 2, "Relu": 1, "TopK": 2}
    assert report["passed on"] == {"TopK: in If, which runs whole": 2}


@needs_runtime
def test_types_of_onnx_runtimes_own_operators_are_found():
    nodes = [node("FastGelu", ["x"], ["g"], domain="com.microsoft"), node("TopK", ["g", "two"], ["v", "i"])]
    model = model_of(nodes, None, [info("i", np.int64, ["n", 2])], CONSTANTS, domains=["com.microsoft"])
    (i,) = ours.prepare(model, take="all").run([X])
    assert i.tolist() == np.argsort(-X, axis=1, kind="stable")[:, :2].tolist()


def halves():
    """Return a model whose input ONNX Runtime and NumPy do not exchange."""
    nodes = [node("Cast", ["x"], ["f"], to=TensorProto.FLOAT), node("TopK", ["f", "two"], ["v", "i"])]
    inputs = [helper.make_tensor_value_info("x", TensorProto.BFLOAT16, ["n", 8])]
    return model_of(nodes, inputs, [info("v", np.float32, ["n", 2])], {"two": np.array([2])})


@needs_runtime
def test_a_part_that_numpy_cannot_give_to_onnx_runtime_leaves_the_model_whole():
    prepared = ours.prepare(halves(), take="all")
    assert prepared.report()["dmlcpu"] == {}
    assert [*prepared.report()["passed on"]] == [
        "left whole: it cannot be cut (ONNX Runtime does not exchange 'x' with NumPy)"
    ]
    with pytest.raises(Exception, match="can't be converted to MLDataType"):
        prepared.run([X.astype(pytest.importorskip("ml_dtypes").bfloat16)])


def test_without_onnx_runtime(monkeypatch):
    monkeypatch.setattr(program, "runtime", lambda: None)
    with pytest.raises(UnsupportedError, match=r"a node is Neg, Relu; allowed: without .* TopK.*: pip install onnxrun"):
        ours.prepare(dynamic())
    both = model_of(
        [
            node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
            node("MatMulInteger", ["q", "w", "z"], ["y"]),
            node("ArgMax", ["y"], ["i"], axis=1),
        ],
        None,
        [info("i", np.int64, ["n", 1])],
        {"w": W},
    )
    prepared = ours.prepare(both)
    assert prepared.report()["dmlcpu"] == {"ArgMax": 1, "DynamicQuantizeLinear": 1, "MatMulInteger": 1}
    assert_as_the_reference(both, prepared, {"x": X})


@pytest.mark.parametrize(
    ("take", "error", "message"),
    [
        ("ort", BindingError, r"onnx: take is 'ort'; allowed: 'auto', 'all', a sequence of names"),
        (["product", "nowhere"], BindingError, r"onnx: take is 'nowhere'; allowed: product, values"),
        (None, TypeError, r"onnx: take is NoneType; allowed: 'auto', 'all'"),
    ],
)
@needs_runtime
def test_what_to_take_is_checked(take, error, message):
    with pytest.raises(error, match=message):
        ours.prepare(dynamic(), take=take)


@needs_runtime
@pytest.mark.parametrize(
    ("take", "taken"),
    [
        (["values"], {"TopK": 1}),
        (["values", "product"], {"TopK": 1, "com.microsoft.MatMulIntegerToFloat": 1, "DynamicQuantizeLinear": 1}),
    ],
)
def test_nodes_are_taken_by_name_or_result(take, taken):
    prepared = ours.prepare(dynamic(), take=take)
    assert prepared.report()["dmlcpu"] == taken
    assert_as_the_reference(dynamic(), prepared, {"x": X})


def test_inputs_with_defaults_and_results_that_no_node_makes():
    nodes = [node("TopK", ["x", "k"], ["v", "i"]), node("Neg", ["v"], ["n"])]
    inputs = [info("x", np.float32, ["n", 8]), info("k", np.int64, [1])]
    outputs = [info("n", np.float32, ["n", "k"]), info("x", np.float32, ["n", 8]), info("k", np.int64, [1])]
    outputs.append(info("c", np.int64, [1]))
    model = model_of(
        [*nodes, node("Identity", ["c"], ["unused"])], inputs, outputs, {"k": np.array([3]), "c": np.array([7])}
    )
    prepared = ours.prepare(model, take="all")
    for given, k in (({}, 3), ({"k": np.array([5])}, 5)):
        n, x, found, c = prepared.run({"x": X, **given})
        np.testing.assert_array_equal(n, np.sort(-X, axis=1)[:, :k])
        assert x.tolist() == X.tolist()
        assert (found.tolist(), c.tolist()) == ([k], [7])


@needs_runtime
def test_a_sparse_initializer_is_a_default_too():
    values, at = numpy_helper.from_array(np.array([9], np.float32), "c"), numpy_helper.from_array(np.array([[0, 3]]))
    sparse = helper.make_sparse_tensor(values, at, [1, 8])
    nodes = [node("Add", ["x", "c"], ["t"]), node("TopK", ["t", "two"], ["v", "i"])]
    inputs, outputs = [info("x", np.float32, ["n", 8]), info("c", np.float32, [1, 8])], [info("i", np.int64, ["n", 2])]
    model = model_of(nodes, inputs, outputs, {"two": np.array([2])}, sparse=[sparse])
    prepared = ours.prepare(model, take="all")
    assert prepared.run({"x": X})[0][:, 0].tolist() == [3] * 5
    assert prepared.run({"x": X, "c": np.eye(8, dtype=np.float32)[5:6] * 9})[0][:, 0].tolist() == [5] * 5


@needs_runtime
def test_sequences_pass_between_parts():
    nodes = [
        node("SplitToSequence", ["x"], ["rows"], axis=0),
        node("SequenceAt", ["rows", "one"], ["row"]),
        node("TopK", ["row", "two"], ["v", "i"]),
        node("SequenceInsert", ["rows", "v"], ["more"]),
        node("SequenceLength", ["more"], ["n"]),
    ]
    constants = {"one": np.array(1), "two": np.array([2])}
    model = model_of(nodes, None, [info("v", np.float32, [1, 2]), info("n", np.int64, [])], constants)
    v, n = ours.prepare(model, take="all").run([X])
    assert v.tolist() == [sorted(X[1].tolist(), reverse=True)[:2]]
    assert n == 6


def test_a_run_that_fails_names_the_node():
    nodes = [node("TopK", ["x", "two"], ["v", "i"]), node("Reshape", ["v", "shape"], ["y"], "flatten")]
    constants = {"two": np.array([2]), "shape": np.array([7])}
    prepared = ours.prepare(model_of(nodes, None, [info("y", np.float32, [7])], constants), take="all")
    with pytest.raises(Exception) as caught:
        prepared.run([X])
    assert "'flatten'" in " ".join([str(caught.value), *getattr(caught.value, "__notes__", ())])


@pytest.mark.slow
@needs_runtime
def test_many_nodes():
    """Preparing takes time in proportion to the number of nodes."""
    nodes, last = [], "x"
    for number in range(5_000):
        nodes.append(node("Neg", [last], [f"n{number}"]))
        top_k = node("TopK", [f"n{number}", "eight"], [f"v{number}", f"i{number}"])
        nodes.append(node("Neg", [f"n{number}"], [f"v{number}"]) if number % 100 else top_k)
        last = f"v{number}"
    model = model_of(nodes, None, [info(last, np.float32, ["n", 8])], {"eight": np.array([8])})
    prepared = ours.prepare(model, take="all")
    assert sum(prepared.report()["onnxruntime"].values()) == 9_950
    (y,) = prepared.run([X])
    assert y.shape == X.shape


def sparse(name, array):
    """Return a sparse tensor with the indices of its elements, in an array of one dimension or of two."""
    at = np.argwhere(array)
    indices = at if name == "two" else np.ravel_multi_index(tuple(at.T), array.shape)
    values = numpy_helper.from_array(array[array != 0], name)
    return helper.make_sparse_tensor(values, numpy_helper.from_array(indices, f"{name} at"), array.shape)


@pytest.mark.parametrize("name", ["one", "two"])
@pytest.mark.parametrize("is_node", [False, True])
def test_sparse_constants(name, is_node):
    array = np.array([[0, 1, 0], [2, 0, 3]], np.float32)
    tensor = sparse(name, array)
    nodes = [node("TopK", [name, "k"], ["v", "i"]), node("MatMul", ["x", name], ["y"])]
    nodes = [node("Constant", [], [name], sparse_value=tensor), *nodes] if is_node else nodes
    outputs = [info("v", np.float32, [2, 1]), info("y", np.float32, ["n", 3]), info(name, np.float32, [2, 3])]
    sparses = [] if is_node else [tensor]
    model = model_of(nodes, [info("x", np.float32, ["n", 2])], outputs, {"k": np.array([1])}, sparse=sparses)
    v, y, found = ours.prepare(model, take="all").run([np.eye(2, dtype=np.float32)])
    assert v.tolist() == [[1], [3]]
    assert y.tolist() == found.tolist() == array.tolist()


def test_constant_nodes_are_constants():
    weights = ("w", "zero", "scale", "bias")
    constants = [node("Constant", [], [name], value=numpy_helper.from_array(CONSTANTS[name])) for name in weights]
    others = {
        "a": {"value_int": 2},
        "b": {"value_ints": [1, 2]},
        "c": {"value_float": 0.5},
        "d": {"value_floats": [2.0]},
    }
    others |= {"e": {"value_string": "a"}, "f": {"value_strings": ["b", "c"]}, "two": {"value_ints": [2]}}
    constants += [node("Constant", [], [name], **value) for name, value in others.items()]
    types, shapes = (np.int64, np.int64, np.float32, np.float32, object, object), ([], [2], [], [1], [], [2])
    outputs = [info(name, dtype, shape) for name, dtype, shape in zip("abcdef", types, shapes, strict=True)]
    plain = dynamic().graph
    model = model_of([*constants, *plain.node], None, [*plain.output, *outputs])
    prepared = ours.prepare(model, take="all")
    assert prepared.report()["dmlcpu"] == {
        "DynamicQuantizeLinear": 1,
        "TopK": 1,
        "com.microsoft.MatMulIntegerToFloat": 1,
    }
    assert prepared.report()["onnxruntime"] == {"Neg": 1, "Relu": 1}
    for mine, right in zip(prepared.run([X]), ReferenceEvaluator(model).run(None, {"x": X}), strict=True):
        assert mine.dtype.kind == np.asarray(right).dtype.kind or mine.dtype == object
        np.testing.assert_array_equal(mine, right)


def test_outputs_that_declare_another_shape():
    """ONNX Runtime warns of them, and runs the model."""
    nodes = [node("Neg", ["x"], ["t"]), node("TopK", ["t", "two"], ["v", "i"]), node("Neg", ["v"], ["y"])]
    outputs = [info("t", np.float32, [7, 8]), info("v", np.float32, ["n", 5]), info("y", np.float32, [2])]
    model = model_of(nodes, None, outputs, {"two": np.array([2])})
    assert_as_the_reference(model, ours.prepare(model, take="all"), {"x": X})


def test_an_unknown_operator_before_a_kernel_is_refused():
    nodes = [node("Unknown", ["x"], ["t"], domain="own"), node("TopK", ["t", "two"], ["v", "i"])]
    model = model_of(nodes, None, [info("i", np.int64, ["n", 2])], {"two": np.array([2])}, domains=["own"])
    assert not ours.is_compatible(model, take="all")
    with pytest.raises(UnsupportedError, match="Unknown"):
        ours.prepare(model, take="all")


@needs_runtime
def test_functions_may_use_domains_that_the_model_does_not():
    body = [node("FastGelu", ["a"], ["g"], domain="com.microsoft"), node("TopK", ["g", "b"], ["c", "d"])]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    function = helper.make_function("own", "Best", ["a", "b"], ["d"], body, opsets)
    nodes = [node("Best", ["x", "two"], ["i"], domain="own")]
    outputs = [info("i", np.int64, ["n", 2])]
    model = model_of(nodes, None, outputs, {"two": np.array([2])}, functions=[function], domains=["own"])
    (i,) = ours.prepare(model, take="all").run([X])
    assert i.tolist() == np.argsort(-X, axis=1, kind="stable")[:, :2].tolist()


@needs_runtime
def test_functions_of_another_version_run_whole():
    """ONNX allows them, and does not inline them."""
    body = [node("Softmax", ["a"], ["b"]), node("TopK", ["b", "c"], ["d", "e"])]
    function = helper.make_function("own", "Best", ["a", "c"], ["d"], body, [helper.make_opsetid("", 16)])
    nodes = [node("TopK", ["x", "six"], ["v", "i"]), node("Best", ["v", "two"], ["y"], domain="own")]
    nodes.append(node("Softmax", ["y"], ["z"]))
    inputs, outputs = [info("x", np.float32, ["n", 3, 8])], [info("z", np.float32, ["n", 3, 2])]
    constants = {"six": np.array([6]), "two": np.array([2])}
    model = model_of(nodes, inputs, outputs, constants, functions=[function], domains=["own"])
    whole, parts = (ours.prepare(model, take=take) for take in ([], "all"))
    assert parts.report()["dmlcpu"] == {"TopK": 1}
    assert parts.report()["onnxruntime"] == {"Softmax": 2, "TopK": 1, "own.Best": 1}
    assert whole.report()["onnxruntime"] == {"Softmax": 2, "TopK": 2, "own.Best": 1}
    x = np.stack([X, -X, X + 1], axis=1)
    np.testing.assert_array_equal(parts.run([x])[0], whole.run([x])[0], strict=True)


def test_changing_a_result_does_not_change_the_model():
    nodes = [
        node("TopK", ["x", "two"], ["v", "i"]),
        node("Reshape", ["table", "one"], ["view"]),
        node("Add", ["v", "table"], ["y"]),
    ]
    outputs = [info("y", np.float32, ["n", 2]), info("two", np.int64, [1]), info("view", np.float32, [2])]
    constants = {"two": np.array([2]), "one": np.array([-1]), "table": np.ones((1, 2), np.float32)}
    model = model_of(nodes, None, outputs, constants)
    prepared = ours.prepare(model, take="all")
    for result in prepared.run([X]):
        if result.flags.writeable:
            result[:] = 99
    assert_as_the_reference(model, prepared, {"x": X})


@pytest.mark.parametrize("operator", ["ScatterND", "ScatterElements"])
def test_strings_may_become_longer(operator):
    at = [[1]] if operator == "ScatterND" else [1]
    nodes = [node(operator, ["s", "at", "longer"], ["y"])]
    constants = {"at": np.array(at), "longer": np.array(["longer"], object)}
    model = model_of(nodes, [info("s", object, ["n"])], [info("y", object, ["n"])], constants)
    (y,) = ours.prepare(model, take="all").run({"s": np.array(["a", "b"])})
    assert y.tolist() == ["a", "longer"]


@needs_runtime
def test_weights_that_nodes_make_of_constants_are_constants_where_they_are_read():
    nodes = [
        node("Neg", ["one"], ["offset"]),
        node("Cast", ["w"], ["floats"], to=TensorProto.FLOAT),
        node("Transpose", ["floats"], ["turned"]),
        node("TopK", ["x", "six"], ["v", "i"]),
        node("MatMul", ["v", "turned"], ["y"]),
        node("TopK", ["turned", "six"], ["u", "j"]),
        node("Sub", ["y", "offset"], ["z"]),
    ]
    constants = {"w": W, "six": np.array([6]), "one": np.float32(1)}
    outputs = [info("z", np.float32, ["n", 8]), info("u", np.float32, [6, 6])]
    model, x = model_of(nodes, None, outputs, constants), np.round(X * 4)
    assert_as_the_reference(model, ours.prepare(model, take="all"), {"x": x})
    del model.graph.node[5], model.graph.output[1]  # the TopK that has to have them earlier
    graph = model.graph
    parts = cut.cut(graph, constants_of(graph), lambda each: each.op_type == "TopK")
    assert [[each.op_type for each in part.nodes] for part in parts] == [
        ["TopK"],
        ["Neg", "Cast", "Transpose", "MatMul", "Sub"],
    ]
    assert_as_the_reference(model, ours.prepare(model, take="all"), {"x": x})


def test_opsets_may_have_the_long_name_of_the_domain():
    nodes = [node("Neg", ["x"], ["t"]), node("TopK", ["t", "two"], ["v", "i"])]
    model = model_of(nodes, None, [info("i", np.int64, ["n", 2])], {"two": np.array([2])})
    model.opset_import[0].domain = "ai.onnx"
    onnx.checker.check_model(model)
    before = model.SerializeToString(deterministic=True)
    (i,) = ours.prepare(model, take="all").run([X])
    assert i.tolist() == np.argsort(X, axis=1, kind="stable")[:, :2].tolist()
    assert model.SerializeToString(deterministic=True) == before
