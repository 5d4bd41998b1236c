from array import array

import numpy as np
import pytest

import dmlcpu
from dmlcpu.common.arguments import as_array, as_array_like

X = np.array([1.0, 3.0, 2.0], np.float32)


class OnlyDlpack:
    """An array that NumPy can read by DLPack alone."""

    def __init__(self, x):
        self.x = x

    def __dlpack__(self, **keywords):
        return self.x.__dlpack__(**keywords)

    def __dlpack_device__(self):
        return self.x.__dlpack_device__()


class ElsewhereTensor:
    device = "cuda:0"

    def __array__(self, dtype=None, copy=None):
        raise TypeError("can't convert cuda:0 device type tensor to numpy")


class ArrowLike:
    null_count = 2

    def __array__(self, dtype=None, copy=None):
        return np.array([1, np.nan, np.nan])


@pytest.mark.parametrize("value", [OnlyDlpack(X), memoryview(X), array("f", X), X.view(np.memmap)], ids=type)
def test_what_others_hold_is_read_without_a_copy(value):
    found = as_array("top_k", "x", value)
    np.testing.assert_array_equal(found, X, strict=True)
    assert np.shares_memory(found, value.x if isinstance(value, OnlyDlpack) else np.asarray(value))
    assert dmlcpu.top_k(value, 1).indices == [1]


def test_updates_by_dlpack():
    found = as_array_like("scatter_nd", "updates", OnlyDlpack(X), "x", X.dtype)
    assert np.shares_memory(found, X)


REFUSALS = [
    (
        ElsewhereTensor(),
        "{} is ElsewhereTensor on device cuda:0 (can't convert cuda:0 device type tensor to numpy); "
        "allowed: an array that NumPy can read",
    ),
    (ArrowLike(), "{}.null_count is 2; allowed: 0"),
    (np.ma.masked_less(X, 2), "{} is a masked array; allowed: an array without a mask"),
]


@pytest.mark.parametrize(("value", "message"), REFUSALS, ids=lambda each: type(each).__name__)
def test_what_cannot_be_read_is_refused(value, message):
    byte = np.ones((1, 1), np.int8)
    calls = {
        "x": lambda: dmlcpu.scatter_nd(value, [[0]], X[:1]),
        "indices": lambda: dmlcpu.scatter_nd(X, value, X[:1]),
        "updates": lambda: dmlcpu.scatter_nd(X, [[0]], value),
    }
    for field, call in calls.items():
        with pytest.raises((TypeError, dmlcpu.DmlError)) as caught:
            call()
        assert str(caught.value) == "scatter_nd: " + message.format(field)
    with pytest.raises((TypeError, dmlcpu.DmlError)) as caught:
        dmlcpu.quantized_matmul(byte, 1.0, None, byte, 1.0, None, 1.0, value)
    assert str(caught.value) == "quantized_matmul: " + message.format("y_zero_point")


def test_a_method_of_that_name_counts_nothing():
    class Counted(ArrowLike):
        def null_count(self):
            return 2

    assert dmlcpu.top_k(Counted(), 1).indices == [1]


def test_tensors_of_pytorch():
    torch = pytest.importorskip("torch")
    x = torch.tensor([[1.5, -2.0, 3.0], [0.5, 7.0, 7.0]])
    for tensor in (x.bfloat16(), x.bfloat16().T, x, x.half()):
        found = as_array("top_k", "x", tensor)
        assert found.dtype.name == str(tensor.dtype).removeprefix("torch.")
        assert found.astype(np.float32).tolist() == tensor.float().tolist()
        assert found.ctypes.data == tensor.data_ptr()
    for tensor in (x.clone().requires_grad_(), x.bfloat16().requires_grad_()):
        with pytest.raises(TypeError, match=r"top_k: x is Tensor \(.*requires grad.*detach"):
            dmlcpu.top_k(tensor, 1)
    for tensor in (x.to("meta"), x.bfloat16().to("meta")):
        with pytest.raises(TypeError, match="top_k: x is Tensor on device meta"):
            dmlcpu.top_k(tensor, 1)
