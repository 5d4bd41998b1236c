import numpy as np
import pytest
from desc_builders import OWNED, scatter_desc, small_scatter_desc, tensor
from feature_levels import ALL, ANY, FOUR, TO_32, check_row, scatter_nd as typed
from hypothesis import given, settings, strategies as st

from dmlcpu import compile_operator, reference
from dmlcpu.errors import IndexOutOfRangeError, InvalidDescriptorError


def test_the_example_of_values_of_the_reference_page():
    result = compile_operator(small_scatter_desc())(
        input_tensor=np.array([[1, 2, 3, 4, 5, 6, 7, 8]], np.float32),
        indices_tensor=np.array([[4], [3], [1], [7]], np.int32),
        updates_tensor=np.array([[9, 10, 11, 12]], np.float32),
    )
    assert result.dtype == np.float32
    np.testing.assert_array_equal(result, [[1, 11, 3, 10, 9, 6, 7, 12]])


def test_the_example_of_shapes_of_the_reference_page():
    desc = scatter_desc()
    assert desc.input_shape == (3, 4, 5, 6, 7)
    assert desc.indices_shape == (1, 2, 3)
    assert desc.updates_shape == (1, 2, 6, 7)
    rng = np.random.default_rng(1)
    x = rng.integers(-9, 9, (3, 4, 5, 6, 7), np.int32)
    indices = np.array([[2, 0, 4], [-1, -4, 1]], np.int64).reshape(1, 1, 1, 2, 3)
    updates = rng.integers(-9, 9, (1, 1, 2, 6, 7), np.int32)
    result = compile_operator(desc)(input_tensor=x, indices_tensor=indices, updates_tensor=updates)
    expected = reference.scatter_nd(x, indices[0, 0], updates[0])
    np.testing.assert_array_equal(result, expected)


def test_an_index_out_of_range_names_the_tensor_and_writes_nothing():
    out = np.full((1, 8), -1, np.float32)
    with pytest.raises(IndexOutOfRangeError) as caught:
        compile_operator(small_scatter_desc())(
            input_tensor=np.zeros((1, 8), np.float32),
            indices_tensor=np.array([[4], [-9], [1], [8]], np.int32),
            updates_tensor=np.ones((1, 4), np.float32),
            output_tensor=out,
        )
    assert str(caught.value) == (
        "DML_OPERATOR_SCATTER_ND: IndicesTensor[1, 0] is -9; allowed: -8 to 7 "
        "(coordinate 0 of tuple 1; that dimension has 8 elements)"
    )
    assert (out == -1).all()


def test_a_single_tuple_of_all_coordinates():
    desc = scatter_desc(
        input_tensor=tensor("INT32", 2, 3),
        indices_tensor=tensor("UINT32", 1, 2),
        updates_tensor=tensor("INT32", 1, 1),
        output_tensor=tensor("INT32", 2, 3),
        input_dimension_count=2,
        indices_dimension_count=1,
    )
    assert desc.updates_shape == ()
    result = compile_operator(desc)(
        input_tensor=np.zeros((2, 3), np.int32),
        indices_tensor=np.array([[1, 2]], np.uint32),
        updates_tensor=np.array([[5]], np.int32),
    )
    np.testing.assert_array_equal(result, [[0, 0, 0], [0, 0, 5]])


def test_leading_ones_may_count_or_not():
    # With both of the input's dimensions counting, the tuples of one coordinate index the first, of size 1.
    desc = small_scatter_desc(
        input_dimension_count=2, indices_tensor=tensor("INT32", 1, 1), indices_dimension_count=2,
        updates_tensor=tensor("FLOAT32", 1, 8),
    )  # fmt: skip
    result = compile_operator(desc)(
        input_tensor=np.zeros((1, 8), np.float32),
        indices_tensor=np.array([[0]], np.int32),
        updates_tensor=np.arange(8, dtype=np.float32)[None],
    )
    np.testing.assert_array_equal(result, [np.arange(8)])


