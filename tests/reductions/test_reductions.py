"""What argmax and argmin have in common."""

import itertools

import numpy as np
import pytest
from hypothesis import given, strategies as st
from operators.argmax.calls import random_call
from samples import KERNEL_LAYOUTS, THREADS, TOP_K_TYPES, assert_same_bits, values
from sources import Watched, in_blocks

import dmlcpu
from dmlcpu import reference
from dmlcpu.errors import BindingError, DmlError, UnsupportedError
from dmlcpu.kernels.arg_reduce import columns, lines
from dmlcpu.operators import OPERATORS
from dmlcpu.reductions import arguments, plan
from dmlcpu.runtime.threads import use_budget

NAN = np.nan
A = np.array([[1, 2, 3], [3, 0, 4], [2, 5, 2]], np.float32)
C = np.array([[[1, 9], [3, 4]], [[9, 2], [0, 8]]], np.float32)
each_operator = pytest.mark.parametrize("operator", ["argmax", "argmin"])
each_kernel = pytest.mark.parametrize("kernel", ["scan", "columns"])


def function(operator):
    return OPERATORS[operator].function


@each_operator
@pytest.mark.parametrize(
    ("x", "first", "last"), [([3.0, NAN, 1.0, NAN, 5.0], 1, 3), ([NAN, np.inf, -np.inf], 0, 0), ([0.0, -0.0], 0, 1)]
)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_nan_wins_and_zeros_tie(operator, x, first, last, dtype):
    x = np.array(x, dtype)
    assert function(operator)(x) == first
    assert function(operator)(x, select_last=True) == last


@given(st.integers(0, 2**32), st.sampled_from(["argmax", "argmin"]), st.sampled_from(THREADS))
def test_random_calls_have_the_bits_of_the_reference(seed, operator, parts):
    call = random_call(np.random.default_rng(seed), operator)
    with use_budget(parts, grain=1):
        assert_same_bits(call.run(), call.expected(), str(seed))


@pytest.mark.parametrize("layout", KERNEL_LAYOUTS)
@pytest.mark.parametrize("dtype", TOP_K_TYPES, ids=str)
def test_every_kernel(layout, dtype):
    """Each number of threads with every shape, axis and option, but not with all of them at once."""
    rng, counts = np.random.default_rng(1), itertools.cycle(THREADS)
    for shape, axis in itertools.product(((6, 150), (150, 9), (1, 4100), (7, 20, 11)), (0, -1, None)):
        x = KERNEL_LAYOUTS[layout](values(rng, shape, dtype))
        for operator, select_last in itertools.product(("argmax", "argmin"), (False, True)):
            options = {"axis": axis, "select_last": select_last}
            expected = OPERATORS[operator].reference(x, **options)  # it takes most of the time
            parts = next(counts)
            for kernel in ("scan", "columns"):
                with use_budget(parts, grain=1, kernel=kernel):
                    found = function(operator)(x, **options)
                assert_same_bits([found], [expected], f"{kernel} {operator} {shape} {options} {parts}")


