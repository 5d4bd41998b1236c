"""Arguments of products: whatever their kind, the bits are the reference's, and repeated calls check nothing again."""

import functools
import itertools
import pickle

import numpy as np
import pytest

import dmlcpu
from dmlcpu import reference
from dmlcpu.errors import DmlError, UnsupportedError
from dmlcpu.operators.matmul_integer import function as matmul_integer_function
from dmlcpu.operators.matmul_top_k import function as matmul_top_k_function
from dmlcpu.operators.quantized_matmul import function as quantized_matmul_function
from dmlcpu.products import arguments
from dmlcpu.products.plan import plan, prepare
from dmlcpu.runtime.threads import use_budget

A = np.array([[10, 200, 30], [40, 5, 255]], np.uint8)
B = np.array([[1, -1], [2, -128], [127, 3]], np.int8)
KINDS = {
    "Python": lambda number, dtype: dtype.type(number).item(),
    "NumPy": lambda number, dtype: dtype.type(number),
    "0-d": lambda number, dtype: np.array(number, dtype),
    "1-d": lambda number, dtype: np.array([number], dtype),
    "2-d": lambda number, dtype: np.array([[number]], dtype),
    "each": None,
    "list": lambda number, dtype: [dtype.type(number).item()],
    "float64": lambda number, dtype: np.array([number], np.float64 if dtype.kind == "f" else dtype),
}
F4, U1, S1 = np.dtype(np.float32), np.dtype(np.uint8), np.dtype(np.int8)


def given(kind, number, dtype, shape):
    return np.full(shape, number, dtype) if kind == "each" else KINDS[kind](number, dtype)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("packs", [False, True])
def test_numbers_of_every_kind_give_the_same_bits(kind, packs):
    rows, columns = (2, 1), (2,)
    arguments = (
        (given(kind, 0.3, F4, rows), given(kind, 7, U1, rows)),
        (given(kind, 0.7, F4, columns), given(kind, -3, S1, columns)),
        (given(kind, 9, F4, rows), given(kind, 100, U1, rows)),
    )
    (a_scale, a_zero), (b_scale, b_zero), (y_scale, y_zero) = arguments
    expected = reference.quantized_matmul(A, a_scale, a_zero, B, b_scale, b_zero, y_scale, y_zero)
    b = dmlcpu.pack_b(B) if packs else B
    for _ in range(2):  # the second finds what the first has looked up
        found = dmlcpu.quantized_matmul(A, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero)
        np.testing.assert_array_equal(found, expected, strict=True)
    sums = dmlcpu.matmul_integer(A, a_zero, b, b_zero)
    np.testing.assert_array_equal(sums, reference.matmul_integer(A, a_zero, B, b_zero), strict=True)


@pytest.mark.parametrize("zero", [np.uint8(5), np.int8(5), np.array(5, np.uint8), np.array([5], np.int8), 5, None])
@pytest.mark.parametrize("out_dtype", [None, np.int8, "uint8"])
@pytest.mark.parametrize("scale", [1.0, np.ones(1, np.float32)])
def test_the_type_of_the_result_follows_from_the_zero_point(zero, out_dtype, scale):
    def call(scale):
        try:
            return dmlcpu.quantized_matmul(A, scale, None, B, scale, None, scale, zero, out_dtype=out_dtype)
        except DmlError as error:
            return str(error)

    long_way = call([1.0])
    found = call(scale)
    assert type(found) is type(long_way)
    np.testing.assert_array_equal(found, long_way, strict=True)


def test_numbers_may_be_others_at_each_call():
    for number in (0.5, 0.25, np.float32(0.5), 3, 0.125):
        expected = reference.quantized_matmul(A, number, 3, B, 1.0, None, 2.0, 9)
        assert dmlcpu.quantized_matmul(A, number, 3, B, 1.0, None, 2.0, 9).tolist() == expected.tolist()


