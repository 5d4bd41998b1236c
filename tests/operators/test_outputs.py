"""Outputs that do not fit are refused before anything is written, whatever their layout."""

import numpy as np
import pytest
from operators.bound_calls import CALLS, each_operator, function
from samples import as_tuple, misaligned, read_only, strided

import dmlcpu
from dmlcpu.errors import BindingError


def bad_outputs(valid):
    """Yield arrays in the place of an output, and what an error says of each."""
    shape, dtype = valid.shape, valid.dtype
    other = np.dtype(np.int16 if dtype == np.uint32 else np.uint32)
    for wrong in ((*shape, 2), *([shape[:-1], (9, *shape[1:])] if shape else [])):
        for layout in (np.copy, strided, read_only):
            yield layout(np.zeros(wrong, dtype)), r"\.shape is "
    for layout in (np.copy, strided, read_only):
        yield layout(np.zeros(shape, other)), r"\.dtype is "
    yield read_only(np.zeros(shape, dtype)), " is read-only"
    if dtype.itemsize > 1 and valid.size:
        yield misaligned(np.zeros(shape, dtype)), " is not aligned"
    if valid.size > 1:
        one = np.zeros(1, dtype)
        yield np.lib.stride_tricks.as_strided(one, shape, (0,) * len(shape), writeable=True), " is laid out so that"
    yield np.ma.masked_array(np.zeros(shape, dtype)), " is MaskedArray"
    yield np.zeros(shape, dtype).tolist(), " is (list|int|float)"


def check_outputs(call, valid):
    """Give a call bad outputs, one at a time."""
    for place, array in enumerate(valid):
        for bad, message in bad_outputs(array):
            out = [np.full_like(each, 77) for each in valid]
            out[place] = bad
            name = rf"out\[{place}\]" if len(out) > 1 else "out"
            with pytest.raises((BindingError, TypeError), match=f": {name}{message}"):
                call(out=tuple(out) if len(out) > 1 else out[0])
            assert not np.any(bad)
            assert all((each == 77).all() for i, each in enumerate(out) if i != place)


@each_operator
def test_outputs_that_do_not_fit_are_refused(operator):
    args, kwargs = CALLS[operator]()
    valid = as_tuple(function(operator)(*args, **kwargs))
    check_outputs(lambda out: function(operator)(*args, **kwargs, out=out), valid)
    check_outputs(lambda out: dmlcpu.bind(function(operator), *args, **kwargs, out=out), valid)


@pytest.mark.parametrize(
    ("a", "b"), [((3,), (3, 2)), ((2, 3), (3,)), ((3,), (3,)), ((5, 2, 3), (3, 2)), ((2, 0), (0, 2))]
)
def test_outputs_of_vectors_and_stacks_that_do_not_fit_are_refused(a, b):
    a, b = np.ones(a, np.uint8), np.ones(b, np.int8)
    check_outputs(
        lambda out: dmlcpu.matmul_integer(a, None, b, None, out=out), [dmlcpu.matmul_integer(a, None, b, None)]
    )
