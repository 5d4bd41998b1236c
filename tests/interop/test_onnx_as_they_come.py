"""Models as they come: what ONNX Runtime runs is run, also where these kernels take a part of it."""

import copy
import pickle

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnx_parts import CONSTANTS, RNG, W, X, dynamic, info, node  # noqa: E402

from dmlcpu.errors import BindingError, UnsupportedError  # noqa: E402
from dmlcpu.interop import onnx as ours  # noqa: E402
from dmlcpu.interop.onnx import OPS, InferenceSession, choice  # noqa: E402

SIX = {"k": np.array([6])}


def unchecked(nodes, inputs, outputs, constants, imports=(("", 17),), name="model", version=8):
    """Make a model, valid or not."""
    initializers = [numpy_helper.from_array(np.asarray(array), key) for key, array in constants.items()]
    graph = helper.make_graph(nodes, name, inputs, outputs, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid(*each) for each in imports], ir_version=version)


def best(first="Neg", domain="", **options):
    """Return a model of one node and TopK."""
    nodes = [node(first, ["x"], ["t"], domain=domain), node("TopK", ["t", "k"], ["v", "i"])]
    shape = options.pop("shape", ["n", 8])
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
    outputs = options.pop("outputs", [info("v", np.float32, ["n", 6]), info("i", np.int64, ["n", 6])])
    return unchecked(options.pop("turn", list)(nodes), inputs, outputs, SIX, **options)


CASES = {
    "no shape of an input": best(shape=None),
    "no shape of an output": best(outputs=[helper.make_tensor_value_info("v", TensorProto.FLOAT, None)]),
    "no type of an output": best(outputs=[onnx.ValueInfoProto(name="v")]),
    "not sorted": best(turn=lambda nodes: nodes[::-1]),
    "no name of the graph": best(name=""),
    "com.microsoft is not imported": best("FastGelu", "com.microsoft"),
    "ai.onnx in the node": best(domain="ai.onnx"),
    "ai.onnx in the import": best(imports=[("ai.onnx", 17)]),
    "ai.onnx in both": best(domain="ai.onnx", imports=[("ai.onnx", 17)]),
    "an initializer of IR 3 that is no input": best(version=3, imports=[("", 10)]),
}


def runtime(model):
    return onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("take", ["auto", "all"])
@pytest.mark.parametrize("case", CASES)
def test_what_onnx_runtime_runs_is_run(case, take):
    model = CASES[case]
    before = model.SerializeToString(deterministic=True)
    prepared = ours.prepare(model, take=take)
    assert prepared.report()["dmlcpu"] == ({"TopK": 1} if take == "all" else {})
    for mine, right in zip(prepared.run({"x": X}), runtime(model).run(None, {"x": X}), strict=True):
        np.testing.assert_array_equal(mine, right, strict=True)
    assert model.SerializeToString(deterministic=True) == before
    assert ours.is_compatible(model)


@pytest.mark.parametrize("imports", [[("", 11), ("ai.onnx", 17)], [("", 17), ("ai.onnx", 11)], [("com.microsoft", 1)]])
def test_the_version_of_a_part_is_that_of_the_model(imports):
    """The last import counts, and without one ONNX Runtime's newest version: until 12, Softmax has another axis."""
    shape = [2, 3, 8]
    outputs = [info("v", np.float32, [2, 3, 6])]
    model, x = best("Softmax", imports=imports, shape=shape, outputs=outputs), RNG.standard_normal(shape, np.float32)
    prepared = ours.prepare(model, take="all")
    assert prepared.report()["dmlcpu"] == {"TopK": 1}
    np.testing.assert_array_equal(prepared.run([x])[0], runtime(model).run(None, {"x": x})[0], strict=True)


@pytest.mark.parametrize("take", ["auto", "all"])
@pytest.mark.parametrize("x", [X.tolist(), np.round(X).astype(int).tolist(), [list(row) for row in X]])
def test_lists_are_inputs(x, take):
    values = ours.run_model(best(), {"x": x}, take=take)[0]
    np.testing.assert_array_equal(values, np.sort(-np.array(x, np.float32), axis=1)[:, :-7:-1])


@pytest.mark.parametrize("take", ["auto", "all"])
def test_numbers_are_inputs_if_their_type_fits(take):
    nodes = [node("Mul", ["x", "by"], ["t"]), node("TopK", ["t", "k"], ["v", "i"])]
    inputs = [info("x", np.float32, ["n", 8]), info("by", np.float32, []), info("k", np.int64, [1])]
    prepared = ours.prepare(unchecked(nodes, inputs, [info("v", np.float32, ["n", "k"])], {}), take=take)
    for by in (2, 2.0, np.float32(2)):
        assert prepared.run({"x": X, "by": by, "k": [1]})[0].tolist() == (2 * X).max(axis=1, keepdims=True).tolist()
    with pytest.raises(BindingError, match=r"inputs\['k'\].dtype is float64; allowed: int64"):
        prepared.run({"x": X, "by": 2, "k": [1.5]})


