"""The tables of Microsoft's reference pages, written out a second time, against every level, type and count."""

import pytest
from desc_builders import OWNED, quantized_desc, scatter_desc, tensor, top_k1_desc, top_k_desc

from dmlcpu import FeatureLevel, TensorDataType, compile_operator
from dmlcpu.descriptors.feature_level import check_support
from dmlcpu.errors import UnsupportedError

LEVELS = list(FeatureLevel)
ALL_TYPES = [member.name for member in TensorDataType if member.bits]

FLOATS = "FLOAT32 FLOAT16"
TO_32 = f"{FLOATS} INT32 INT16 INT8 UINT32 UINT16 UINT8"
WITH_64 = f"{TO_32} INT64 UINT64"
ALL = f"{WITH_64} FLOAT64"
FOUR, ANY = range(4, 5), range(1, 9)

# (operator, first level, level of the next row, dimension counts, value types, index types)
ROWS = [
    ("top_k", "2_0", "2_1", FOUR, FLOATS, "UINT32"),
    ("top_k", "2_1", "3_1", FOUR, TO_32, "UINT32"),
    ("top_k", "3_1", "5_0", ANY, TO_32, "UINT32"),
    ("top_k", "5_0", None, ANY, WITH_64, "UINT32 UINT64"),
    ("top_k1", "2_1", "3_1", FOUR, TO_32, "UINT32"),
    ("top_k1", "3_1", "5_0", ANY, TO_32, "UINT32"),
    ("top_k1", "5_0", None, ANY, WITH_64, "UINT32 UINT64"),
    ("scatter_nd", "2_1", "3_0", FOUR, TO_32, "UINT32"),
    ("scatter_nd", "3_0", "4_1", ANY, TO_32, "INT64 INT32 UINT64 UINT32"),
    ("scatter_nd", "4_1", None, ANY, ALL, "INT64 INT32 UINT64 UINT32"),
]


def levels_of(first, after):
    return [
        level
        for level in LEVELS
        if level >= FeatureLevel[f"LEVEL_{first}"] and (after is None or level < FeatureLevel[f"LEVEL_{after}"])
    ]


def make(operator, count, values, indices):
    """A desc of `count` dimensions with the given types."""
    ones = (1,) * (count - 1)
    if operator == "scatter_nd":
        return scatter_desc(
            input_tensor=tensor(values, *ones, 5),
            indices_tensor=tensor(indices, *ones, 1),
            updates_tensor=tensor(values, *ones, 1),
            output_tensor=tensor(values, *ones, 5),
            input_dimension_count=1,
            indices_dimension_count=1,
        )
    builder = top_k_desc if operator == "top_k" else top_k1_desc
    return builder(
        input_tensor=tensor(values, *ones, 5),
        output_value_tensor=tensor(values, *ones, 2),
        output_index_tensor=tensor(indices, *ones, 2),
        axis=count - 1,
        k=2,
    )


def supported(desc, level):
    try:
        check_support(desc, level)
    except UnsupportedError:
        return False
    return True


@pytest.mark.parametrize(("operator", "first", "after", "counts", "values", "indices"), ROWS)
def test_every_row(operator, first, after, counts, values, indices):
    for level in levels_of(first, after):
        found_counts = [n for n in range(1, 9) if supported(make(operator, n, "FLOAT32", "UINT32"), level)]
        found_values = {t for t in ALL_TYPES if supported(make(operator, 4, t, "UINT32"), level)}
        found_indices = {t for t in ALL_TYPES if supported(make(operator, 4, "FLOAT32", t), level)}
        assert found_counts == list(counts)
        assert found_values == set(values.split())
        assert found_indices == set(indices.split())


def quantized(matrix_count=4, value_count=4, **types):
    ones, value = (1,) * (matrix_count - 2), (1,) * value_count
    a, b, y = types.get("a", "INT8"), types.get("b", "INT8"), types.get("y", "INT8")
    return quantized_desc(
        a_tensor=tensor(a, *ones, 2, 3),
        a_scale_tensor=tensor(types.get("a_scale", "FLOAT32"), *value),
        a_zero_point_tensor=tensor(a, *value),
        b_tensor=tensor(b, *ones, 3, 4),
        b_scale_tensor=tensor(types.get("b_scale", "FLOAT32"), *value),
        b_zero_point_tensor=tensor(b, *value),
        output_scale_tensor=tensor(types.get("y_scale", "FLOAT32"), *value),
        output_zero_point_tensor=tensor(y, *value),
        output_tensor=tensor(y, *ones, 2, 4),
    )


