"""Shared by the descriptors of gathers and scatters: checks, and the feature levels from 2_1 on."""

from typing import Any

from dmlcpu.directml.base import Bound, OperatorDesc
from dmlcpu.directml.checks import check_range, dml_name
from dmlcpu.directml.enums import FeatureLevel
from dmlcpu.directml.feature_level import FOUR, ONE_TO_EIGHT, UP_TO_32, Allowed, Support, Types, types
from dmlcpu.indexing.elements import check_indices

UP_TO_64 = types("FLOAT64 FLOAT32 FLOAT16 INT64 INT32 INT16 INT8 UINT64 UINT32 UINT16 UINT8")
INDICES = types("INT64 INT32 UINT64 UINT32")
UINT32 = types("UINT32")


def level(since: FeatureLevel, dimensions: range, values: Types, indices: Types, tensors: tuple[str, ...]) -> Support:
    """Return a row of the table of feature levels; tensors: the names of tensors that hold values, not indices."""
    allowed = dict.fromkeys(tensors, Allowed(dimensions, values))
    return Support(since, {**allowed, "IndicesTensor": Allowed(dimensions, indices)})


def levels(*tensors: str) -> tuple[Support, ...]:
    """Return the rows of feature levels from 2_1 on."""
    return (
        level(FeatureLevel.LEVEL_2_1, FOUR, UP_TO_32, UINT32, tensors),
        level(FeatureLevel.LEVEL_3_0, ONE_TO_EIGHT, UP_TO_32, INDICES, tensors),
        level(FeatureLevel.LEVEL_4_1, ONE_TO_EIGHT, UP_TO_64, INDICES, tensors),
    )


def check_tensors(desc: OperatorDesc, table: tuple[str, ...], lines: tuple[str, ...]) -> None:
    """Refuse tensors that contradict each other; fields: the input's other names, and those with the indices' sizes."""
    own: Any = desc
    x, indices, count = own.input_tensor, own.indices_tensor, own.input_tensor.dimension_count
    for name in ("indices_tensor", *lines, *table):
        own._check_same_count(name, "input_tensor")
    for name in (*lines, *table):
        own._check_same_type(name, "input_tensor")
    check_range(desc.operator, "Axis", own.axis, 0, count - 1, "InputTensor.DimensionCount")
    sizes = (*x.sizes[: own.axis], indices.sizes[own.axis], *x.sizes[own.axis + 1 :])
    own._check_sizes("IndicesTensor", indices, sizes, "InputTensor.Sizes but along Axis")
    for name in lines:
        own._check_sizes(dml_name(name), getattr(own, name), indices.sizes, "IndicesTensor.Sizes")
    for name in table:
        own._check_sizes(dml_name(name), getattr(own, name), x.sizes, "InputTensor.Sizes")


def refuse(desc: Any, bound: Bound) -> None:
    """Raise the error about the first index out of range, unless all have become valid."""
    size = desc.input_tensor.sizes[desc.axis]
    check_indices(desc.operator, bound["indices_tensor"], desc.axis, size, "IndicesTensor")
