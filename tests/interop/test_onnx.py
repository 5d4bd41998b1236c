"""ONNX's own node tests on these kernels, and arguments that these tests do not cover."""

import importlib
import sys
import warnings

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

import dmlcpu  # noqa: E402
from dmlcpu.errors import DmlError, UnsupportedError  # noqa: E402
from dmlcpu.interop import onnx as ours  # noqa: E402
from dmlcpu.interop.onnx import program  # noqa: E402

# How many tests begin with each name, at least.
COUNTS = {
    "top_k": 7,
    "argmax": 16,
    "argmin": 16,
    "scatternd": 7,
    "qlinearmatmul": 8,
    "scatter_elements": 7,
    "scatter_with": 2,
    "gather_elements": 3,
    "matmulinteger": 1,
    "quantizelinear": 8,
    "dequantizelinear": 7,
    "dynamicquantizelinear": 6,
}
# Types that are not ours: ONNX computes them itself.
LEFT_TO_ONNX = ("e4m3fn", "e5m2", "float4e2m1", "int2")
FUNCTIONS = (
    "top_k",
    "argmax",
    "argmin",
    "scatter_nd",
    "scatter_elements",
    "gather_elements",
    "quantized_matmul",
    "matmul_integer",
    "matmul_integer_to_float",
    "quantize_linear",
    "dequantize_linear",
    "dynamic_quantize_linear",
)


@pytest.fixture(scope="module")
def node_tests():
    """Return the tests that the modules of these operators make; to load all tests takes seconds."""
    from onnx.backend.test.case import node

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in COUNTS:
            module = "scatter" if name == "scatter_with" else name.replace("_", "")
            importlib.import_module(f"{node.__name__}.{module}")
    return node._NodeTestCases


@pytest.fixture
def taken(monkeypatch):
    """List the functions that are called."""
    seen = []
    for name in FUNCTIONS:
        function = getattr(dmlcpu, name)
        monkeypatch.setattr(dmlcpu, name, lambda *a, _f=function, **k: (seen.append(_f.__name__), _f(*a, **k))[1])
    return seen


def as_array(value):
    """Types that NumPy does not have are in ONNX's form."""
    return onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def by_evaluator(model, inputs):
    evaluator = ReferenceEvaluator(model, new_ops=ours.OPS)
    return evaluator.run(None, dict(zip(evaluator.input_names, inputs, strict=True)))


def by_backend(model, inputs):
    with pytest.MonkeyPatch.context() as patch:  # without ONNX Runtime these kernels run the whole model
        patch.setattr(program, "runtime", lambda: None)
        return ours.run_model(model, inputs)


@pytest.mark.parametrize("run_case", [by_evaluator, by_backend], ids=["evaluator", "backend"])
@pytest.mark.parametrize("name", COUNTS)
def test_node_tests_of_onnx_pass(node_tests, taken, name, run_case):
    cases = [case for case in node_tests if case.name.startswith(f"test_{name}")]
    left = (*LEFT_TO_ONNX, "expanded") if run_case is by_backend else LEFT_TO_ONNX
    ours_too = [case for case in cases if not any(each in case.name for each in left)]
    assert len(ours_too) >= COUNTS[name] // (1 + (run_case is by_backend))
    for case in ours_too:
        for inputs, outputs in case.data_sets:
            found = run_case(case.model, list(map(as_array, inputs)))
            for mine, right in zip(found, map(as_array, outputs), strict=True):
                np.testing.assert_array_equal(mine, right, strict=True, err_msg=case.name)
    assert len(taken) == len(ours_too)


def evaluate(op, inputs, *, outputs=1, opset=21, **attributes):
    """Run a model of one node."""
    names = [f"i{i}" if array is not None else "" for i, array in enumerate(inputs)]
    given = {name: np.asarray(array) for name, array in zip(names, inputs, strict=True) if name}
    results = [f"o{i}" for i in range(outputs)]
    types = {name: helper.np_dtype_to_tensor_dtype(x.dtype) for name, x in given.items()}
    inputs = [helper.make_tensor_value_info(name, each, None) for name, each in types.items()]
    open_results = [helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in results]
    graph = helper.make_graph([helper.make_node(op, names, results, **attributes)], op, inputs, open_results)
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    )
    return ReferenceEvaluator(model, new_ops=ours.OPS).run(None, given)


def test_the_first_version_of_topk_has_k_as_an_attribute(taken):
    x = np.array([[3, 1, 2]], np.float32)
    values, indices = evaluate("TopK", [x], outputs=2, opset=9, k=2, axis=-1)
    assert (values.tolist(), indices.tolist()) == ([[3, 2]], [[0, 2]])
    assert indices.dtype == np.int64
    assert taken == ["top_k"]


