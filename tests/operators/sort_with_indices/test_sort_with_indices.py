"""The order of sorts, by every kernel: what is equal, NaN, lengths on both sides of each limit, and refusals."""

import re

import numpy as np
import pytest
from operators.sort_with_indices.calls import random_call
from samples import FLOATS, INDEX_TYPES, KERNEL_LAYOUTS, TOP_K_TYPES, assert_same_bits, values

import dmlcpu
from dmlcpu import reference
from dmlcpu.common.forms import Form
from dmlcpu.errors import BindingError, DmlError, UnsupportedError
from dmlcpu.kernels.sort.windows import INSERTED
from dmlcpu.kernels.sort.work import LANES, SHORT
from dmlcpu.kernels.top_k.order import RANKED
from dmlcpu.operators import OPERATORS
from dmlcpu.runtime.threads import Budget, use_budget
from dmlcpu.sorting.call import Call
from dmlcpu.sorting.plan import plan, prepare

KERNELS = ("rows", "network", "columns", "split")
FUNCTIONS = ("sort", "argsort", "sort_with_indices")
LENGTHS = (1, 2, 3, 15, 64, RANKED - 1, RANKED, RANKED + 1, SHORT, SHORT + 1, 1000)


def check(x, kernel=None, parts=2, axis=-1, **options):
    """Compare all three functions with the reference; return the positions."""
    expected = reference.sort_with_indices(x, axis, **options)
    with use_budget(parts, grain=1, kernel=kernel):
        found = dmlcpu.sort_with_indices(x, axis, **options)
        assert_same_bits(found, expected)
        assert_same_bits(dmlcpu.sort(x, axis, **options), expected.values)
        assert_same_bits(dmlcpu.argsort(x, axis, **options), expected.indices)
    return found.indices


@pytest.mark.parametrize("dtype", TOP_K_TYPES, ids=str)
@pytest.mark.parametrize("kernel", KERNELS)
def test_every_kernel_sorts_every_type(kernel, dtype):
    if kernel == "network" and dtype.itemsize < 4:
        pytest.skip("the network sorts wider types")
    rng = np.random.default_rng(dtype.num)
    for n in LENGTHS[: LENGTHS.index(SHORT) + 1 if kernel == "network" else None]:
        for parts in (1, 3):
            shape = (n, 9) if kernel == "columns" else (2 if kernel == "split" else 5, n)
            x, axis = values(rng, shape, dtype), 0 if kernel == "columns" else 1
            check(x, kernel, parts, axis, descending=bool(rng.integers(2)), nan=str(rng.choice(["last", "greatest"])))


@pytest.mark.parametrize("layout", KERNEL_LAYOUTS)
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_any_layout_and_axis(layout, axis):
    rng = np.random.default_rng(axis)
    for dtype in (np.dtype(np.float32), np.dtype(np.int64), np.dtype(np.uint8)):
        for shape in ((3, LANES + 3, 7), (LANES, 2, SHORT + 5)):
            x = KERNEL_LAYOUTS[layout](values(rng, shape, dtype))
            check(x, axis=axis)


@pytest.mark.parametrize("seed", range(100))
def test_random_calls(seed, thread_count):
    sample = random_call(np.random.default_rng(seed))
    assert_same_bits(sample.run(), sample.expected())


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("descending", [False, True])
def test_keys_of_64_bits_that_are_equal_in_their_windows(kernel, descending):
    """All but one number, of many or of few, have one window; and so have runs that several parts share."""
    rng = np.random.default_rng(5)
    for count in (2, INSERTED + 1, 200):
        near = rng.integers(0, 50, (5, count)) + (1 << 40)
        for far in ([], [1 << 62], [-(1 << 62), 1 << 61]):
            x = np.concatenate([near, np.broadcast_to(np.array(far, np.int64), (5, len(far)))], axis=1)
            x = rng.permuted(x, axis=1)
            x, axis = (np.ascontiguousarray(x.T), 0) if kernel == "columns" else (x, 1)
            for parts in (1, 3, 7):
                check(x, kernel, parts, axis, descending=descending)
                check(x.astype(np.float64) * 1e280, kernel, parts, axis, descending=descending)


