import functools

import numpy as np
import pytest
from desc_builders import OWNED, ROWS, tensor, top_k1_desc, top_k_desc
from feature_levels import ANY, FLOATS, FOUR, TO_32, WITH_64, check_row, top_k as typed
from operators.top_k.calls import EXAMPLES

from dmlcpu import AxisDirection, OperatorType, TensorDataType, compile_operator
from dmlcpu.errors import InvalidDescriptorError


@pytest.mark.parametrize(("rows", "axis", "k", "largest", "values", "indices"), EXAMPLES)
def test_the_examples_of_the_reference_page(rows, axis, k, largest, values, indices):
    sizes = (1, 1, len(values), len(values[0]))
    fields = {
        "output_value_tensor": tensor("FLOAT32", *sizes),
        "output_index_tensor": tensor("UINT32", *sizes),
        "axis": axis,
        "k": k,
    }
    x = np.array([[rows]], np.float32)
    direction = AxisDirection.DECREASING if largest else AxisDirection.INCREASING
    results = [compile_operator(top_k1_desc(**fields, axis_direction=direction))(input_tensor=x)]
    if largest:
        results.append(compile_operator(top_k_desc(**fields))(input_tensor=x))
    for result in results:
        assert result.values.dtype == np.float32
        assert result.indices.dtype == np.uint32
        np.testing.assert_array_equal(result.values, [[values]])
        np.testing.assert_array_equal(result.indices, [[indices]])


def test_fields():
    desc = top_k1_desc()
    assert desc.OPERATOR_TYPE is OperatorType.TOP_K1
    assert (OperatorType.TOP_K1, OperatorType.TOP_K) == (112, 71)  # DirectML's numbers
    assert desc.operator == "DML_OPERATOR_TOP_K1"
    assert top_k_desc().operator == "DML_OPERATOR_TOP_K"
    assert desc.largest is True
    assert top_k_desc().largest is True
    assert top_k1_desc(axis_direction=AxisDirection.INCREASING).largest is False
    assert [(field.dml_name, field.output) for field, _ in desc.tensors()] == [
        ("InputTensor", False),
        ("OutputValueTensor", True),
        ("OutputIndexTensor", True),
    ]
    assert type(top_k1_desc(axis=np.int64(3)).axis) is int


def test_k_may_be_all_of_the_elements():
    sizes = (1, 1, 3, 4)
    desc = top_k_desc(output_value_tensor=tensor("FLOAT32", *sizes), output_index_tensor=tensor("UINT32", *sizes), k=4)
    values, _ = compile_operator(desc)(input_tensor=ROWS)
    np.testing.assert_array_equal(values, [[[[11, 10, 1, 0], [9, 8, 3, 2], [7, 6, 5, 4]]]])


REFUSED = [
    ({"axis": 4}, "Axis is 4; allowed: 0 to 3 (below InputTensor.DimensionCount)"),
    ({"axis": -1}, "Axis is -1; allowed: 0 to 3 (below InputTensor.DimensionCount)"),
    ({"k": 0}, "K is 0; allowed: 1 to 4 (InputTensor.Sizes[3])"),
    ({"k": 5}, "K is 5; allowed: 1 to 4 (InputTensor.Sizes[3])"),
    ({"axis": 0, "k": 2}, "K is 2; allowed: 1 (InputTensor.Sizes[0])"),
    (
        {"k": 3},
        "OutputValueTensor.Sizes is (1, 1, 3, 2); allowed: (1, 1, 3, 3) (InputTensor.Sizes with K = 3 at Axis 3)",
    ),
    (
        {"output_index_tensor": tensor("UINT32", 1, 1, 3, 3)},
        "OutputIndexTensor.Sizes is (1, 1, 3, 3); allowed: (1, 1, 3, 2) (InputTensor.Sizes with K = 2 at Axis 3)",
    ),
    (
        {"output_value_tensor": tensor("FLOAT32", 1, 3, 2)},
        "OutputValueTensor.DimensionCount is 3; allowed: 4 (InputTensor.DimensionCount)",
    ),
    (
        {"output_index_tensor": tensor("UINT32", 3, 2)},
        "OutputIndexTensor.DimensionCount is 2; allowed: 4 (InputTensor.DimensionCount)",
    ),
    (
        {"output_value_tensor": tensor("FLOAT16", 1, 1, 3, 2)},
        "OutputValueTensor.DataType is FLOAT16; allowed: FLOAT32 (InputTensor.DataType)",
    ),
    (
        {"input_tensor": tensor("INT64", 1, 1, 3, 4)},  # which only the latest feature levels take
        "OutputValueTensor.DataType is FLOAT32; allowed: INT64 (InputTensor.DataType)",
    ),
    (
        {"output_value_tensor": tensor("FLOAT32", 1, 1, 3, 2, flags=OWNED)},
        "OutputValueTensor.Flags is OWNED_BY_DML; allowed: NONE (only inputs may be owned)",
    ),
    (
        {"output_index_tensor": tensor("UINT32", 1, 1, 3, 2, strides=(0, 0, 0, 1))},
        "OutputIndexTensor.Strides[2] is 0; allowed: 1 or more (only inputs may repeat an element)",
    ),
    (
        {"output_index_tensor": tensor("UINT32", 1, 1, 3, 2, strides=(1, 1, 1, 1))},
        "OutputIndexTensor.Strides is (1, 1, 1, 1) for Sizes (1, 1, 3, 2); "
        "allowed: strides that give each element its own memory",
    ),
]