@each_kernel
@pytest.mark.parametrize("parts", THREADS)
@pytest.mark.parametrize("select_last", [False, True])
@pytest.mark.parametrize("dtype", [np.uint8, np.float16, np.float32, np.float64])
def test_winners_on_both_sides_of_every_edge(kernel, parts, select_last, dtype):
    lanes = max(64 // np.dtype(dtype).itemsize, 16)
    tile = lines.LINES * lanes if kernel == "scan" else columns.ROWS
    for n in (31, 32, 33, lanes - 1, lanes, 2 * lanes + 1, tile - 1, tile, tile + 1, 2 * tile + 3):
        x = np.zeros((n, 9), dtype)
        places = (
            [0],
            [n - 1],
            [n // 2, n - 1],
            [],
            [min(n, tile) - 1],
            [tile % n],
            [lanes % n, 0],
            [0, n - 1],
            [n - 2],
        )
        for column, ones in enumerate(places):
            x[ones, column] = 1
        for sets in (x, np.ascontiguousarray(x.T).T):  # side by side, and each in one piece
            with use_budget(parts, grain=1, kernel=kernel):
                found = dmlcpu.argmax(sets, axis=0, select_last=select_last)
            assert found.tolist() == [
                ones[-1 if select_last else 0] if ones else (n - 1) * select_last for ones in map(sorted, places)
            ]


@each_operator
def test_blocks_of_columns(operator):
    """More columns than a block has, for each width."""
    rng = np.random.default_rng(2)
    for dtype in (np.uint8, np.float16, np.float32, np.float64):
        x = rng.integers(0, 5, (3, columns.LINES * 64 + 100)).astype(dtype)
        for parts in THREADS:
            with use_budget(parts, grain=1):
                assert_same_bits([function(operator)(x, axis=0)], [OPERATORS[operator].reference(x, axis=0)])


def test_several_axes_are_ordered_as_in_the_tensor():
    for axes in ((0, 2), (2, 0), (-1, 0), [2, 0]):
        assert dmlcpu.argmax(C, axis=axes).tolist() == [1, 3]
        assert dmlcpu.argmax(C, axis=axes, select_last=True).tolist() == [2, 3]
        assert dmlcpu.argmin(C, axis=axes).tolist() == [0, 2]


@each_operator
def test_keepdims_and_no_dimensions(operator):
    assert function(operator)(C, axis=(0, 2), keepdims=True).shape == (1, 2, 1)
    assert function(operator)(C, keepdims=True).shape == (1, 1, 1)
    for x in (np.float32(3), np.array(NAN), True):
        found = function(operator)(x, keepdims=True)
        assert (found.shape, found.dtype, found.item()) == ((), np.int64, 0)


@each_operator
@each_kernel
def test_out_of_any_strides_is_filled_and_returned(operator, kernel):
    x = np.random.default_rng(3).integers(0, 9, (40, 5, 30)).astype(np.int16)
    for axis, keepdims, dtype in itertools.product((0, 1, (0, 2)), (False, True), (np.int64, np.uint32)):
        expected = OPERATORS[operator].reference(x, axis=axis, keepdims=keepdims, index_dtype=dtype)
        whole = np.full([2 * n for n in expected.shape], 77, dtype)
        out = whole[tuple(slice(None, None, -2) for _ in expected.shape)]
        with use_budget(2, grain=1, kernel=kernel):
            assert function(operator)(x, axis=axis, keepdims=keepdims, index_dtype=dtype, out=out) is out
        np.testing.assert_array_equal(out, expected)
        assert (whole == 77).sum() >= whole.size - out.size


@each_operator
def test_no_sets_give_an_empty_result(operator):
    assert function(operator)(np.zeros((0, 3)), axis=1).shape == (0,)
    assert function(operator)(np.zeros((0, 0)), axis=1).shape == (0,)
    assert function(operator)(np.zeros((3, 0, 2)), axis=(0, 2), keepdims=True).shape == (1, 0, 1)


@each_operator
@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"x": np.zeros((2, 0))}, DmlError, r"x\.shape is \(2, 0\); allowed: at least one element along axis 1"),
        ({"x": np.zeros((0, 3)), "axis": None}, DmlError, r"x\.shape is \(0, 3\); allowed: .* along axis 0 and 1"),
        ({"x": A.astype(complex)}, UnsupportedError, r"x\.dtype is complex128"),
        ({"x": 1.0}, DmlError, r"axis is 1; allowed: None \(x has 0 dimensions\)"),
        ({"axis": 2}, DmlError, "axis is 2; allowed: -2 to 1"),
        ({"axis": (0, -3)}, DmlError, r"axis\[1\] is -3; allowed: -2 to 1"),
        ({"axis": (1, -1)}, DmlError, r"axis\[1\] is -1; allowed: an axis that was not named before"),
        ({"axis": ()}, DmlError, r"axis is \(\); allowed: None, an integer, or a tuple of at least one"),
        ({"axis": True}, TypeError, "axis is True; allowed: None, an integer or a tuple of integers"),
        ({"axis": 1.0}, TypeError, "axis is 1.0; allowed: None, an integer or a tuple of integers"),
        ({"axis": (0, True)}, TypeError, r"axis\[1\] is True; allowed: an integer"),
        ({"select_last": 1}, TypeError, "select_last is 1; allowed: True or False"),
        ({"keepdims": 0}, TypeError, "keepdims is 0; allowed: True or False"),
        ({"index_dtype": np.int16}, UnsupportedError, "index_dtype is int16"),
        ({"out": np.zeros(2, np.int64)}, BindingError, r"out\.shape is \(2,\); allowed: \(3,\)"),
        ({"out": np.zeros(3, np.int32)}, BindingError, r"out\.dtype is int32; allowed: int64"),
        ({"out": [0, 0, 0]}, TypeError, r"out is list; allowed: a numpy\.ndarray"),
    ],
)
def test_argument_that_does_not_fit_is_refused(operator, change, error, message):
    x = np.zeros((3, 2))
    valid = {"x": x, "axis": 1, "select_last": True, "keepdims": False}
    function(operator)(**valid)  # a look-up must tell True from 1
    function(operator)(**{**valid, "axis": (0, 1)})
    with pytest.raises(error, match=message):
        function(operator)(**{**valid, **change})


