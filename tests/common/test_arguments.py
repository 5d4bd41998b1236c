from array import array

import numpy as np
import pytest
from processes import run_each

import dmlcpu
from dmlcpu.common.arguments import as_array, as_array_like
from dmlcpu.operators import OPERATORS

X = np.array([1.0, 3.0, 2.0], np.float32)


class OnlyDlpack:
    """An array that NumPy can read only by DLPack."""

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
def test_arrays_of_other_libraries_are_not_copied(value):
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


@pytest.mark.parametrize("operator", OPERATORS.values(), ids=list(OPERATORS))
@pytest.mark.parametrize(("value", "message"), REFUSALS, ids=lambda each: type(each).__name__)
def test_array_that_numpy_cannot_read_is_refused(value, message, operator):
    arguments = next(operator.examples(operator.typical)).arguments
    for field, given in arguments.items():
        if isinstance(given, np.ndarray) or field.endswith(("scale", "zero_point")):
            with pytest.raises((TypeError, dmlcpu.DmlError)) as caught:
                operator.function(**{**arguments, field: value})
            assert str(caught.value) == f"{operator.name}: " + message.format(field)


def test_null_count_that_is_a_method_is_ignored():
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


def test_names_of_types_of_ml_dtypes_import_it():
    calls = {"int4": ("quantize_linear", "float32"), "bfloat16": ("dequantize_linear", "int8")}
    code = """
    x = np.ones(3, {dtype!r})
    sys.modules["ml_dtypes"] = None
    try:
        dmlcpu.{function}(x, 1.0, out_dtype={name!r})
    except ImportError as error:
        print(error)
    del sys.modules["ml_dtypes"]
    print(dmlcpu.{function}(x, 1.0, out_dtype={name!r}))
    """
    codes = [code.format(name=name, function=function, dtype=dtype) for name, (function, dtype) in calls.items()]
    start = "import sys, numpy as np, dmlcpu\ndmlcpu.quantize_linear(np.ones(3, np.float32), 1.0)\n"
    for name, output in zip(calls, run_each(codes, start), strict=True):
        missing, found = output.splitlines()
        text = f"{calls[name][0]}: out_dtype '{name}' needs the package ml_dtypes: pip install ml_dtypes"
        assert (missing, found) == (text, "[1 1 1]")