def test_topk_in_every_later_version(taken):
    x = np.array([3, 1, 2, 1], np.float32)
    for opset in (10, 11, 24):
        more = {} if opset == 10 else {"largest": 0, "sorted": 0}
        values, _ = evaluate("TopK", [x, np.array([2])], outputs=2, opset=opset, **more)
        assert sorted(values.tolist()) == ([2, 3] if opset == 10 else [1, 1])
    assert taken == ["top_k"] * 3


def test_argmax_and_argmin_in_every_version(taken):
    x = np.array([[3, np.nan, 3], [1, 4, 4]], np.float16)
    for opset in (7, 11, 12, 13):
        for op, expected in (("ArgMax", [1, 1]), ("ArgMin", [1, 0])):
            (found,) = evaluate(op, [x], opset=opset, axis=1, keepdims=0)
            assert (found.tolist(), found.dtype) == (expected, np.int64)
    (found,) = evaluate("ArgMax", [x], opset=12, axis=-1, select_last_index=1)
    assert found.tolist() == [[1], [2]]
    (found,) = evaluate("ArgMin", [x])
    assert found.tolist() == [[1, 0, 0]]
    assert taken == ["argmax", "argmin"] * 5


def test_scatter_elements_along_an_axis_with_fewer_indices(taken):
    x, indices = np.zeros((3, 4), np.float32), np.array([[2, -1], [0, 1]])
    updates = np.array([[1, 2], [3, 4]], np.float32)
    (found,) = evaluate("ScatterElements", [x, indices, updates], axis=1, reduction="add")
    assert found.tolist() == [[0, 0, 1, 2], [3, 4, 0, 0], [0, 0, 0, 0]]
    assert taken == ["scatter_elements"]


def test_scatter_is_an_older_name_of_scatter_elements(taken):
    x, updates = np.zeros((3, 2), np.float32), np.ones((1, 2), np.float32)
    for opset in (9, 10):
        (found,) = evaluate("Scatter", [x, np.array([[2, -3]]), updates], opset=opset)
        assert found.tolist() == [[0, 1], [0, 0], [1, 0]]
    assert taken == ["scatter_elements"] * 2
    with pytest.raises(IndexError, match=r"Scatter: indices\[0, 1\] is 5; allowed: -3 to 2 \(axis 0 has 3 elements\)"):
        evaluate("Scatter", [x, np.array([[0, 5]]), updates], opset=10)


def test_gather_elements_along_an_axis_with_fewer_indices(taken):
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    (found,) = evaluate("GatherElements", [x, np.array([[3, -4, 1]])], axis=1)
    assert found.tolist() == [[3, 0, 1]]
    assert taken == ["gather_elements"]


def test_a_scale_for_each_column(taken):
    a, b = np.array([[1, 2], [3, 4]], np.uint8), np.array([[1, -1], [2, -2]], np.int8)
    one, zero = np.float32(1), np.uint8(0)
    columns = np.array([1, 0.5], np.float32)
    inputs = [a, one, zero, b, columns, np.zeros(2, np.int8), one, np.uint8(100)]
    (found,) = evaluate("QLinearMatMul", [np.asarray(each) for each in inputs])
    assert found.tolist() == [[105, 98], [111, 94]]
    assert taken == ["quantized_matmul"]


def test_integer_products_with_a_zero_point_for_each_row_and_column(taken):
    a, b = np.array([[10, 20], [30, 40]], np.uint8), np.array([[1, -1], [2, -2]], np.int8)
    (found,) = evaluate("MatMulInteger", [a, b, np.array([10, 30], np.uint8), np.array([1, -1], np.int8)])
    assert found.tolist() == [[10, -10], [10, -10]]
    (found,) = evaluate("MatMulInteger", [a, b, None, np.int8(1)], opset=10)
    assert found.tolist() == [[20, -80], [40, -180]]
    assert found.dtype == np.int32
    assert taken == ["matmul_integer"] * 2


def test_scaled_products_with_and_without_optional_inputs(taken):
    a, b = np.array([[10, 20], [30, 40]], np.uint8), np.array([[1, -1], [2, -2]], np.int8)
    scale, columns, bias = np.float32(0.5), np.array([0.5, 0.25], np.float32), np.array([1, -1], np.float32)
    options = {"domain": "com.microsoft"}
    (found,) = evaluate("MatMulIntegerToFloat", [a, b, scale, columns, None, None, bias], **options)
    assert found.tolist() == [[13.5, -7.25], [28.5, -14.75]]
    (found,) = evaluate("MatMulIntegerToFloat", [a, b, np.float16(1), np.float16(2), np.uint8(10)], **options)
    assert found.tolist() == [[40, -40], [160, -160]]
    assert found.dtype == np.float16
    assert taken == ["matmul_integer_to_float"] * 2


