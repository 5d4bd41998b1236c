"""add_at and its kin on updates of other types than x's: which are converted once, with NumPy's results and reports."""

import numpy as np
import pytest
from at_calls import ALWAYS, NEVER, PAIRS, check_or_same_error
from samples import NUMERIC_TYPES, random_bits

import dmlcpu
from dmlcpu import at

PLAIN_TYPES = [t for t in NUMERIC_TYPES if t.name != "bfloat16"]


@PAIRS
@pytest.mark.filterwarnings("ignore::numpy.exceptions.ComplexWarning")
@pytest.mark.parametrize("limits", [ALWAYS, NEVER], ids=["kernels", "NumPy"])
@pytest.mark.parametrize("dtype", PLAIN_TYPES, ids=str)
@pytest.mark.parametrize("given", PLAIN_TYPES, ids=str)
def test_arrays_of_other_types(monkeypatch, ours, numpys, limits, dtype, given):
    """Those that are computed alike are converted once."""
    monkeypatch.setattr(at, "LIMITS", limits)
    rng = np.random.default_rng(9)
    x, updates = random_bits(rng, (50,), dtype), random_bits(rng, (60,), given)
    check_or_same_error(ours, numpys, x, np.arange(60) % 50, updates)


NUMBERS = [1, 0.5, 0.1, -3, 300, True, 2**40, np.float32(0.1), np.uint8(200), np.int64(-1)]
NUMBERS += [0, -0.0, 2047, 2048, -2048, 2049, 1e-50, 1e-5, 0.25, -1.5, np.nan, np.inf]


@PAIRS
@pytest.mark.parametrize("limits", [ALWAYS, NEVER], ids=["kernels", "NumPy"])
@pytest.mark.parametrize("dtype", PLAIN_TYPES, ids=str)
@pytest.mark.parametrize("update", NUMBERS, ids=repr)
def test_numbers(monkeypatch, ours, numpys, limits, dtype, update):
    """In ufunc.at, NumPy does not convert them to x's type."""
    monkeypatch.setattr(at, "LIMITS", limits)
    x = random_bits(np.random.default_rng(8), (50, 3), dtype)
    check_or_same_error(ours, numpys, x, np.arange(60) % 50, update)


@pytest.mark.parametrize(
    ("dtype", "update", "expected"),
    [
        ("int32", 1, np.int32),
        ("uint32", 7, np.uint32),
        ("uint64", 7, int),
        ("float32", 1, np.float32),
        ("float32", 0.5, np.float32),
        ("float16", -2048, np.float16),
        ("int8", 300, int),
        ("uint8", -1, int),
        ("float32", 0.1, float),
        ("int64", 0.5, float),
        ("int64", 1, int),
        ("complex64", 1, int),
        ("int32", np.arange(5), np.int32),
        ("float32", np.arange(5, dtype=np.int16), np.float32),
        ("float32", np.arange(5), np.int64),
        ("float32", np.arange(5.0), np.float64),
        ("uint32", np.arange(5), np.int64),
    ],
)
def test_updates_that_sum_alike_have_the_type_of_x(monkeypatch, dtype, update, expected):
    """NumPy converts others anew for each index."""
    given = []
    monkeypatch.setattr(at, "_apply_by_numpy", lambda ufunc, x, indices, updates: given.append(updates))
    dmlcpu.add_at(np.zeros(3, dtype), np.zeros(5, int), update)
    assert type(np.ravel(given[0])[0] if isinstance(given[0], np.ndarray) else given[0]) is expected
    np.testing.assert_array_equal(given[0], update)


@PAIRS
@pytest.mark.parametrize("update", [0.5, np.array([1], np.int16), 1.5 * 2**-20], ids=repr)
@pytest.mark.parametrize("dtype", [np.float16, np.float32], ids=lambda dtype: dtype.__name__)
def test_updates_that_are_converted_report_what_numpy_reports(ours, numpys, dtype, update):
    """NumPy's loop of one type reports NaN as invalid, its loop that converts does not; without indices none runs."""
    for indices in (np.arange(40) % 5, np.zeros(0, int)):
        reports = set(), set()
        for function, report in zip((ours, numpys), reports, strict=True):
            with np.errstate(all="call", call=lambda *found, report=report: report.add(found)):
                function(np.array([np.nan, 1, 2, 3, 4], dtype), indices, update)
        assert reports[0] == reports[1]


def test_classes_that_replace_numpys_functions_get_the_updates_as_given():
    class Recording(np.ndarray):
        def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
            given.append((ufunc, method, inputs[2]))

    given = []
    dmlcpu.add_at(np.zeros(3, np.float32).view(Recording), [0], update := 1)
    assert given == [(np.add, "at", update)]
    assert type(given[0][2]) is int
