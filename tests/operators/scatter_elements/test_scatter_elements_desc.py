import numpy as np
import pytest
from desc_builders import tensor
from feature_levels import ALL, ANY, FLOATS, FOUR, TO_32, check_row

import dmlcpu
from dmlcpu import ScatterElementsOperatorDesc, compile_operator
from dmlcpu.errors import IndexOutOfRangeError, InvalidDescriptorError, UnsupportedError
from dmlcpu.runtime.threads import use_budget


def desc(**fields):
    tensors = {
        "input_tensor": tensor("INT32", 3, 4, 5),
        "indices_tensor": tensor("INT64", 3, 7, 5),
        "updates_tensor": tensor("INT32", 3, 7, 5),
        "output_tensor": tensor("INT32", 3, 4, 5),
    }
    return ScatterElementsOperatorDesc(**{**tensors, "axis": 1, **fields})


def typed(count, values, indices):
    """A desc of `count` dimensions with the given types."""
    ones = (1,) * (count - 1)
    return desc(
        input_tensor=tensor(values, *ones, 5),
        indices_tensor=tensor(indices, *ones, 2),
        updates_tensor=tensor(values, *ones, 2),
        output_tensor=tensor(values, *ones, 5),
        axis=count - 1,
    )


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_it_is_the_function(axis):
    rng = np.random.default_rng(1)
    sizes = [3, 4, 5]
    sizes[axis] = 7
    x, updates = rng.integers(0, 99, (3, 4, 5), np.int32), rng.integers(0, 99, sizes, np.int32)
    indices = rng.integers(-3, 3, sizes)
    lines = {"indices_tensor": tensor("INT64", *sizes), "updates_tensor": tensor("INT32", *sizes)}
    operator = compile_operator(desc(**lines, axis=axis))
    found = operator(input_tensor=x, indices_tensor=indices, updates_tensor=updates)
    np.testing.assert_array_equal(found, dmlcpu.scatter_elements(x, indices, updates, axis=axis))


def test_strides_of_all_tensors_and_an_output_in_place():
    x, out = np.zeros((2, 3), np.float32), np.zeros(12, np.float32)
    turned = {"sizes": (2, 3), "strides": (1, 2)}
    operator = compile_operator(
        desc(
            input_tensor=tensor("FLOAT32", 2, 3),
            indices_tensor=dmlcpu.TensorDesc(dmlcpu.TensorDataType.INT32, **turned),
            updates_tensor=dmlcpu.TensorDesc(dmlcpu.TensorDataType.FLOAT32, **turned),
            output_tensor=dmlcpu.TensorDesc(dmlcpu.TensorDataType.FLOAT32, sizes=(2, 3), strides=(6, 2)),
            axis=0,
        )
    )
    indices, updates = np.array([0, 1, 1, 0, -1, -1], np.int32), np.arange(1, 7, dtype=np.float32)
    operator(input_tensor=x, indices_tensor=indices, updates_tensor=updates, output_tensor=out)
    assert out.tolist() == [1, 0, 4, 0, 0, 0, 2, 0, 3, 0, 6, 0]
    alike = tensor("FLOAT32", 2, 3)
    lines = {"indices_tensor": tensor("INT32", 1, 3), "updates_tensor": tensor("FLOAT32", 1, 3)}
    operator = compile_operator(desc(input_tensor=alike, output_tensor=alike, **lines, axis=0))
    given = {"indices_tensor": np.array([[1, 0, 1]], np.int32), "updates_tensor": np.ones((1, 3), np.float32)}
    assert operator(input_tensor=x, output_tensor=x, **given) is x
    assert x.tolist() == [[0, 1, 0], [1, 0, 1]]


@pytest.mark.parametrize("threads", [1, 3])
def test_an_index_out_of_range_names_the_tensor_and_writes_nothing(threads):
    indices, out = np.zeros((3, 7, 5), np.int64), np.full((3, 4, 5), 9, np.int32)
    indices[1, 2, 3], indices[2, 0, 0] = 4, -5
    with use_budget(threads, grain=1), pytest.raises(IndexOutOfRangeError) as caught:
        compile_operator(desc())(
            input_tensor=np.zeros((3, 4, 5), np.int32),
            indices_tensor=indices,
            updates_tensor=np.ones((3, 7, 5), np.int32),
            output_tensor=out,
        )
    assert str(caught.value) == (
        "DML_OPERATOR_SCATTER: IndicesTensor[1, 2, 3] is 4; allowed: -4 to 3 (axis 1 has 4 elements)"
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
            {"updates_tensor": tensor("INT32", 1, 3, 7, 5)},
            "UpdatesTensor.DimensionCount is 4; allowed: 3 (InputTensor.DimensionCount)",
        ),
        (
            {"updates_tensor": tensor("UINT32", 3, 7, 5)},
            "UpdatesTensor.DataType is UINT32; allowed: INT32 (InputTensor.DataType)",
        ),
        (
            {"output_tensor": tensor("FLOAT32", 3, 4, 5)},
            "OutputTensor.DataType is FLOAT32; allowed: INT32 (InputTensor.DataType)",
        ),
        ({"axis": 3}, "Axis is 3; allowed: 0 to 2 (InputTensor.DimensionCount)"),
        (
            {"indices_tensor": tensor("INT64", 3, 7, 4)},
            "IndicesTensor.Sizes is (3, 7, 4); allowed: (3, 7, 5) (InputTensor.Sizes but along Axis)",
        ),
        (
            {"updates_tensor": tensor("INT32", 3, 4, 5)},
            "UpdatesTensor.Sizes is (3, 4, 5); allowed: (3, 7, 5) (IndicesTensor.Sizes)",
        ),
        (
            {"output_tensor": tensor("INT32", 3, 7, 5)},
            "OutputTensor.Sizes is (3, 7, 5); allowed: (3, 4, 5) (InputTensor.Sizes)",
        ),
    ],
)
def test_contradictions_are_refused(fields, message):
    with pytest.raises(InvalidDescriptorError) as caught:
        desc(**fields)
    assert str(caught.value) == f"DML_OPERATOR_SCATTER: {message}"


@pytest.mark.parametrize(
    ("first", "after", "counts", "values", "indices"),
    [
        ("2_0", "2_1", FOUR, FLOATS, "UINT32"),
        ("2_1", "3_0", FOUR, TO_32, "UINT32"),
        ("3_0", "4_1", ANY, TO_32, "INT64 INT32 UINT64 UINT32"),
        ("4_1", None, ANY, ALL, "INT64 INT32 UINT64 UINT32"),
    ],
)
def test_microsofts_table(first, after, counts, values, indices):
    check_row(typed, first, after, counts, values, indices)


def test_it_is_read_by_both_names_and_written_by_the_older_one():
    written = desc().to_dict()
    assert written["type"] == "DML_OPERATOR_SCATTER"
    for name in ("DML_OPERATOR_SCATTER", "DML_OPERATOR_SCATTER_ELEMENTS", "SCATTER", "SCATTER_ELEMENTS"):
        assert dmlcpu.operator_desc_from_dict({**written, "type": name}) == desc()
    with pytest.raises(UnsupportedError, match="type is 'SCATTERS'"):
        dmlcpu.operator_desc_from_dict({**written, "type": "SCATTERS"})
