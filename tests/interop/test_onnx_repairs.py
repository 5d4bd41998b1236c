"""Operators in which ONNX's reference evaluator errs."""

import math

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import helper, numpy_helper  # noqa: E402

from dmlcpu.errors import BindingError, UnsupportedError  # noqa: E402
from dmlcpu.interop import onnx as ours  # noqa: E402
from dmlcpu.interop.onnx.repairs import erf  # noqa: E402


def info(name, dtype, shape):
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)


def run(operator, inputs, dtype, shape, opset, rest="evaluator", outputs=1, **attributes):
    """Run a model of one node. inputs: name -> array; those after the first are constants."""
    (first, x), *others = inputs.items()
    names = [f"y{number}" for number in range(outputs)]
    node = helper.make_node(operator, list(inputs), names, "the node", **attributes)
    results = [info("y0", dtype, shape), *(onnx.ValueInfoProto(name=name) for name in names[1:0])]
    constants = [numpy_helper.from_array(array, name) for name, array in others]
    graph = helper.make_graph([node], "model", [info(first, x.dtype, x.shape)], results, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    return ours.run_model(model, [x], rest=rest)[0]


def statistics(dtype=np.float32):
    channels = {"scale": [1, 2], "bias": [0, 1], "mean": [0, 3], "var": [1, 4]}
    return {name: np.array(values, dtype) for name, values in channels.items()}


@pytest.mark.parametrize("opset", [7, 9, 13, 14, 15, 21])
@pytest.mark.parametrize("shape", [(3, 2), (3, 2, 4), (3, 2, 4, 5)])
@pytest.mark.parametrize("momentum", [{}, {"momentum": 0.5}], ids=["", "momentum"])
def test_batch_normalization_takes_the_statistics_it_is_given(opset, shape, momentum):
    x = np.random.default_rng(0).standard_normal(shape, np.float32)
    y = run("BatchNormalization", {"x": x, **statistics()}, np.float32, shape, opset, epsilon=0.0, **momentum)
    channels = np.moveaxis(x, 1, -1)
    wanted = np.moveaxis((channels - [0, 3]) / [1, 2] * [1, 2] + [0, 1], -1, 1)
    np.testing.assert_allclose(y, wanted, rtol=1e-6, atol=1e-6)
    assert y.dtype == np.float32


@pytest.mark.parametrize(("opset", "more"), [(9, {"outputs": 5}), (7, {"spatial": 0}), (6, {})])
def test_batch_normalization_that_trains_is_refused(opset, more):
    x = np.ones((3, 2), np.float32)
    with pytest.raises(UnsupportedError, match="'the node'"):
        run("BatchNormalization", {"x": x, **statistics()}, np.float32, (3, 2), opset, **more)


def test_batch_normalization_that_trains_since_version_14():
    x = np.array([[1, 5], [3, 5]], np.float32)
    y = run("BatchNormalization", {"x": x, **statistics()}, np.float32, (2, 2), 15, outputs=3, training_mode=1)
    np.testing.assert_allclose(y, [[-1, 1], [1, 1]], atol=1e-4)


@pytest.mark.parametrize("shape", [(2, 3, 4), (2, 3, 4, 5), (2, 3, 4, 5, 2)])
def test_global_max_pool(shape):
    x = np.random.default_rng(0).standard_normal(shape, np.float32)
    y = run("GlobalMaxPool", {"x": x}, np.float32, ["n"] * len(shape), 17)
    np.testing.assert_array_equal(y, x.reshape(2, 3, -1).max(2).reshape(2, 3, *[1] * (len(shape) - 2)), strict=True)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_gather_elements_of_many(axis):
    rng = np.random.default_rng(0)
    x, at = rng.random((100, 90)), rng.integers(-90, 90, (40, 90) if axis == 0 else (100, 40))
    y = run("GatherElements", {"x": x, "at": at}, np.float64, at.shape, 17, axis=axis)
    np.testing.assert_array_equal(y, np.take_along_axis(x, at, axis))


def test_gather_elements_of_fewer_rows():
    x = np.arange(12.0).reshape(3, 4)
    assert run("GatherElements", {"x": x, "at": np.array([[3, -4]])}, np.float64, (1, 2), 17, axis=1).tolist() == [
        [3, 0]
    ]
    with pytest.raises(BindingError, match=r"GatherElements: indices.ndim is 1; allowed: 2, as data has"):
        run("GatherElements", {"x": x, "at": np.array([3])}, np.float64, (1,), 17)


@pytest.mark.parametrize("rest", ["evaluator", "auto"])
@pytest.mark.parametrize("opset", [10, 11, 12, 13, 19])
def test_quantizers_of_all_versions(rest, opset):
    numbers = {"scale": np.float32(0.5), "zero": np.uint8(3)}
    x = np.array([[1, 2.6]], np.float32)
    q = run("QuantizeLinear", {"x": x, **numbers}, np.uint8, (1, 2), opset, rest)
    assert q.tolist() == [[5, 8]]
    assert run("DequantizeLinear", {"x": q, **numbers}, np.float32, (1, 2), opset, rest).tolist() == [[1, 2.5]]


def test_gelu_is_computed_for_whole_arrays(monkeypatch):
    """Its function has Erf, which ONNX's evaluator computes an element at a time."""
    from dmlcpu.interop.onnx import repairs

    sizes = []
    monkeypatch.setattr(repairs, "erf", lambda x: (sizes.append(x.size), x)[1])
    run("Gelu", {"x": np.ones((30, 40), np.float32)}, np.float32, (30, 40), 20)
    assert sizes == [1200]


def spectra(x, step, window, bins):
    """Compute STFT by its definition. x: (batch, samples), maybe complex."""
    size = len(window)
    turns = np.exp(-2j * np.pi * np.outer(np.arange(size), np.arange(size)) / size)[:, :bins]
    frames = [(x[:, start : start + size] * window) @ turns for start in range(0, x.shape[1] - size + 1, step)]
    result = np.stack(frames, axis=1)
    return np.stack([result.real, result.imag], axis=-1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("parts", [1, 2], ids=["real", "complex"])
@pytest.mark.parametrize("onesided", [0, 1])
def test_stft(dtype, parts, onesided):
    signal = np.random.default_rng(0).standard_normal((2, 103, parts)).astype(dtype)
    window = np.hanning(20).astype(dtype)
    bins = 11 if onesided else 20
    inputs = {"x": signal, "step": np.array(7), "window": window, "length": np.array(20)}
    x = signal[..., 0] if parts == 1 else signal[..., 0] + 1j * signal[..., 1]
    wanted = spectra(x, 7, window, bins)
    y = run("STFT", inputs, dtype, wanted.shape, 17, onesided=onesided)
    assert y.dtype == dtype
    np.testing.assert_allclose(y, wanted, rtol=0, atol=2e-5 if dtype == np.float32 else 1e-12)


def test_stft_without_a_window_has_frames_of_all_samples():
    signal = np.random.default_rng(0).standard_normal((2, 16, 1))
    y = run("STFT", {"x": signal, "step": np.array(4)}, np.float64, (2, 1, 9, 2), 17)
    np.testing.assert_allclose(y, spectra(signal[..., 0], 4, np.ones(16), 9), rtol=0, atol=1e-12)


def test_stft_takes_what_onnx_runtime_takes():
    """A real signal of two dimensions, and scalars of one."""
    signal, window = np.random.default_rng(0).standard_normal((2, 16)), np.hanning(8)
    inputs = {"x": signal, "step": np.array([4]), "window": window, "length": np.array([8])}
    y = run("STFT", inputs, np.float64, (2, 3, 5, 2), 17)
    np.testing.assert_allclose(y, spectra(signal, 4, window, 5), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("step", "window", "length", "message"),
    [
        (0, 8, 8, r"STFT: frame_step is 0; allowed: 1 or more"),
        (1, 17, 17, r"STFT: frame_length is 17; allowed: 1 to 16, the length of signal"),
        (1, 7, 8, r"STFT: window.shape is \(7,\); allowed: \(8,\)"),
    ],
)
def test_stft_refuses_what_it_cannot_cut(step, window, length, message):
    inputs = {"x": np.ones((1, 16, 1)), "step": np.array(step), "window": np.ones(window), "length": np.array(length)}
    with pytest.raises(BindingError, match=message):
        run("STFT", inputs, np.float64, [1, "frames", "bins", 2], 17)


SPECIAL = [0.0, -0.0, 1e-45, -1e-30, 1 / 512, 3 / 512, 3.9, 4.0, -4.1, 1e30, np.inf, -np.inf, np.nan]


def exact_erf(x):
    return np.array([math.erf(each) for each in x.ravel()]).reshape(x.shape).astype(x.dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_erf_is_within_a_unit_in_the_last_place(dtype):
    rng = np.random.default_rng(0)
    with np.errstate(over="ignore"):
        x = np.concatenate([SPECIAL, rng.normal(size=40_000), 10.0 ** rng.uniform(-30, 1, 9_987)]).astype(dtype)
    x = x.reshape(2, 25_000)[:, ::-1]  # not in C order
    y, wanted = erf(x), exact_erf(x)
    assert (y.dtype, y.shape) == (x.dtype, x.shape)
    np.testing.assert_array_equal(np.signbit(y), np.signbit(wanted))
    np.testing.assert_array_max_ulp(y[np.isfinite(x)], wanted[np.isfinite(x)], 1)
    np.testing.assert_array_equal(y[~np.isfinite(x)], wanted[~np.isfinite(x)])
    assert np.mean(y != wanted) < 1e-3


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3)])
def test_erf_of_few(shape):
    x = np.full(shape, 0.5, np.float32)
    np.testing.assert_array_equal(erf(x), exact_erf(x), strict=True)