@pytest.mark.parametrize("builder", [top_k_desc, top_k1_desc])
@pytest.mark.parametrize(("fields", "message"), REFUSED)
def test_contradictions_are_refused(builder, fields, message):
    with pytest.raises(InvalidDescriptorError) as caught:
        builder(**fields)
    operator = "DML_OPERATOR_TOP_K" if builder is top_k_desc else "DML_OPERATOR_TOP_K1"
    assert str(caught.value) == f"{operator}: {message}"


WRONG_KINDS = [
    ({"input_tensor": None}, "InputTensor is None; allowed: TensorDesc"),
    ({"output_index_tensor": np.uint32}, "OutputIndexTensor is <class 'numpy.uint32'>; allowed: TensorDesc"),
    ({"axis": 3.0}, "Axis is 3.0; allowed: an integer"),
    ({"k": True}, "K is True; allowed: an integer"),
    ({"k": None}, "K is None; allowed: an integer"),
    ({"axis_direction": 1}, "AxisDirection is 1; allowed: AxisDirection.DECREASING"),
    (
        {"axis_direction": TensorDataType.FLOAT32},
        f"AxisDirection is {TensorDataType.FLOAT32!r}; allowed: AxisDirection",
    ),
]


@pytest.mark.parametrize(("fields", "message"), WRONG_KINDS)
def test_wrong_kinds_are_type_errors(fields, message):
    with pytest.raises(TypeError) as caught:
        top_k1_desc(**fields)
    assert str(caught.value) == f"DML_OPERATOR_TOP_K1: {message}"


def test_strides_of_one_long_dimensions_and_of_inputs_are_free():
    top_k_desc(
        input_tensor=tensor("FLOAT32", 1, 1, 3, 4, strides=(0, 0, 0, 0), flags=OWNED),
        output_value_tensor=tensor("FLOAT32", 1, 1, 3, 2, strides=(0, 0, 2, 1)),
        output_index_tensor=tensor("UINT32", 1, 1, 3, 2, strides=(0, 0, 1, 3)),
    )


@pytest.mark.parametrize(
    ("builder", "first", "after", "counts", "values", "indices"),
    [
        (top_k_desc, "2_0", "2_1", FOUR, FLOATS, "UINT32"),
        (top_k_desc, "2_1", "3_1", FOUR, TO_32, "UINT32"),
        (top_k_desc, "3_1", "5_0", ANY, TO_32, "UINT32"),
        (top_k_desc, "5_0", None, ANY, WITH_64, "UINT32 UINT64"),
        (top_k1_desc, "2_1", "3_1", FOUR, TO_32, "UINT32"),
        (top_k1_desc, "3_1", "5_0", ANY, TO_32, "UINT32"),
        (top_k1_desc, "5_0", None, ANY, WITH_64, "UINT32 UINT64"),
    ],
)
def test_microsofts_table(builder, first, after, counts, values, indices):
    check_row(functools.partial(typed, builder), first, after, counts, values, indices)