@pytest.mark.parametrize("kernel", ["rows", "split"])
@pytest.mark.parametrize("dtype", [*FLOATS, np.dtype(np.int32)], ids=str)
def test_zeros_and_nans_keep_their_order_where_values_alone_are_sorted(kernel, dtype):
    rng = np.random.default_rng(6)
    x = rng.choice(np.array([0.0, -0.0, np.nan, -np.nan, 1, -1, 2]), 900)
    x = np.nan_to_num(x).astype(dtype) if dtype.kind == "i" else x.astype(dtype)
    if dtype == np.float32:
        x.view(np.uint32)[np.isnan(x)] += rng.integers(0, 99, np.isnan(x).sum(), np.uint32)  # payloads
    for some in (x, x[~np.isnan(x)], x[x != 0]):
        for descending in (False, True):
            for nan in ("last", "greatest"):
                check(some, kernel, 3, descending=descending, nan=nan)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.uint8])
def test_what_is_in_order_already(kernel, dtype):
    if kernel == "network" and dtype is np.uint8:
        pytest.skip("the network sorts wider types")
    x = np.sort(np.random.default_rng(7).integers(0, 200, (4, 250)).astype(dtype))
    x, axis = (np.ascontiguousarray(x.T), 0) if kernel == "columns" else (x, 1)
    for some in (x, np.flip(x, axis), np.zeros_like(x)):
        check(some, kernel, 3, axis)
        check(some, kernel, 3, axis, descending=True)
    one_is_not = x.copy()
    one_is_not.reshape(-1)[-1] = 0
    for parts in range(1, 6):
        check(one_is_not, kernel, parts, axis)


def test_numpys_stable_order():
    rng = np.random.default_rng(8)
    for x in (rng.integers(-5, 5, (40, 300)), rng.standard_normal(5000), rng.choice([0.0, -0.0, np.nan, 1], (300, 40))):
        for axis in range(x.ndim):
            assert_same_bits(dmlcpu.argsort(x, axis), np.argsort(x, axis, kind="stable"))
            assert_same_bits(dmlcpu.sort(x, axis), np.sort(x, axis, kind="stable"))


def test_equal_elements_keep_their_order_in_both_directions():
    assert dmlcpu.argsort([1, 0, 1, 0]).tolist() == [1, 3, 0, 2]
    assert dmlcpu.argsort([1, 0, 1, 0], descending=True).tolist() == [0, 2, 1, 3]


@pytest.mark.parametrize(
    ("descending", "nan", "expected"),
    [
        (False, "last", [3, 1, 0, 2]),
        (True, "last", [1, 3, 0, 2]),
        (False, "greatest", [3, 1, 0, 2]),
        (True, "greatest", [0, 2, 1, 3]),
    ],
)
def test_where_nan_ranks(descending, nan, expected):
    x = np.array([np.nan, np.inf, -np.nan, -np.inf])
    assert dmlcpu.argsort(x, descending=descending, nan=nan).tolist() == expected


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (2, 0, 3)])
def test_empty_arrays(shape):
    for axis in range(len(shape)):
        found = dmlcpu.sort_with_indices(np.empty(shape, np.float32), axis)
        assert found.values.shape == found.indices.shape == shape


@pytest.mark.parametrize("dtype", INDEX_TYPES, ids=str)
@pytest.mark.parametrize("shape", [(7, 40), (3, 500), (500, 7)])
def test_outputs_of_any_strides(dtype, shape):
    x = np.random.default_rng(9).standard_normal(shape).astype(np.float32)
    axis = int(shape[0] > shape[1]) - 1
    expected = reference.sort_with_indices(x, axis, index_dtype=dtype)
    values, indices = np.zeros((*shape, 2), np.float32)[::-1, ::-1, 1], np.zeros(shape[::-1], dtype).T
    found = dmlcpu.sort_with_indices(x, axis, index_dtype=dtype, out=(values, indices))
    assert found.values is values
    assert found.indices is indices
    assert_same_bits(found, expected)