NAN, INF = np.nan, np.inf
ROWS = [[1, 2, NAN, -3], [NAN] * 2, [INF, 1, -2], [-INF, 1, 2], [INF, -INF, 1], [3e38, -3e38, 1], [1, NAN] * 20]


@pytest.mark.parametrize("row", ROWS)
def test_dynamic_quantization_of_what_is_not_finite_is_onnx_runtimes(row):
    model = dynamic()
    for each in list(model.graph.node)[-2:]:
        model.graph.node.remove(each)
    model.graph.ClearField("output")
    model.graph.output.append(info("added", np.float32, ["n", 6]))
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(W >> 1, "w"))
    x = np.resize(np.array(row, np.float32), (5, 8))
    prepared = ours.prepare(model, take="all")
    assert prepared.report()["dmlcpu"]["DynamicQuantizeLinear"] == 1
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(prepared.run([x])[0], runtime(model).run(None, {"x": x})[0])


@pytest.mark.parametrize("scale", [0, -1, INF, NAN])
def test_quantization_by_any_scale_is_onnx_runtimes(scale):
    x = np.array([0, 1, -2, NAN, INF, -INF, 3e9, -3e9], np.float32)
    nodes, inputs = [node("QuantizeLinear", ["x", "s", "z"], ["y"])], [info("x", np.float32, [8])]
    model = unchecked(nodes, inputs, [info("y", np.uint8, [8])], {"s": np.float32(scale), "z": np.uint8(3)})
    (y,) = onnx.reference.ReferenceEvaluator(model, new_ops=OPS).run(None, {"x": x})
    np.testing.assert_array_equal(y, runtime(model).run(None, {"x": x})[0], strict=True)


def saved(folder, model):
    path = folder / "model.onnx"
    onnx.save(copy.deepcopy(model), path, save_as_external_data=True, location="weights.bin", size_threshold=60)
    return path


@pytest.mark.parametrize("take", ["auto", "all", ["product"]])
def test_external_data_lie_next_to_the_file(tmp_path, take, monkeypatch):
    path = saved(tmp_path, dynamic(constants={"w": W >> 1}))
    wanted = runtime(dynamic(constants={"w": W >> 1})).run(None, {"x": X})
    for given in (path, str(path)):
        for prepared in (ours.prepare(given, take=take), pickle.loads(pickle.dumps(ours.prepare(given, take=take)))):
            for mine, right in zip(prepared.run([X]), wanted, strict=True):
                np.testing.assert_array_equal(mine, right, strict=True)
    monkeypatch.chdir(tmp_path)
    np.testing.assert_array_equal(ours.run_model("model.onnx", [X], take=take)[1], wanted[1])


def test_parts_share_the_callers_options_without_warnings(tmp_path, capfd, monkeypatch):
    monkeypatch.setattr(choice, "saturates", lambda: True)
    path, options = saved(tmp_path, dynamic()), onnxruntime.SessionOptions()
    session = InferenceSession(path, options, take=["values"])
    assert session.report()["passed on"]["com.microsoft.MatMulIntegerToFloat: ONNX Runtime is set to be exact"] == 1
    InferenceSession(path, options, take="all").run(None, {"x": X})
    assert options.get_session_config_entry("session.x64quantprecision") == "1"
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
def test_a_model_above_two_gigabytes(tmp_path):
    nodes = [node("TopK", ["x", "k"], ["v", "i"]), node("Gather", ["table", "i"], ["y"])]
    inputs, outputs = [info("x", np.float32, [8])], [info("y", np.float32, [6, 1])]
    model = unchecked(nodes, inputs, outputs, SIX)
    table = model.graph.initializer.add(name="table", data_type=TensorProto.FLOAT, dims=[600_000_000, 1])
    table.data_location = TensorProto.EXTERNAL
    table.external_data.add(key="location", value="table.bin")
    with open(tmp_path / "table.bin", "wb") as file:  # a file with a hole
        file.write(np.arange(8, dtype=np.float32).tobytes())
        file.truncate(2_400_000_000)
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    prepared = ours.prepare(tmp_path / "model.onnx", take="all")
    assert prepared.report()["dmlcpu"] == {"TopK": 1}
    assert prepared.run([X[0]])[0].ravel().tolist() == np.argsort(-X[0])[:6].tolist()


