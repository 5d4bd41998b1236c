import math

import numpy as np
import pytest

pytest.importorskip("onnx")
from dmlcpu.interop.onnx.erf import erf

SPECIAL = [0.0, -0.0, 1e-45, -1e-30, 1 / 512, 3 / 512, 3.9, 4.0, -4.1, 1e30, np.inf, -np.inf, np.nan]


def right(x):
    return np.array([math.erf(each) for each in x.ravel()]).reshape(x.shape).astype(x.dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_erf_is_within_a_unit_in_the_last_place(dtype):
    rng = np.random.default_rng(0)
    with np.errstate(over="ignore"):
        x = np.concatenate([SPECIAL, rng.normal(size=40_000), 10.0 ** rng.uniform(-30, 1, 9_987)]).astype(dtype)
    x = x.reshape(2, 25_000)[:, ::-1]  # in several blocks, not in C order
    y, wanted = erf(x), right(x)
    assert (y.dtype, y.shape) == (x.dtype, x.shape)
    np.testing.assert_array_equal(np.signbit(y), np.signbit(wanted))
    np.testing.assert_array_max_ulp(y[np.isfinite(x)], wanted[np.isfinite(x)], 1)
    np.testing.assert_array_equal(y[~np.isfinite(x)], wanted[~np.isfinite(x)])
    assert np.mean(y != wanted) < 1e-3


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3)])
def test_erf_of_few(shape):
    x = np.full(shape, 0.5, np.float32)
    np.testing.assert_array_equal(erf(x), right(x), strict=True)
