import re

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, strategies as st
from samples import broadcast, misaligned, read_only, reversed_in_memory, strided

from dmlcpu.common.forms import Form, fitting, form_of, formed, strides_of
from dmlcpu.errors import BindingError

X = np.arange(12, dtype=np.int32).reshape(3, 4)
TYPES = ["int8", "float64", "bool", "complex64", "M8[s]", "S5", "V3", "u1,f4", ml_dtypes.bfloat16, ml_dtypes.int4]
PACKED = {
    "C": X,
    "a view": np.concatenate([X, X])[3:],
    "one row, whatever the stride of rows": np.lib.stride_tricks.as_strided(X[:1], (1, 4), (7, 4)),
    "no elements": np.zeros((3, 8, 0))[:, ::2],
    "no dimensions": np.array(7),
}
STRIDED = {
    "F": np.asfortranarray(X),
    "strided": strided(X),
    "reversed": reversed_in_memory(X),
    "zero strides": broadcast(X),
    "read-only": read_only(X),  # though packed: its words cannot be viewed as those of others
}


class Subclass(np.ndarray):
    pass


@pytest.mark.parametrize("layout", PACKED)
def test_of_packed_arrays_that_can_be_written_no_strides_are_kept(layout):
    array = PACKED[layout]
    assert form_of(array) == (array.shape, array.dtype, None)
    assert strides_of(array) is None
    assert Form(*form_of(array)).nbytes == array.nbytes


@pytest.mark.parametrize("layout", STRIDED)
def test_of_other_arrays_strides_are_kept(layout):
    array = STRIDED[layout]
    assert form_of(array) == ((3, 4), array.dtype, array.strides)
    assert strides_of(array) == Form(*form_of(array)).steps == array.strides


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(), (5,), (3, 4), (2, 1, 3)])
def test_the_steps_of_a_packed_form_are_those_of_a_packed_array(dtype, shape):
    array = np.empty(shape, dtype)
    form = Form(*form_of(array))
    assert form.strides is None
    assert (form.steps, form.nbytes) == (array.strides, array.nbytes)


def test_a_plain_tuple_is_the_same_key():
    form = Form((3, 4), X.dtype)
    assert form == form_of(X)
    assert hash(form) == hash(form_of(X))
    assert form != form_of(X.T)
    assert form != Form((3, 4), np.dtype(np.uint32))


def steps_taken(strides, shape):
    return [stride for stride, n in zip(strides, shape, strict=True) if n > 1]


@given(st.data())
def test_a_part_lies_where_the_part_of_an_array_does(data):
    shape = data.draw(st.lists(st.integers(1, 5), max_size=4))
    layout = data.draw(st.sampled_from([np.copy, strided, reversed_in_memory, np.asfortranarray]))
    array = layout(np.zeros(shape, data.draw(st.sampled_from(["int8", "float64"]))))
    cut = tuple(data.draw(st.slices(n).filter(lambda each: each.step in (None, 1))) for n in shape)
    cut = cut[: data.draw(st.integers(0, len(shape)))]
    part = Form(*form_of(array)).part(cut)
    expected = array[cut]
    assert (part.shape, part.dtype, part.nbytes) == (expected.shape, expected.dtype, expected.nbytes)
    assert steps_taken(part.steps, part.shape) == steps_taken(expected.strides, expected.shape)


@pytest.mark.parametrize("dtype", TYPES)
def test_arrays_that_kernels_can_read_are_not_copied(dtype):
    array = np.zeros((3, 4), dtype)
    for given_array in (array, strided(array), array.T, read_only(array)):
        found, form = formed("op", "x", given_array)
        assert found is given_array
        assert form == form_of(given_array)


def swapped(x):
    return x.astype(x.dtype.newbyteorder())


COPIED = {"misaligned": misaligned, "byte-swapped": swapped, "swapped and strided": lambda x: strided(swapped(x))}


@pytest.mark.parametrize("layout", COPIED)
@pytest.mark.parametrize("dtype", ["int32", "float64", "complex64", "M8[s]", ml_dtypes.bfloat16])
def test_other_arrays_are_copied_to_native_order_and_aligned(layout, dtype):
    given_array = COPIED[layout](X.astype(dtype))
    before = given_array.copy()
    found, form = formed("op", "x", given_array)
    np.testing.assert_array_equal(found, X.astype(dtype), strict=True)
    assert found.dtype.isnative
    assert found.flags.aligned
    assert form == form_of(found)
    assert not np.shares_memory(found, given_array)
    np.testing.assert_array_equal(given_array, before, strict=True)


@pytest.mark.parametrize("layout", [np.copy, strided, read_only])
def test_a_subclass_is_viewed_as_a_plain_array(layout):
    given_array = layout(X).view(Subclass)
    found, form = formed("op", "x", given_array)
    assert type(found) is np.ndarray
    assert np.shares_memory(found, given_array)
    assert form == form_of(found) == form_of(given_array)


@pytest.mark.parametrize("value", [[[1, 2], [3, 4]], range(4), 7, 2.5, np.float32(3), memoryview(b"abc")])
def test_what_is_no_array_becomes_one(value):
    found, form = formed("op", "x", value)
    np.testing.assert_array_equal(found, np.asarray(value), strict=True)
    assert form == form_of(found)


@pytest.mark.parametrize("form", [Form((3, 4), X.dtype), Form((3, 4), X.dtype, (4, 12))])
def test_a_form_stays_one(form):
    found, same = formed("op", "x", form)
    assert found is form
    assert same is form


def test_a_plain_tuple_is_no_form():
    with pytest.raises((BindingError, TypeError), match=r"^op: x is "):
        formed("op", "x", form_of(X))


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (np.array([1, None]), "an array of dtype object"),
        (np.array([1, None])[::2], "an array of dtype object"),
        (np.zeros(2, "O,i4"), "an array of dtype [('f0', 'O'), ('f1', '<i4')]"),
        (object(), "object"),
        (None, "NoneType"),
        ([1, None], "an array of dtype object"),
    ],
)
def test_objects_are_refused(value, found):
    message = f"op: x is {found}; allowed: an array of fixed-size elements"
    with pytest.raises(TypeError, match=f"^{re.escape(message)}$"):
        formed("op", "x", value)


def test_masked_arrays_are_refused():
    with pytest.raises(TypeError, match=r"^op: x is a masked array; allowed: an array without a mask$"):
        formed("op", "x", np.ma.masked_array(X))


@pytest.mark.parametrize("out", [None, "an array", 7, [1, 2]])
def test_what_is_no_array_has_no_strides(out):
    """It is refused after the plan is found."""
    assert strides_of(out) is None


@pytest.mark.parametrize(
    ("strides", "shape", "expected"),
    [(None, (3, 4), None), ((8, 2), (3, 4), (8, 2)), ((8,), (3, 4), None), ((), (3,), None), ((9, 8, 2), (3, 4), None)],
)
def test_strides_of_other_dimensions_do_not_fit(strides, shape, expected):
    """Their array is refused after the plan is found."""
    assert fitting(strides, shape) == expected