@pytest.mark.parametrize("take", ["auto", "all", ["product", "values"]])
@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))])
def test_prepared_models_are_copied(again, take):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    for prepared in (ours.prepare(dynamic(), take=take), InferenceSession(dynamic(), options, take=take)):
        twin = again(prepared)
        assert type(twin) is type(prepared)
        assert twin.report() == prepared.report()
        first, second = (
            each.run({"x": X}) if isinstance(each, ours.BackendRep) else each.run(None, {"x": X})
            for each in (prepared, twin)
        )
        for mine, right in zip(first, second, strict=True):
            np.testing.assert_array_equal(mine, right, strict=True)
    if take == "auto":
        assert twin.get_session_options().intra_op_num_threads == 1


@pytest.mark.parametrize("take", ["auto", "all"])
def test_a_session_has_the_methods_of_onnx_runtimes(take):
    model = dynamic(constants={"w": W >> 1}).SerializeToString()
    session = InferenceSession(model, providers=["CUDAExecutionProvider"], take=take)
    theirs = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    for mine, right in (
        (session.get_inputs(), theirs.get_inputs()),
        (session.get_outputs(), theirs.get_outputs()),
    ):
        assert [(it.name, it.type, it.shape) for it in mine] == [(it.name, it.type, it.shape) for it in right]
    assert session.get_providers() == ["CPUExecutionProvider"]
    assert type(session.run(None, {"x": X})) is list
    (indices,) = session.run(["indices"], {"x": X})
    np.testing.assert_array_equal(indices, theirs.run(["indices"], {"x": X})[0], strict=True)
    with pytest.raises(Exception, match=r"output_names is 'none'; allowed: values, indices|Invalid output name: ?none"):
        session.run(["none"], {"x": X})
    if take == "auto":
        assert session.get_modelmeta().graph_name == "model"
    else:
        with pytest.raises(AttributeError, match="get_modelmeta"):
            session.get_modelmeta()


def test_a_node_that_onnx_runtime_refuses_is_named():
    nodes = [node("Cast", ["x"], ["d"], to=TensorProto.DOUBLE), node("Asinh", ["d"], ["h"], "the node")]
    model = unchecked(nodes, [info("x", np.float32, ["n"])], [info("h", np.float64, ["n"])], CONSTANTS)
    with pytest.raises(UnsupportedError, match=r"model is invalid for ONNX Runtime \(.*Asinh.*'the node'\)"):
        ours.prepare(model)


def test_in_a_run_too():
    nodes, inputs = (
        [node("Gather", ["x", "at"], ["y"], "the node")],
        [info("x", np.float32, [3]), info("at", np.int64, [1])],
    )
    prepared = ours.prepare(unchecked(nodes, inputs, [info("y", np.float32, [1])], {}))
    with pytest.raises(Exception, match=r"ONNXRuntimeError.*'the node'"):
        prepared.run([np.ones(3, np.float32), np.array([9])])


def test_a_rounding_to_16_bits_that_onnx_runtime_leaves_out_is_done_before_these_kernels():
    """It has no TopK of float16, and drops the Cast before its own TopK of float32."""
    nodes = [node("Cast", ["x"], ["h"], to=TensorProto.FLOAT16), node("TopK", ["h", "k"], ["v", "i"])]
    outputs = [info("v", np.float16, ["n", 6]), info("i", np.int64, ["n", 6])]
    model = unchecked(nodes, [info("x", np.float32, ["n", 8])], outputs, SIX)
    x = (1 + RNG.random((50, 8)) / 1000).astype(np.float32)
    wanted = np.argsort(-x.astype(np.float16), axis=1, kind="stable")[:, :6]
    np.testing.assert_array_equal(ours.run_model(model, [x], take="all")[1], wanted)
    assert (runtime(model).run(None, {"x": x})[1] != wanted).any()


def test_sound_is_onnx_runtimes():
    """The phase of bins near zero is chaotic: another STFT gives another sound."""
    nodes = [node("STFT", ["x", "step", "window"], ["s"]), node("TopK", ["s", "k"], ["v", "i"], axis=2)]
    constants = {"step": np.array(4), "window": np.hanning(16).astype(np.float32), **SIX}
    outputs = [info("s", np.float32, [1, "f", 9, 2]), info("v", np.float32, [1, "f", 6, 2])]
    model = unchecked(nodes, [info("x", np.float32, [1, 64, 1])], outputs, constants)
    x = RNG.standard_normal((1, 64, 1), np.float32)
    for mine, right in zip(ours.run_model(model, [x], take="all"), runtime(model).run(None, {"x": x}), strict=True):
        np.testing.assert_array_equal(mine, right, strict=True)