def test_split_parts_a_long_sequence_and_rows_take_several():
    def kernel_and_parts(shape, threads, axis=-1):
        x = np.empty(shape, np.float32)
        prepared = prepare(
            "argsort", ((x.shape, x.dtype, None), None), (axis, False, "last", np.int64), Budget(threads)
        )
        return prepared.kernel, prepared.is_single

    assert kernel_and_parts((1, 1_000_000), 2) == ("split", False)
    assert kernel_and_parts((1, 1_000_000), 1) == ("rows", True)
    assert kernel_and_parts((4, 1_000_000), 2) == ("rows", False)
    assert kernel_and_parts((4, 1_000_000), 8) == ("split", False)
    assert kernel_and_parts((20_000, 64), 2) == ("network", False)
    assert kernel_and_parts((1000, 1000), 2, 0) == ("columns", False)
    assert kernel_and_parts((1, 100), 64) == ("rows", True)


@pytest.mark.parametrize("operator", FUNCTIONS)
@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"x": 3}, DmlError, "{}: x.ndim is 0; allowed: at least 1"),
        ({"x": np.array([1j])}, UnsupportedError, "{}: x.dtype is complex128; allowed: "),
        ({"axis": 1}, DmlError, "{}: axis is 1; allowed: -1 to 0 (x has 1 dimension)"),
        ({"axis": 1.5}, TypeError, "{}: axis is 1.5; allowed: an integer"),
        ({"descending": 1}, TypeError, "{}: descending is 1; allowed: "),
        ({"nan": "first"}, DmlError, "{}: nan is 'first'; allowed: "),
    ],
)
def test_what_is_refused(operator, change, error, message):
    with pytest.raises(error, match="^" + re.escape(message.format(operator))):
        OPERATORS[operator].function(**{"x": [3, 1, 2], **change})


def test_more_elements_than_a_position_can_count_are_refused():
    too_long = ((2, (1 << 32) + 1), np.dtype(np.int8), None)
    with pytest.raises(DmlError, match=r"^sort: x.shape is \(2, 4294967297\); allowed: at most 4294967296 elements"):
        prepare("sort", (too_long, None), (-1, False, "last", None), Budget(1))
    long = ((2, (1 << 31) + 1), np.dtype(np.int8), None)
    with pytest.raises(DmlError, match=r"^argsort: index_dtype is int32; allowed: a type that holds 2147483648"):
        prepare("argsort", (long, None), (-1, False, "last", np.int32), Budget(1))


def test_outputs_that_do_not_fit_are_refused():
    x, indices = np.array([3.0, 1]), np.zeros(2, np.int64)
    for out, message in (
        ((np.zeros(3), indices), "out[0].shape is (3,); allowed: (2,)"),
        ((np.zeros(2), indices.astype(np.int32)), "out[1].dtype is int32; allowed: int64"),
        ((x, indices), "out[0]"),
    ):
        with pytest.raises(BindingError, match="^" + re.escape(f"sort_with_indices: {message}")):
            dmlcpu.sort_with_indices(x, out=out)
    with pytest.raises(TypeError, match=r"^sort_with_indices: out is "):
        dmlcpu.sort_with_indices(x, out=indices)
    assert x.tolist() == [3, 1]


def test_a_kernel_that_does_not_support_the_call_is_no_plan():
    call = Call("sort", Form((2, 9), np.dtype("u1")), 1, False, True, True, None)
    with pytest.raises(LookupError, match="network"):
        plan(call, (None,), Budget(1, kernel="network"))
