import re

import ml_dtypes
import numpy as np
import pytest
from samples import misaligned, read_only, reversed_in_memory, strided

from dmlcpu.common.parameters import as_floats, as_integers, as_numbers, check_scale, float_number, is_usable
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


@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("value", [0.1, 3, 10**30, *[np.dtype(code).type(7) for code in "bBhHiIlLqQefd"]])
def test_a_number_is_an_array_of_one_float(value, positive):
    found = float_number("op", "field", value, positive)
    assert (found.dtype, found.shape, found.flags.carray, found.flags.owndata) == (np.float32, (1,), True, True)
    assert found.item() == np.float32(value)
    assert float_number("op", "field", value, positive) is found  # most calls repeat the numbers of earlier ones


@pytest.mark.parametrize("value", [-3, -0.5, np.float32(-1), np.inf, -np.inf, np.nan, 1e300, np.float64(-1e300), 1e-60])
def test_a_number_may_have_any_value_unless_it_has_to_be_positive(value):
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(float_number("op", "field", value, False), [np.float32(value)], strict=True)
    for _ in range(2):
        message = f"op: field is {value}; allowed: finite float32 numbers greater than 0"
        with pytest.raises(DmlError, match=f"^{re.escape(message)}$"):
            float_number("op", "field", value, True)


def test_zeros_keep_their_sign():
    """Without the look-up, which takes -0.0 for 0.0."""
    for zero in (0.0, -0.0, 0.0, np.float32(-0.0), 0, np.float64(-0.0), -0.0):
        (found,) = float_number.__wrapped__("op", "field", zero, False)
        assert found == 0
        assert np.signbit(found) == np.signbit(zero)
        with pytest.raises(DmlError, match=rf"^op: field is {zero}; allowed: finite"):
            float_number.__wrapped__("op", "field", zero, True)


@pytest.mark.parametrize("number", [1, 1.0, np.int8(1), np.float32(1)])
def test_true_is_no_number_though_it_equals_one(number):
    for value in (True, np.True_):
        assert float_number("op", "field", number, True).item() == 1
        with pytest.raises(UnsupportedError, match=r"^op: field\.dtype is bool; allowed: floating types$"):
            float_number("op", "field", value, True)


def test_a_number_beyond_float64_is_refused():
    with pytest.raises(DmlError, match=r"^op: field is an integer beyond float64"):
        float_number("op", "field", 10**400, False)


LAYOUTS = {
    "packed": np.copy,
    "strided": strided,
    "reversed": reversed_in_memory,
    "F": np.asfortranarray,
    "read-only": read_only,
    "misaligned": misaligned,
    "rows repeated": lambda x: np.broadcast_to(x[..., np.newaxis, :], (*x.shape[:-1], 5, x.shape[-1])),
    "columns repeated": lambda x: np.broadcast_to(x[..., np.newaxis], (*x.shape, 5)),
}
BAD = (0.0, -0.0, -1.0, np.inf, -np.inf, np.nan)


@pytest.fixture(params=[False, True], ids=["compiled", "not compiled"])
def _compilation(request, monkeypatch):
    if request.param:
        monkeypatch.setattr("numba.config.DISABLE_JIT", 1)


@pytest.mark.usefixtures("_compilation")
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(1,), (2,), (3, 4), (1, 1, 1)])
def test_one_bad_scale_anywhere_is_found(layout, shape):
    limits = np.finfo(np.float32)
    scales = np.full(shape, limits.max)
    scales.flat[::2] = limits.smallest_subnormal
    assert is_usable(LAYOUTS[layout](scales)) is True
    for place in range(scales.size):
        for bad in BAD:
            mine = scales.copy()
            mine.flat[place] = bad
            found = LAYOUTS[layout](mine)
            assert is_usable(found) is False
            index = ", ".join(str(int(i)) for i in np.argwhere(~((found > 0) & (found < np.inf)))[0])
            where = f"[{index}]" if found.size > 1 else ""
            message = f"op: field{where} is {bad}; allowed: finite float32 numbers greater than 0"
            with pytest.raises(DmlError, match=f"^{re.escape(message)}$"):
                check_scale("op", "field", found)


@pytest.mark.usefixtures("_compilation")
@pytest.mark.parametrize("shape", [(), (2, 3)])
def test_a_number_that_is_repeated_is_looked_at_once(shape):
    for number in (0.5, *BAD):
        scales = np.broadcast_to(np.float32(number), shape)
        assert is_usable(scales) is (number == 0.5)


@pytest.mark.usefixtures("_compilation")
@pytest.mark.parametrize(
    "scales", [np.ones(0, np.float32), np.ones((3, 0, 2), np.float32)[::2], np.ones((0, 3), "f4").T]
)
def test_no_scales_are_usable(scales):
    assert is_usable(scales) is True
    check_scale("op", "field", scales)
    assert is_usable(np.broadcast_to(np.float32(0), (3, 0))) is True


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (np.array([1, 1e-60, 0]), "op: field[1] is 1e-60;"),
        (np.array([[1], [1e300]]), "op: field[1, 0] is 1e+300;"),
        (np.array(-1), "op: field is -1;"),
        ([1, 10**50], f"op: field[1] is {10**50};"),
        (np.array([[2, 2, -7]], np.int8), "op: field[0, 2] is -7;"),
    ],
)
def test_a_bad_scale_is_named_as_it_was_given(given, message):
    scales = as_floats("op", "field", given)
    for mine in (scales, scales.reshape(-1), scales.reshape(1, 1, -1)):  # as kernels have them
        with pytest.raises(DmlError, match=f"^{re.escape(message)} allowed: finite float32 numbers greater than 0$"):
            check_scale("op", "field", mine, given)
