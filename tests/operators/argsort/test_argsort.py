"""What is particular of argsort: its one output."""

import functools
import re

import numpy as np
import pytest
from samples import INDEX_TYPES

import dmlcpu
from dmlcpu.errors import BindingError, DmlError


@pytest.mark.parametrize("dtype", INDEX_TYPES, ids=str)
def test_positions_of_each_type(dtype):
    out = np.zeros((3, 2), dtype).T
    found = dmlcpu.argsort([[3, 1, 2], [1, 1, 0]], index_dtype=dtype, out=out)
    assert found is out
    assert found.tolist() == [[1, 2, 0], [2, 0, 1]]


@pytest.mark.parametrize(
    ("out", "message"),
    [
        (np.zeros(2, np.int64), "out.shape is (2,); allowed: (3,)"),
        (np.zeros(3, np.int32), "out.dtype is int32; allowed: int64"),
    ],
)
def test_an_output_that_does_not_fit_is_refused(out, message):
    with pytest.raises(BindingError, match="^" + re.escape(f"argsort: {message}")):
        dmlcpu.argsort([3, 1, 2], out=out)


def test_x_is_no_output():
    x = np.array([3, 1, 2])
    with pytest.raises(BindingError, match=r"^argsort: out is sharing memory with x"):
        dmlcpu.argsort(x, out=x)
    assert x.tolist() == [3, 1, 2]


def test_an_index_type_that_is_no_integer_is_refused():
    with pytest.raises(DmlError, match=r"^argsort: index_dtype is float32; allowed: "):
        dmlcpu.argsort([3, 1, 2], index_dtype=np.float32)


@pytest.mark.parametrize("function", [dmlcpu.sort, dmlcpu.argsort, dmlcpu.sort_with_indices])
@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"kind": "stable"}, "'kind'; leave it out, as the order is always stable"),
        ({"stable": True}, "'stable'; leave it out, as the order is always stable"),
        ({"order": None}, "'order'; leave it out, as elements have no fields"),
        ({"dim": 0}, "'dim'; write axis="),
        ({"largest": True}, "'largest'; write descending="),
        ({"other": 1}, "'other'"),
    ],
)
def test_keywords_of_other_sorts_are_refused_with_what_to_write(function, keywords, message):
    expected = f"^{function.__name__}\\(\\) got an unexpected keyword argument {re.escape(message)}$"
    for call in (function, functools.partial(dmlcpu.bind, function)):
        with pytest.raises(TypeError, match=expected):
            call([3, 1, 2], **keywords)
