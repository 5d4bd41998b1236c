"""Shared by the tests of operators' feature levels: Microsoft's lists of types, and descs of any types and counts."""

from desc_builders import quantized_desc, scatter_desc, tensor

from dmlcpu import FeatureLevel, TensorDataType
from dmlcpu.directml.base import check_support
from dmlcpu.errors import UnsupportedError

LEVELS = list(FeatureLevel)
ALL_TYPES = [member.name for member in TensorDataType if member.bits]

FLOATS = "FLOAT32 FLOAT16"
TO_32 = f"{FLOATS} INT32 INT16 INT8 UINT32 UINT16 UINT8"
WITH_64 = f"{TO_32} INT64 UINT64"
ALL = f"{WITH_64} FLOAT64"
FOUR, ANY = range(4, 5), range(1, 9)


def levels_of(first, after):
    return [
        level
        for level in LEVELS
        if level >= FeatureLevel[f"LEVEL_{first}"] and (after is None or level < FeatureLevel[f"LEVEL_{after}"])
    ]


def top_k(builder, count, values, indices):
    """A desc of `count` dimensions with the given types."""
    ones = (1,) * (count - 1)
    return builder(
        input_tensor=tensor(values, *ones, 5),
        output_value_tensor=tensor(values, *ones, 2),
        output_index_tensor=tensor(indices, *ones, 2),
        axis=count - 1,
        k=2,
    )


def scatter_nd(count, values, indices):
    """A desc of `count` dimensions with the given types."""
    ones = (1,) * (count - 1)
    return scatter_desc(
        input_tensor=tensor(values, *ones, 5),
        indices_tensor=tensor(indices, *ones, 1),
        updates_tensor=tensor(values, *ones, 1),
        output_tensor=tensor(values, *ones, 5),
        input_dimension_count=1,
        indices_dimension_count=1,
    )


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


def supported(desc, level):
    try:
        check_support(desc, level)
    except UnsupportedError:
        return False
    return True


def check_row(make, first, after, counts, values, indices):
    """Check a row of Microsoft's table: from level `first` on, before `after`."""
    for level in levels_of(first, after):
        assert [n for n in ANY if supported(make(n, "FLOAT32", "UINT32"), level)] == list(counts)
        assert {t for t in ALL_TYPES if supported(make(4, t, "UINT32"), level)} == set(values.split())
        assert {t for t in ALL_TYPES if supported(make(4, "FLOAT32", t), level)} == set(indices.split())