REFUSED = [
    (
        {"indices_tensor": tensor("INT64", 1, 1, 2, 3)},
        "IndicesTensor.DimensionCount is 4; allowed: 5 (InputTensor.DimensionCount)",
    ),
    (
        {"updates_tensor": tensor("INT32", 1, 2, 6, 7)},
        "UpdatesTensor.DimensionCount is 4; allowed: 5 (InputTensor.DimensionCount)",
    ),
    (
        {"output_tensor": tensor("INT32", 3, 4, 5, 42)},
        "OutputTensor.DimensionCount is 4; allowed: 5 (InputTensor.DimensionCount)",
    ),
    (
        {"updates_tensor": tensor("UINT32", 1, 1, 2, 6, 7)},
        "UpdatesTensor.DataType is UINT32; allowed: INT32 (InputTensor.DataType)",
    ),
    (
        {"output_tensor": tensor("FLOAT32", 3, 4, 5, 6, 7)},
        "OutputTensor.DataType is FLOAT32; allowed: INT32 (InputTensor.DataType)",
    ),
    (
        {"output_tensor": tensor("INT32", 3, 4, 5, 7, 6)},
        "OutputTensor.Sizes is (3, 4, 5, 7, 6); allowed: (3, 4, 5, 6, 7) (InputTensor.Sizes)",
    ),
    (
        {"input_dimension_count": 4},
        "InputDimensionCount is 4; "
        "allowed: 5 (InputTensor.Sizes are (3, 4, 5, 6, 7), and only leading 1s may be left out)",
    ),
    (
        {"input_dimension_count": 6},
        "InputDimensionCount is 6; "
        "allowed: 5 (InputTensor.Sizes are (3, 4, 5, 6, 7), and only leading 1s may be left out)",
    ),
    (
        {"indices_dimension_count": 1},
        "IndicesDimensionCount is 1; "
        "allowed: 2 to 5 (IndicesTensor.Sizes are (1, 1, 1, 2, 3), and only leading 1s may be left out)",
    ),
    (
        {"indices_dimension_count": -1},
        "IndicesDimensionCount is -1; "
        "allowed: 2 to 5 (IndicesTensor.Sizes are (1, 1, 1, 2, 3), and only leading 1s may be left out)",
    ),
    (
        {"indices_tensor": tensor("INT64", 1, 1, 1, 2, 6)},
        "IndicesTensor.Sizes[4] is 6; allowed: 1 to 5 (coordinates of an index tuple, up to InputDimensionCount)",
    ),
    (
        {"updates_tensor": tensor("INT32", 1, 2, 1, 6, 7)},
        "UpdatesTensor.Sizes is (1, 2, 1, 6, 7); "
        "allowed: (1, 1, 2, 6, 7) (IndicesTensor.Sizes[2:4] + InputTensor.Sizes[3:5])",
    ),
    (
        {"indices_dimension_count": 4, "indices_tensor": tensor("INT64", 1, 9, 1, 2, 1)},
        "UpdatesTensor.DimensionCount is 5; "
        "allowed: 7, for (9, 1, 2, 4, 5, 6, 7) (IndicesTensor.Sizes[1:4] + InputTensor.Sizes[1:5])",
    ),
    (
        {"output_tensor": tensor("INT32", 3, 4, 5, 6, 7, flags=OWNED)},
        "OutputTensor.Flags is OWNED_BY_DML; allowed: NONE (only inputs may be owned)",
    ),
]


@pytest.mark.parametrize(("fields", "message"), REFUSED)
def test_contradictions_are_refused(fields, message):
    with pytest.raises(InvalidDescriptorError) as caught:
        scatter_desc(**fields)
    assert str(caught.value) == f"DML_OPERATOR_SCATTER_ND: {message}"


def test_the_tuple_may_not_be_longer_than_the_dimensions_that_count():
    with pytest.raises(InvalidDescriptorError) as caught:
        small_scatter_desc(indices_tensor=tensor("INT32", 2, 2))
    assert str(caught.value) == (
        "DML_OPERATOR_SCATTER_ND: IndicesTensor.Sizes[1] is 2; "
        "allowed: 1 (coordinates of an index tuple, up to InputDimensionCount)"
    )


@st.composite
def problems(draw):
    x_shape = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    count = draw(st.integers(1, len(x_shape)))
    outer = draw(st.lists(st.integers(1, 3), min_size=0, max_size=2))
    updates_shape = [*outer, *x_shape[count:]]
    D = max(len(x_shape), len(outer) + 1, len(updates_shape)) + draw(st.integers(0, 1))
    padded = [[1] * (D - len(shape)) + shape for shape in (x_shape, [*outer, count], updates_shape)]
    return x_shape, outer, count, padded, draw(st.integers(0, 2**32))


@settings(deadline=None)  # the first call compiles
@given(problems())
def test_against_the_reference(problem):
    x_shape, outer, count, (x_sizes, indices_sizes, updates_sizes), seed = problem
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 99, x_sizes, np.int16)
    tuples = [rng.integers(-n, n, outer, np.int64) for n in x_shape[:count]]
    indices = np.stack(tuples, axis=-1).reshape(indices_sizes)
    updates = rng.integers(0, 99, updates_sizes, np.int16)
    desc = scatter_desc(
        input_tensor=tensor("INT16", *x_sizes),
        indices_tensor=tensor("INT64", *indices_sizes),
        updates_tensor=tensor("INT16", *updates_sizes),
        output_tensor=tensor("INT16", *x_sizes),
        input_dimension_count=len(x_shape),
        indices_dimension_count=len(outer) + 1,
    )
    result = compile_operator(desc)(input_tensor=x, indices_tensor=indices, updates_tensor=updates)
    expected = reference.scatter_nd(
        x.reshape(x_shape), indices.reshape([*outer, count]), updates.reshape([*outer, *x_shape[count:]])
    )
    np.testing.assert_array_equal(result, expected.reshape(x_sizes))


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