@pytest.mark.parametrize("size", [1, 2])
def test_arrays_are_read_at_each_call(size):
    scale, zero = np.ones(size, np.float32), np.zeros(size, np.uint8)
    for number in (1, 2, 5):
        scale[...], zero[...] = number, number
        expected = reference.quantized_matmul(A, scale, zero, B, 1.0, None, 300.0, None)
        assert dmlcpu.quantized_matmul(A, scale, zero, B, 1.0, None, 300.0, None).tolist() == expected.tolist()
    for bad in (0, np.nan, np.inf, -1):
        scale[-1] = bad
        with pytest.raises(DmlError, match=r"quantized_matmul: a_scale(\[1\])? is "):
            dmlcpu.quantized_matmul(A, scale, zero, B, 1.0, None, 300.0, None)


def test_equal_numbers_of_other_types_are_told_apart():
    assert dmlcpu.matmul_integer(A, 1, B, 1).shape == (2, 2)
    for wrong in (1.0, True, np.float32(1), "1"):
        with pytest.raises(UnsupportedError, match=r"matmul_integer: a_zero_point.dtype is"):
            dmlcpu.matmul_integer(A, wrong, B, 1)
    assert dmlcpu.matmul_integer(A, np.uint8(1), B, np.int8(1)).shape == (2, 2)
    with pytest.raises(UnsupportedError, match=r"matmul_integer: a_zero_point.dtype is int8"):
        dmlcpu.matmul_integer(A, np.int8(1), B, 1)
    with pytest.raises(UnsupportedError, match=r"matmul_integer: a_zero_point.dtype is int8"):
        dmlcpu.matmul_integer(A, np.array([1], np.int8), B, 1)


def test_sequences_that_are_hashable_are_no_numbers():
    expected = reference.quantized_matmul(A, 0.5, [2, 3], B, [0.5, 0.25], None, 1.0, 9)
    found = dmlcpu.quantized_matmul(A, 0.5, range(2, 4), B, (0.5, 0.25), None, 1.0, 9)
    np.testing.assert_array_equal(found, expected, strict=True)


def test_objects_with_an_array_are_read_at_each_call():
    class Scale:
        number = 0.5

        def __array__(self, dtype=None, copy=None):
            return np.array(self.number, np.float32)

    scale = Scale()
    for scale.number in (0.5, 4.0):
        expected = reference.quantized_matmul(A, scale.number, 3, B, 1.0, None, 200.0, 9)
        found = dmlcpu.quantized_matmul(A, scale, 3, B, 1.0, None, 200.0, 9)
        np.testing.assert_array_equal(found, expected, strict=True)


@pytest.mark.parametrize("scale", [0.0, np.zeros(2, np.float32), [0.0]])
def test_of_several_errors_the_same_is_raised_whatever_the_kinds(scale):
    with pytest.raises(DmlError, match=r"quantized_matmul: b.shape is \(2, 2\); allowed: K = 3 rows"):
        dmlcpu.quantized_matmul(A, scale, None, B[:2], 1.0, None, 1.0, None)
    with pytest.raises(DmlError, match=r"quantized_matmul: b.shape is \(2, 2\); allowed: K = 3 rows"):
        dmlcpu.quantized_matmul(A, np.ones(2, np.float32), None, B[:2], 1.0, None, 1.0, None, out_dtype=np.int32)


def test_operands_without_dimensions_are_refused():
    number = np.array(3, np.int8)
    for a, b, name in ((number, B[:1], "a"), (number, B, "a"), (A[:, :1].copy(), number, "b")):
        with pytest.raises(DmlError, match=f"matmul_integer: {name}.ndim is 0; allowed: at least 1"):
            dmlcpu.matmul_integer(a, None, b, None)


def test_results_have_no_metadata_of_other_calls():
    marked = A.astype(np.dtype(np.uint8, metadata={"of": "A"}))
    for a in (marked, A):
        assert dmlcpu.quantized_matmul(a, 1.0, None, B, 1.0, None, 1.0, None).dtype.metadata is None