def test_scaled_products_that_are_refused_say_why():
    a, one = np.ones((2, 2), np.int16), np.float32(1)
    with pytest.raises(UnsupportedError, match=r"matmul_integer_to_float: a\.dtype is int16; allowed: int8, uint8"):
        evaluate("MatMulIntegerToFloat", [a, a, one, one], domain="com.microsoft")


def test_unsupported_arguments_are_left_to_onnx(taken):
    words = np.array(["a", "b", "c"], object)
    (found,) = evaluate("ScatterND", [words, np.array([[1]]), np.array(["z"], object)])
    assert found.tolist() == ["a", "z", "c"]
    assert taken == ["scatter_nd"]


def test_bad_index_is_named():
    with pytest.raises(IndexError, match=r"indices\[0, 0\] is 5; allowed: -3 to 2"):
        evaluate("ScatterND", [np.zeros(3), np.array([[5]]), np.ones(1)])


def test_quantizers_take_an_axis_only_where_there_is_one(taken):
    x = np.array([1, 2, 3], np.float32)
    for opset in (10, 13, 19, 21, 23, 25):
        (found,) = evaluate("QuantizeLinear", [x, np.float32(0.5), np.uint8(1)], opset=opset)
        assert found.tolist() == [3, 5, 7]
        (found,) = evaluate("DequantizeLinear", [found, np.float32(0.5), np.uint8(1)], opset=opset)
        assert found.tolist() == [1, 2, 3]
    columns = np.array([0.5, 1, 2], np.float32)
    (found,) = evaluate("QuantizeLinear", [x[None], columns], opset=19)  # axis 1
    assert found.tolist() == [[2, 2, 2]]
    (found,) = evaluate("QuantizeLinear", [x, columns[:2]], axis=0, block_size=2, output_dtype=TensorProto.INT4)
    assert found.astype(int).tolist() == [2, 4, 3]
    assert taken == ["quantize_linear", "dequantize_linear"] * 6 + ["quantize_linear"] * 2


@pytest.mark.parametrize(
    ("opset", "options", "expected"),
    [
        (21, {}, 41),  # 41.494507
        (23, {}, 42),  # in float16 41.5
        (25, {}, 42),
        (23, {"precision": TensorProto.FLOAT16}, 42),
        (23, {"precision": TensorProto.FLOAT}, 41),
    ],
)
def test_float16_is_divided_in_the_precision_of_its_opset(taken, opset, options, expected):
    x, blocks = np.full((2, 3), 16.6, np.float16), np.array([[0.4, 33.2], [33.2, 0.4]], np.float16)
    (found,) = evaluate("QuantizeLinear", [x, blocks[0, 0], np.uint8(0)], opset=opset, **options)
    assert found.tolist() == [[expected] * 3] * 2
    (found,) = evaluate("QuantizeLinear", [x, blocks[0], np.uint8([0, 9])], opset=opset, axis=0, **options)
    assert found.tolist() == [[expected] * 3, [9] * 3]  # halves, to even
    assert "quantize_linear" in taken
    if opset > 19:
        options = {"axis": 1, "block_size": 2, **options}
        (found,) = evaluate("QuantizeLinear", [x, blocks, np.uint8([[0, 0], [0, 1]])], opset=opset, **options)
        assert found.tolist() == [[expected, expected, 0], [0, 0, expected + 1]]


def test_quotients_beyond_float16_become_the_greatest_integer():
    given = [np.float16([6e4, -6e4, np.nan]), np.float16(0.01), np.int8(1)]
    assert evaluate("QuantizeLinear", given, opset=23)[0].tolist() == [127, -128, -128]


def test_without_onnx_runtime_a_scale_of_0_is_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(DmlError, match=r"quantize_linear: scale is 0\.0; allowed: finite"):
        evaluate("QuantizeLinear", [np.ones(3, np.float32), np.float32(0), np.uint8(0)], opset=21)


def test_another_precision_is_left_to_onnx(taken):
    given = [np.array([16.6], np.float16), np.float16(0.4), np.uint8(0)]
    assert evaluate("QuantizeLinear", given, opset=23, precision=TensorProto.DOUBLE)[0].tolist() == [41]
    assert taken == []
