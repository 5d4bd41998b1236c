"""The table of data types beside NumPy, ml_dtypes, DirectML's enumeration and ONNX."""

import ml_dtypes
import numpy as np
import pytest

from dmlcpu import TensorDataType
from dmlcpu.common.data_types import BYTE_TYPES, DATA_TYPES, INDICES, NUMBERS

ROWS = list(DATA_TYPES.values())
KINDS = {"bfloat16": "f", "int4": "i", "uint4": "u"}  # NumPy's kind of ml_dtypes' types is V
by_name = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)


def dtype_of(row):
    return np.dtype(getattr(ml_dtypes, row.name)) if row.name in KINDS else np.dtype(row.name)


@by_name
def test_row_has_the_kind_and_bits_of_its_type(row):
    dtype = dtype_of(row)
    assert dtype.name == row.name
    assert KINDS.get(row.name, dtype.kind) == row.kind
    if row.kind in "ui":
        limits = ml_dtypes.iinfo(dtype)
        assert row.bits == limits.bits
        assert row.highest == limits.max
    else:
        assert row.bits == dtype.itemsize * 8


@by_name
def test_row_has_the_infinity_of_its_type(row):
    if row.kind == "f":
        assert np.array(np.inf, dtype_of(row)).view(f"u{row.bits // 8}") == row.infinity
    else:
        assert row.infinity == 0


def test_every_data_type_of_directml_has_a_row():
    assert {row.name.upper(): row.directml for row in ROWS if row.directml} == {
        member.name: member.value for member in TensorDataType if member
    }


def test_onnx_has_the_same_numbers():
    onnx = pytest.importorskip("onnx")
    assert [onnx.helper.np_dtype_to_tensor_dtype(dtype_of(row)) for row in ROWS] == [row.onnx for row in ROWS]


@by_name
def test_computed_type_has_words_that_fill_the_element(row):
    if row.computed_as is None:
        assert row.bits < 8
    else:
        word = DATA_TYPES[row.computed_as]
        assert row.bits % word.bits == 0
        assert word.computed_as == word.name


def test_lists_of_types_agree_with_the_table():
    assert set(NUMBERS) == set(DATA_TYPES) - {"complex64", "complex128", "int4", "uint4"}
    assert all(DATA_TYPES[name].kind in "iu" for name in (*INDICES, *BYTE_TYPES))
