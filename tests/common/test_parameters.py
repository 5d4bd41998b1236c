import re

import ml_dtypes
import numpy as np
import pytest

from dmlcpu.common.parameters import as_floats, as_integers, as_numbers
from dmlcpu.errors import DmlError, UnsupportedError

INT8 = np.dtype(np.int8)


def integers(value, dtype=INT8, others=("uint8",)):
    return as_integers("op", "field", value, np.dtype(dtype), "int8 (why)", others)


def test_numbers_are_arrays_or_integers_of_any_size():
    x = np.array([1.5])
    assert as_numbers("op", "field", x) is x
    assert as_numbers("op", "field", [1, 10**30]).tolist() == [1, 10**30]
    objects = "an array of dtype object"
    for value, found in ((None, "NoneType"), ([None, 10**30], objects), (np.array([10**30]), objects)):
        with pytest.raises(TypeError, match=f"^op: field is {found}; allowed: an array of fixed-size elements"):
            as_numbers("op", "field", value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (3, 3),
        ([1, 0.5], [1, 0.5]),
        (10**30, 1e30),
        ([10**50, -(10**50), 1e300, 1e-60], [np.inf, -np.inf, np.inf, 0]),
        (np.array([1, 2], ml_dtypes.bfloat16), [1, 2]),
        ([], []),
    ],
)
def test_floats(value, expected):
    found = as_floats("op", "field", value)
    assert found.dtype == np.float32
    assert found.tolist() == np.float32(expected).tolist()


def test_floats_are_not_copied():
    x = np.ones(3, np.float32)
    assert as_floats("op", "field", x) is x


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        (10**400, DmlError, "op: field is an integer beyond float64; allowed: numbers that float64 holds"),
        (True, UnsupportedError, "op: field.dtype is bool; allowed: floating types"),
        (1j, UnsupportedError, "op: field.dtype is complex128; allowed: floating types"),
    ],
)
def test_floats_that_are_refused(value, error, message):
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        as_floats("op", "field", value)


@pytest.mark.parametrize("value", [-3, [-3, 127], np.int16(-3), np.array([[5]]), np.uint64(3), []])
def test_integers(value):
    found = integers(value)
    assert found.dtype == INT8
    assert found.tolist() == np.asarray(value).tolist()
    assert integers(found) is found
    assert integers([7, -8], ml_dtypes.int4).astype(int).tolist() == [7, -8]


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        (128, DmlError, "op: field is 128; allowed: -128 to 127 (int8)"),
        ([[0, 1], [0, 10**20]], DmlError, f"op: field[1, 1] is {10**20}; allowed: -128 to 127 (int8)"),
        (-(10**30), DmlError, f"op: field is -{10**30}; allowed: -128 to 127 (int8)"),
        (2**5000, DmlError, "op: field is an integer of 5,001 bits; allowed: -128 to 127 (int8)"),
        (np.uint8(1), UnsupportedError, "op: field.dtype is uint8; allowed: int8 (why)"),
        (1.0, UnsupportedError, "op: field.dtype is float64; allowed: int8 (why)"),
        (np.zeros(0), UnsupportedError, "op: field.dtype is float64; allowed: int8 (why)"),
    ],
)
def test_integers_that_are_refused(value, error, message):
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        integers(value)