@each_operator
def test_out_may_not_share_memory_with_x(operator):
    x = np.zeros((3, 3), np.int64)
    with pytest.raises(BindingError, match="out is sharing memory with x"):
        function(operator)(x, axis=0, out=x[0])


def test_a_type_has_to_hold_the_last_index():
    large = np.broadcast_to(np.zeros(1, np.uint8), (2, 2**32 + 1))
    with pytest.raises(DmlError, match="index_dtype is uint32; allowed: a type that holds 4294967296"):
        dmlcpu.argmax(large, axis=1, index_dtype=np.uint32)
    for size, dtype, expected in ((2**31, "int32", True), (2**31 + 1, "int32", False), (2**32, "uint32", True)):
        assert arguments.fits(size, np.dtype(dtype)) is expected


@pytest.mark.parametrize("shape", [(4, 5), (1, 1), (3, 1, 2)])
def test_size_one_axes(shape):
    x = np.arange(np.prod(shape)).reshape(shape)
    for axis in range(-len(shape), len(shape)):
        assert_same_bits([dmlcpu.argmin(x, axis=axis)], [reference.argmin(x, axis=axis)])


def test_sets_side_by_side_are_read_as_rows_whatever_the_order_of_dimensions():
    """In Fortran's order the first dimension has step 1."""
    for x, axis in ((np.ones((50, 40)), 0), (np.ones((50, 40), order="F"), 1), (np.ones((9, 50, 40), order="F"), 2)):
        prepared = plan.prepare(
            "argmax", (x.shape, x.dtype, x.strides), None, axis, False, False, np.int64, plan.Budget(1)
        )
        assert prepared.kernel == "columns"


@each_operator
def test_calls_in_blocks_merge_by_element_and_then_by_place(operator):
    rng = np.random.default_rng(4)
    for dtype in (np.float32, np.uint8):
        x = values(rng, (3, 4, 5), np.dtype(dtype))
        for axis, keepdims, select_last in itertools.product(
            (None, 0, 1, 2, (0, 2), (1, 2)), (False, True), (False, True)
        ):
            given_ = {"x": x, "axis": axis, "keepdims": keepdims, "select_last": select_last}
            least = OPERATORS[operator].blocks.estimate(**given_).least()
            for memory in (least, least + 300):
                found = in_blocks(operator, {**given_, "x": Watched(x)}, memory)
                assert_same_bits(found, [OPERATORS[operator].reference(**given_)])