def test_an_output_may_share_memory_with_scales():
    memory = np.zeros(8, np.uint8)
    for shared in (memory[4:].view(np.float32), memory[:8].view(np.float32)):
        shared[...] = 0.5
        expected = reference.quantized_matmul(A, shared[-1], 3, B, 1.0, None, 2.0, 9)
        out = memory[4:].reshape(2, 2)
        dmlcpu.quantized_matmul(A, shared[-1:], 3, B, 1.0, None, 2.0, 9, out=out)
        np.testing.assert_array_equal(out, expected)
        shared[...] = 0.5


def test_an_output_may_share_memory_with_scales_of_rows():
    memory = np.zeros(4496, np.uint8)
    a, scales, b = np.full((1024, 3), 7, np.uint8), memory[:4096].view(np.float32), np.ones((3, 4), np.int8)
    scales[...] = np.linspace(0.5, 9, 1024)
    expected = reference.quantized_matmul(a, scales, None, b, 1.0, None, 2.0, 9)
    out = memory[400:].reshape(1024, 4)
    dmlcpu.quantized_matmul(a, scales, None, b, 1.0, None, 2.0, 9, out=out)
    np.testing.assert_array_equal(out, expected)


def preparations(call):
    """Return how many calls were checked and planned, not looked up, while `call` was made."""
    before = prepare.cache_info().misses
    call()
    return prepare.cache_info().misses - before


def test_repeated_calls_are_looked_up():
    out = np.empty((2, 2), np.uint8)
    for number in (0.5, np.float32(0.5), np.array(0.5, np.float32), np.full((2, 1), 0.5, np.float32), [0.5, 0.5]):
        given = (A, number, 3, B, 1.0, None, number, 9)
        expected = reference.quantized_matmul(*given)
        prepare.cache_clear()
        call = functools.partial(dmlcpu.quantized_matmul, *given)
        with use_budget(1):
            assert preparations(call) == 1
            for again in (call, functools.partial(call, out=out)):
                assert preparations(again) == 0
                np.testing.assert_array_equal(again(), expected, strict=True)


@pytest.mark.parametrize(
    "layout", [lambda x: np.repeat(x, 2, axis=0)[::2], np.asfortranarray, lambda x: x[::-1].copy()[::-1]]
)
def test_views_are_looked_up_by_their_strides(layout):
    scales = np.array([0.5, 0.25])
    expected = reference.quantized_matmul(A, 0.5, 3, B, scales, [1, 2], 9.0, 9)
    call = functools.partial(dmlcpu.quantized_matmul, layout(A), 0.5, 3, layout(B), scales, [1, 2], 9.0, 9)
    np.testing.assert_array_equal(call(), expected, strict=True)
    assert preparations(call) == 0
    np.testing.assert_array_equal(call(), expected, strict=True)


def test_calls_with_other_numbers_share_a_plan():
    call = functools.partial(dmlcpu.quantized_matmul, A, b_scale=1.0, b=B, b_zero_point=None, y_scale=2.0)
    call(a_scale=0.5, a_zero_point=3, y_zero_point=9)
    assert preparations(lambda: call(a_scale=0.625, a_zero_point=77, y_zero_point=12)) == 0


def test_look_ups_are_limited():
    for cached in (arguments._of_numbers, arguments._number, plan, prepare):
        assert cached.cache_info().maxsize == 1024


def test_operands_of_every_shape():
    shapes = (((3,), (3, 2)), ((2, 3), (3,)), ((3,), (3,)), ((4, 1, 2, 3), (5, 3, 2)))
    for (left, right), zero in itertools.product(shapes, (None, 3)):
        a, b = np.full(left, 7, np.uint8), np.full(right, -5, np.int8)
        expected = reference.matmul_integer(a, zero, b, zero)
        np.testing.assert_array_equal(dmlcpu.matmul_integer(a, zero, b, zero), expected, strict=True)


@pytest.mark.parametrize("kind", [np.ndarray, type("Subclass", (np.ndarray,), {})])
def test_a_number_that_lies_in_the_output_is_copied_before_anything_is_written(kind):
    out = np.empty((2, 2), np.int32)
    zero = out.view(np.uint8)[0, :1].reshape(()).view(kind)
    _, arrays = matmul_integer_function.request(A, zero, B, None, np.int32, out)
    assert not np.shares_memory(arrays[2][1], out)
    zero[...] = 7
    found = dmlcpu.matmul_integer(A, zero, B, None, out=out)
    np.testing.assert_array_equal(found, reference.matmul_integer(A, np.uint8(7), B, None), strict=True)