@pytest.mark.parametrize(
    ("first", "after", "matrices", "values"), [("2_1", "4_0", FOUR, FOUR), ("4_0", None, range(2, 5), range(1, 5))]
)
def test_every_row_of_the_quantized_product(first, after, matrices, values):
    for level in levels_of(first, after):
        assert [n for n in range(2, 9) if supported(quantized(matrix_count=n), level)] == list(matrices)
        assert [n for n in range(1, 9) if supported(quantized(value_count=n), level)] == list(values)
        for name in ("a", "b", "y"):
            assert [t for t in ALL_TYPES if supported(quantized(**{name: t}), level)] == ["UINT8", "INT8"]
            assert [t for t in ALL_TYPES if supported(quantized(**{f"{name}_scale": t}), level)] == ["FLOAT32"]


@pytest.mark.parametrize(
    ("builder", "operator", "first"),
    [
        (top_k_desc, "TOP_K", "2_0"),
        (top_k1_desc, "TOP_K1", "2_1"),
        (scatter_desc, "SCATTER_ND", "2_1"),
        (quantized_desc, "QUANTIZED_LINEAR_MATRIX_MULTIPLY", "2_1"),
    ],
)
def test_before_the_first_level(builder, operator, first):
    before = [level for level in LEVELS if level < FeatureLevel[f"LEVEL_{first}"]]
    assert before
    for level in before:
        with pytest.raises(UnsupportedError) as caught:
            compile_operator(builder(), feature_level=level)
        assert str(caught.value) == (
            f"DML_OPERATOR_{operator}: FeatureLevel is DML_FEATURE_{level.name}; "
            f"allowed: DML_FEATURE_LEVEL_{first} or later (it introduced the operator)"
        )


MESSAGES = [
    (
        make("top_k1", 3, "FLOAT32", "UINT32"),
        "LEVEL_2_1",
        "DML_OPERATOR_TOP_K1: InputTensor.DimensionCount is 3; "
        "allowed: 4 at DML_FEATURE_LEVEL_2_1 (3 from DML_FEATURE_LEVEL_3_1 on)",
    ),
    (
        make("top_k1", 4, "INT64", "UINT32"),
        "LEVEL_4_1",
        "DML_OPERATOR_TOP_K1: InputTensor.DataType is INT64; "
        "allowed: FLOAT32, FLOAT16, INT32, INT16, INT8, UINT32, UINT16, UINT8 "
        "at DML_FEATURE_LEVEL_4_1 (INT64 from DML_FEATURE_LEVEL_5_0 on)",
    ),
    (
        make("top_k", 4, "INT8", "UINT32"),
        "LEVEL_2_0",
        "DML_OPERATOR_TOP_K: InputTensor.DataType is INT8; "
        "allowed: FLOAT32, FLOAT16 at DML_FEATURE_LEVEL_2_0 (INT8 from DML_FEATURE_LEVEL_2_1 on)",
    ),
    (
        make("top_k1", 4, "FLOAT32", "INT64"),
        "LEVEL_6_4",
        "DML_OPERATOR_TOP_K1: OutputIndexTensor.DataType is INT64; "
        "allowed: UINT64, UINT32 at DML_FEATURE_LEVEL_6_4 (INT64 at no feature level)",
    ),
    (
        make("scatter_nd", 4, "FLOAT32", "INT32"),
        "LEVEL_2_1",
        "DML_OPERATOR_SCATTER_ND: IndicesTensor.DataType is INT32; "
        "allowed: UINT32 at DML_FEATURE_LEVEL_2_1 (INT32 from DML_FEATURE_LEVEL_3_0 on)",
    ),
    (
        quantized(matrix_count=5),
        "LEVEL_6_4",
        "DML_OPERATOR_QUANTIZED_LINEAR_MATRIX_MULTIPLY: ATensor.DimensionCount is 5; "
        "allowed: 2 to 4 at DML_FEATURE_LEVEL_6_4 (5 at no feature level)",
    ),
    (
        quantized(b="INT4"),
        "LEVEL_6_4",
        "DML_OPERATOR_QUANTIZED_LINEAR_MATRIX_MULTIPLY: BTensor.DataType is INT4; "
        "allowed: INT8, UINT8 at DML_FEATURE_LEVEL_6_4 (INT4 at no feature level)",
    ),
]


@pytest.mark.parametrize(("desc", "level", "message"), MESSAGES)
def test_messages(desc, level, message):
    with pytest.raises(UnsupportedError) as caught:
        compile_operator(desc, feature_level=FeatureLevel[level])
    assert str(caught.value) == message


def test_absent_optional_tensors_and_flags_do_not_matter():
    desc = quantized_desc(b_tensor=tensor("INT8", 1, 2, 3, 4, flags=OWNED))
    check_support(desc, FeatureLevel.LEVEL_2_1)
