import numpy as np
import pytest
from desc_builders import tensor
from feature_levels import ALL, ANY, FOUR, TO_32, check_row

import dmlcpu
from dmlcpu import GatherElementsOperatorDesc, compile_operator
from dmlcpu.errors import IndexOutOfRangeError, InvalidDescriptorError


def desc(**fields):
    tensors = {
        "input_tensor": tensor("INT32", 3, 4, 5),
        "indices_tensor": tensor("INT64", 3, 7, 5),
        "output_tensor": tensor("INT32", 3, 7, 5),
    }
    return GatherElementsOperatorDesc(**{**tensors, "axis": 1, **fields})


def typed(count, values, indices):
    """A desc of `count` dimensions with the given types."""
    ones = (1,) * (count - 1)
    return desc(
        input_tensor=tensor(values, *ones, 5),
        indices_tensor=tensor(indices, *ones, 2),
        output_tensor=tensor(values, *ones, 2),
        axis=count - 1,
    )


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_it_is_the_function(axis):
    rng = np.random.default_rng(1)
    sizes = [3, 4, 5]
    sizes[axis] = 7
    x, indices = rng.integers(0, 99, (3, 4, 5), np.int32), rng.integers(-3, 3, sizes)
    lines = {"indices_tensor": tensor("INT64", *sizes), "output_tensor": tensor("INT32", *sizes)}
    found = compile_operator(desc(**lines, axis=axis))(input_tensor=x, indices_tensor=indices)
    np.testing.assert_array_equal(found, dmlcpu.gather_elements(x, indices, axis=axis))


def test_an_index_out_of_range_names_the_tensor_and_writes_nothing():
    indices, out = np.zeros((3, 7, 5), np.int64), np.full((3, 7, 5), 9, np.int32)
    indices[1, 2, 3], indices[2, 0, 0] = 4, -5
    with pytest.raises(IndexOutOfRangeError) as caught:
        compile_operator(desc())(input_tensor=np.zeros((3, 4, 5), np.int32), indices_tensor=indices, output_tensor=out)
    assert str(caught.value) == (
        "DML_OPERATOR_GATHER_ELEMENTS: IndicesTensor[1, 2, 3] is 4; allowed: -4 to 3 (axis 1 has 4 elements)"
    )
    assert (out == 9).all()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"indices_tensor": tensor("INT64", 1, 3, 7, 5)},
            "IndicesTensor.DimensionCount is 4; allowed: 3 (InputTensor.DimensionCount)",
        ),
        (
            {"output_tensor": tensor("FLOAT32", 3, 7, 5)},
            "OutputTensor.DataType is FLOAT32; allowed: INT32 (InputTensor.DataType)",
        ),
        ({"axis": -1}, "Axis is -1; allowed: 0 to 2 (InputTensor.DimensionCount)"),
        (
            {"indices_tensor": tensor("INT64", 2, 7, 5)},
            "IndicesTensor.Sizes is (2, 7, 5); allowed: (3, 7, 5) (InputTensor.Sizes but along Axis)",
        ),
        (
            {"output_tensor": tensor("INT32", 3, 4, 5)},
            "OutputTensor.Sizes is (3, 4, 5); allowed: (3, 7, 5) (IndicesTensor.Sizes)",
        ),
    ],
)
def test_contradictions_are_refused(fields, message):
    with pytest.raises(InvalidDescriptorError) as caught:
        desc(**fields)
    assert str(caught.value) == f"DML_OPERATOR_GATHER_ELEMENTS: {message}"


@pytest.mark.parametrize(
    ("first", "after", "counts", "values", "indices"),
    [
        ("2_1", "3_0", FOUR, TO_32, "UINT32"),
        ("3_0", "4_1", ANY, TO_32, "INT64 INT32 UINT64 UINT32"),
        ("4_1", None, ANY, ALL, "INT64 INT32 UINT64 UINT32"),
    ],
)
def test_microsofts_table(first, after, counts, values, indices):
    check_row(typed, first, after, counts, values, indices)