def test_an_output_that_is_a_parameter_is_read_before_it_is_written():
    a, b = np.full((2, 3), 10, np.uint8), np.ones((3, 1), np.int8)
    out = np.array([[100], [50]], np.uint8)
    expected = reference.quantized_matmul(a, 1.0, None, b, 1.0, None, 1.0, out.copy())
    arguments = (a, 1.0, None, b, np.ones(1, np.float32), None, 1.0, out)
    _, arrays = quantized_matmul_function.request(*arguments, None, out)
    assert not np.shares_memory(arrays[2][5], out)
    found = dmlcpu.quantized_matmul(*arguments, out=out)
    assert found is out
    np.testing.assert_array_equal(out, expected, strict=True)


def test_a_parameter_that_lies_in_an_output_of_matmul_top_k_is_copied_before_anything_is_written():
    values, indices = np.zeros((2, 2), np.int32), np.zeros((2, 2), np.int64)
    for output in (values, indices):
        zero = output.view(np.uint8)[:1, :2].reshape(2)
        zero[:] = 7, 3
        _, arrays = matmul_top_k_function.request(
            A, B, 2, None, zero, None, None, None, "largest", "greatest", None, None, (values, indices)
        )
        assert not np.shares_memory(arrays[2][1], output)
        assert arrays[2][1].tolist() == [7, 3]


@pytest.mark.parametrize("each", [0.5, np.full(2, 0.5, np.float32)])
def test_negative_zeros_are_not_zeros(each):
    a, b = np.ones((1, 2), np.uint8), np.ones((2, 2), np.int8)
    for zero in (0.0, -0.0, 0.0):
        for scales in ((zero, each), (each if isinstance(each, float) else 0.5, zero)):
            found = dmlcpu.matmul_integer_to_float(a, scales[0], None, b, scales[1], None)
            assert np.signbit(found).tolist() == [[np.signbit(zero)] * 2]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("place", [1, 2, 4, 5, 6, 7])
def test_memoryviews_are_arrays(place, dtype):
    arguments = [A, 0.5, 3, B, 0.25, -2, 9.0, 7]
    number = np.array([arguments[place]], dtype)
    if place in (2, 5, 7):
        number = number.astype(np.uint8 if place == 2 else np.int8)
    expected = reference.quantized_matmul(*arguments, out_dtype=np.int8)
    for view in (memoryview(number), memoryview(number.tobytes()).cast(number.dtype.char)):
        arguments[place] = view
        np.testing.assert_array_equal(dmlcpu.quantized_matmul(*arguments, out_dtype=np.int8), expected, strict=True)


def test_wrong_arguments_are_refused_in_their_order():
    arguments = [A, 0.5, 3, B, 0.25, -2, 9.0, 7]
    bad = {1: "x", 2: np.ones(1), 4: "x", 5: 1000, 6: -1.0, 7: 300}
    names = dict(enumerate(("a", "a_scale", "a_zero_point", "b", "b_scale", "b_zero_point", "y_scale", "y_zero_point")))
    for first, second in itertools.combinations(bad, 2):
        wrong = [bad[place] if place in (first, second) else each for place, each in enumerate(arguments)]
        with pytest.raises((DmlError, TypeError), match=f"quantized_matmul: {names[first]}[ .]"):
            dmlcpu.quantized_matmul(*wrong)


def test_types_of_results_are_numpys_own():
    own, b = np.ones((3, 5), np.uint8), np.ones((5, 7), np.int8)  # sizes that no other test has: no plan is kept
    other = pickle.loads(pickle.dumps(own))
    assert other.dtype is not own.dtype
    for a in (other, own):
        found = dmlcpu.quantized_matmul(a, 0.5, None, b, 0.25, None, 9.0, None)
        assert found.dtype is np.dtype(np.uint8)
