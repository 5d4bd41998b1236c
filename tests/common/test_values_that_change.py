"""Values that another thread writes between a call's refusal and its error: the call runs again."""

import importlib

import numpy as np
import pytest

import dmlcpu
from dmlcpu import compile_operator, reference
from dmlcpu.common import parameters
from dmlcpu.common.parameters import check_scale
from dmlcpu.directml.tensor import TensorDesc
from dmlcpu.errors import DmlError, IndexOutOfRangeError
from dmlcpu.operators.scatter_nd.call import check_index

X = np.array([[1, 2], [3, 4]], np.float32)
A = np.array([[1, 2], [3, 4]], np.uint8)


def mended(monkeypatch, module, name, array):
    """Let a check, which would raise the error, find a valid value."""
    calls = []

    def check(*args, **kwargs):
        assert not calls, "it has been refused again"
        calls.append(args)
        array[...] = 1

    monkeypatch.setattr(importlib.import_module(module), name, check)
    return calls


@pytest.mark.parametrize("scale", [np.zeros(2, np.float32), np.zeros(4, np.float32)[::2], np.zeros(2)])
def test_quantize_linear(scale, monkeypatch):
    calls = mended(monkeypatch, "dmlcpu.operators.quantize_linear.function", "check_scale", scale)
    found = dmlcpu.quantize_linear(X, scale, axis=0)
    assert len(calls) == 1
    np.testing.assert_array_equal(found, X.astype(np.uint8), strict=True)


def test_quantized_matmul(monkeypatch):
    scale = np.zeros(2, np.float32)
    calls = mended(monkeypatch, "dmlcpu.operators.quantized_matmul.function", "check_scale", scale)
    found = dmlcpu.quantized_matmul(A, 1.0, None, A, scale, None, 1.0, None)
    assert len(calls) == 1
    np.testing.assert_array_equal(found, reference.quantized_matmul(A, 1.0, None, A, 1.0, None, 1.0, None), strict=True)


def test_dynamic_quantize_linear(monkeypatch):
    x = np.full(3, np.nan, np.float32)
    calls = mended(monkeypatch, "dmlcpu.operators.dynamic_quantize_linear.function", "check_range", x)
    found = dmlcpu.dynamic_quantize_linear(x)
    assert len(calls) == 1
    np.testing.assert_array_equal(found.y, reference.dynamic_quantize_linear(np.ones(3, np.float32)).y, strict=True)


def test_dynamic_quantize_matmul(monkeypatch):
    x = np.full((1, 2), np.nan, np.float32)
    calls = mended(monkeypatch, "dmlcpu.operators.dynamic_quantize_matmul.function", "check_range", x)
    found = dmlcpu.dynamic_quantize_matmul(x, A, 1)
    assert len(calls) == 1
    np.testing.assert_array_equal(found, reference.dynamic_quantize_matmul(np.ones((1, 2)), A, 1), strict=True)


def test_scatter_nd(monkeypatch):
    indices = np.array([[7]])
    calls = mended(monkeypatch, "dmlcpu.operators.scatter_nd.function", "check_index", indices)
    found = dmlcpu.scatter_nd(np.zeros(3), indices, np.ones(1))
    assert len(calls) == 1
    assert found.tolist() == [0, 1, 0]


@pytest.mark.parametrize("scale", [np.zeros((1, 2), np.float32), np.zeros((1, 4), np.float32)[:, ::2]])
def test_a_compiled_operator(scale, monkeypatch):
    one = np.ones((1, 1), np.float32)
    tensors = {"a_tensor": A, "a_scale_tensor": one, "b_tensor": A, "b_scale_tensor": scale}
    tensors |= {"output_scale_tensor": one, "output_tensor": np.zeros_like(A)}
    descs = {name: TensorDesc.of(array) for name, array in tensors.items()}
    calls = mended(monkeypatch, "dmlcpu.products.descriptor", "check_scale", scale)
    found = compile_operator(dmlcpu.QuantizedLinearMatrixMultiplyOperatorDesc(**descs))(**tensors)
    assert len(calls) == 1
    np.testing.assert_array_equal(found, reference.quantized_matmul(A, 1.0, None, A, 1.0, None, 1.0, None), strict=True)


def test_a_scale_that_is_valid_by_now_is_not_refused(monkeypatch):
    """Another thread writes it between the look at all scales and the look for the bad one."""
    monkeypatch.setattr(parameters, "is_usable", lambda scales: False)
    check_scale("op", "scale", np.ones(3, np.float32))
    with pytest.raises(DmlError, match=r"op: scale\[1\] is 0.0; allowed: finite"):
        check_scale("op", "scale", np.array([1, 0], np.float32))


@pytest.mark.parametrize("field", ["indices", "IndicesTensor"])
def test_an_index_that_is_valid_by_now_is_not_refused(field):
    indices = np.array([[1], [5]])
    check_index(indices, 0, (5,), "op", field)
    with pytest.raises(IndexOutOfRangeError, match=rf"op: {field}\[1, 0\] is 5; allowed: -5 to 4"):
        check_index(indices, 1, (5,), "op", field)
