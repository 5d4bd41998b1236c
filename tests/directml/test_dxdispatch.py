import copy
import dataclasses
import json

import pytest
from desc_builders import OWNED, quantized_desc, scatter_desc, small_scatter_desc, tensor, top_k1_desc
from hypothesis import given, settings, strategies as st

from dmlcpu import AxisDirection, TensorDataType, operator_desc_from_dict
from dmlcpu.directml.enums import full_name
from dmlcpu.errors import InvalidDescriptorError, UnsupportedError
from dmlcpu.operators import OPERATORS

# As a DirectML user writes it: no prefixes, no defaults.
TERSE = {
    "type": "TOP_K1",
    "desc": {
        "InputTensor": {"DataType": "FLOAT32", "Sizes": [1, 1, 3, 4]},
        "OutputValueTensor": {"DataType": "FLOAT32", "Sizes": [1, 1, 3, 2]},
        "OutputIndexTensor": {"DataType": "UINT32", "Sizes": [1, 1, 3, 2]},
        "Axis": 3,
        "K": 2,
        "AxisDirection": "DECREASING",
    },
}


def terse(**members):
    """TERSE with members of its desc replaced, or left out where they are ..., in a copy."""
    d = copy.deepcopy(TERSE)
    d["desc"].update(members)
    d["desc"] = {name: value for name, value in d["desc"].items() if value is not ...}
    return d


def x_tensor(**members):
    d = {"DataType": "FLOAT32", "Sizes": [1, 1, 3, 4], **members}
    return {name: value for name, value in d.items() if value is not ...}


def test_to_dict_writes_everything_in_full():
    desc = top_k1_desc(input_tensor=tensor("FLOAT32", 1, 1, 3, 4, strides=(16, 16, 4, 1), flags=OWNED))
    packed = {
        "Flags": "DML_TENSOR_FLAG_NONE",
        "DimensionCount": 4,
        "Sizes": [1, 1, 3, 2],
        "Strides": None,
        "TotalTensorSizeInBytes": 24,
        "GuaranteedBaseOffsetAlignment": 0,
    }
    assert desc.to_dict() == {
        "type": "DML_OPERATOR_TOP_K1",
        "desc": {
            "InputTensor": {
                "DataType": "DML_TENSOR_DATA_TYPE_FLOAT32",
                "Flags": "DML_TENSOR_FLAG_OWNED_BY_DML",
                "DimensionCount": 4,
                "Sizes": [1, 1, 3, 4],
                "Strides": [16, 16, 4, 1],
                "TotalTensorSizeInBytes": 48,
                "GuaranteedBaseOffsetAlignment": 0,
            },
            "OutputValueTensor": {"DataType": "DML_TENSOR_DATA_TYPE_FLOAT32", **packed},
            "OutputIndexTensor": {"DataType": "DML_TENSOR_DATA_TYPE_UINT32", **packed},
            "Axis": 3,
            "K": 2,
            "AxisDirection": "DML_AXIS_DIRECTION_DECREASING",
        },
    }


def test_names_in_the_order_and_spelling_of_directml():
    assert list(scatter_desc().to_dict()["desc"]) == [
        "InputTensor",
        "IndicesTensor",
        "UpdatesTensor",
        "OutputTensor",
        "InputDimensionCount",
        "IndicesDimensionCount",
    ]
    zero = tensor("UINT8", 1), tensor("INT8", 1), tensor("INT8", 1)
    names = ("a_zero_point_tensor", "b_zero_point_tensor", "output_zero_point_tensor")
    d = quantized_desc(**dict(zip(names, zero, strict=True))).to_dict()
    assert d["type"] == "DML_OPERATOR_QUANTIZED_LINEAR_MATRIX_MULTIPLY"
    assert list(d["desc"]) == [
        "ATensor",
        "AScaleTensor",
        "AZeroPointTensor",
        "BTensor",
        "BScaleTensor",
        "BZeroPointTensor",
        "OutputScaleTensor",
        "OutputZeroPointTensor",
        "OutputTensor",
    ]


FREEDOMS = [
    TERSE,
    {**TERSE, "type": "DML_OPERATOR_TOP_K1"},
    {**TERSE, "bindings": {}, "dmlCompileType": "DmlCompileGraph"},
    terse(AxisDirection="DML_AXIS_DIRECTION_DECREASING"),
    *[
        terse(InputTensor=x_tensor(**members))
        for members in (
            {"DataType": "DML_TENSOR_DATA_TYPE_FLOAT32"},
            {"Flags": "NONE"},
            {"Flags": "DML_TENSOR_FLAG_NONE"},
            {"Flags": ["NONE"]},
            {"Flags": []},
            {"Flags": None},
            {"Strides": None},
            {"Strides": []},
            {"DimensionCount": 4},
            {"DimensionCount": None},
            {"TotalTensorSizeInBytes": 48},
            {"TotalTensorSizeInBytes": 0},
            {"TotalTensorSizeInBytes": None},
            {"GuaranteedBaseOffsetAlignment": 0},
            {"Type": "BUFFER"},
        )
    ],
    terse(InputTensor={"Type": "DML_TENSOR_TYPE_BUFFER", "Desc": x_tensor()}),
    terse(InputTensor={"Type": "BUFFER", "Desc": x_tensor(Strides=None)}),
    terse(InputTensor={"Desc": x_tensor()}),
]


@pytest.mark.parametrize("d", FREEDOMS)
def test_every_freedom_of_the_format(d):
    before = copy.deepcopy(d)
    assert operator_desc_from_dict(d) == top_k1_desc()
    assert d == before


def test_what_is_given_is_read():
    members = {"Flags": "OWNED_BY_DML", "Strides": [0, 0, 8, 1], "TotalTensorSizeInBytes": 100}
    desc = operator_desc_from_dict(
        terse(InputTensor=x_tensor(**members, GuaranteedBaseOffsetAlignment=16), AxisDirection="INCREASING")
    )
    assert desc == top_k1_desc(
        input_tensor=tensor(
            "FLOAT32",
            1, 1, 3, 4,
            flags=OWNED,
            strides=(0, 0, 8, 1),
            total_tensor_size_in_bytes=100,
            guaranteed_base_offset_alignment=16,
        ),
        axis_direction=AxisDirection.INCREASING,
    )  # fmt: skip


def test_a_size_that_was_computed_is_computed_again_after_a_round_trip():
    one, given = tensor("FLOAT32", 1, 8), tensor("FLOAT32", 1, 8, total_tensor_size_in_bytes=64)
    desc = small_scatter_desc(input_tensor=one, output_tensor=given)
    again = operator_desc_from_dict(desc.to_dict())
    assert dataclasses.replace(again.input_tensor, sizes=(1, 2)).total_tensor_size_in_bytes == 8
    assert dataclasses.replace(again.output_tensor, sizes=(1, 2)).total_tensor_size_in_bytes == 64
    assert repr(again) == repr(desc)


@pytest.mark.parametrize("absent", ["missing", "null"])
def test_optional_tensors(absent):
    d = quantized_desc(a_zero_point_tensor=tensor("UINT8", 1)).to_dict()
    names = ("BZeroPointTensor", "OutputZeroPointTensor")
    assert not set(names) & set(d["desc"])
    if absent == "null":
        d["desc"].update(dict.fromkeys(names))
    desc = operator_desc_from_dict(d)
    assert desc.a_zero_point_tensor == tensor("UINT8", 1)
    assert desc.b_zero_point_tensor is None
    assert desc.output_zero_point_tensor is None


OBJECT = "an object with DataType and Sizes"
VALUE = "a value: it has no default"
FIELDS = "InputTensor, OutputValueTensor, OutputIndexTensor, Axis, K, AxisDirection"
UINT, SIZE = "an integer from 0 to 4294967295", "an integer from 1 to 4294967295"
MEMBERS = "DataType, Sizes, Flags, DimensionCount, Strides, TotalTensorSizeInBytes, GuaranteedBaseOffsetAlignment"
TYPES = ", ".join(member.name for member in TensorDataType if member.bits)

# What is put into the desc, the fault's path, what was found, what is allowed.
FAULTS = [
    ({"Axis": ...}, "Axis", "missing", VALUE),
    ({"InputTensor": ...}, "InputTensor", "missing", VALUE),
    ({"InputTensor": ..., "K": ...}, "InputTensor", "missing, and so is K", VALUE),
    ({"Axis": ..., "K": ..., "AxisDirection": ...}, "Axis", "missing, and so are K, AxisDirection", VALUE),
    ({"axis": 3}, "axis", "unknown", FIELDS),
    ({"Axis": "3"}, "Axis", "'3'", "an integer"),
    ({"Axis": None}, "Axis", "None", "an integer"),
    ({"Axis": 3.0}, "Axis", "3.0", "an integer"),
    ({"Axis": True}, "Axis", "True", "an integer"),
    ({"Axis": -1}, "Axis", "-1", "0 to 3 (below InputTensor.DimensionCount)"),
    ({"K": -1}, "K", "-1", "1 to 4 (InputTensor.Sizes[3])"),
    ({"K": 2**32}, "K", "4294967296", "1 to 4 (InputTensor.Sizes[3])"),
    ({"K": 9}, "K", "9", "1 to 4 (InputTensor.Sizes[3])"),
    ({"AxisDirection": "UP"}, "AxisDirection", "'UP'", "INCREASING, DECREASING"),
    ({"AxisDirection": 1}, "AxisDirection", "1", "INCREASING, DECREASING"),
    ({"InputTensor": None}, "InputTensor", "None", OBJECT),
    ({"InputTensor": [1, 1, 3, 4]}, "InputTensor", "[1, 1, 3, 4]", OBJECT),
    ({"InputTensor": x_tensor(DataType=...)}, "InputTensor.DataType", "missing", VALUE),
    ({"InputTensor": {}}, "InputTensor.DataType", "missing, and so is Sizes", VALUE),
    ({"InputTensor": x_tensor(Sizes=...)}, "InputTensor.Sizes", "missing", VALUE),
    ({"InputTensor": x_tensor(Sises=[1])}, "InputTensor.Sises", "unknown", MEMBERS),
    ({"InputTensor": x_tensor(DataType="float32")}, "InputTensor.DataType", "'float32'", TYPES),
    ({"InputTensor": x_tensor(DataType="UNKNOWN")}, "InputTensor.DataType", "UNKNOWN", TYPES),
    ({"InputTensor": x_tensor(Flags="OWNED")}, "InputTensor.Flags", "'OWNED'", "NONE, OWNED_BY_DML"),
    ({"InputTensor": x_tensor(Flags=1)}, "InputTensor.Flags", "1", "NONE, OWNED_BY_DML"),
    ({"InputTensor": x_tensor(Sizes=None)}, "InputTensor.Sizes", "None", "a list of integers"),
    ({"InputTensor": x_tensor(Sizes=12)}, "InputTensor.Sizes", "12", "a list of integers"),
    ({"InputTensor": x_tensor(Sizes=[1, 1, "3", 4])}, "InputTensor.Sizes[2]", "'3'", SIZE),
    ({"InputTensor": x_tensor(Sizes=[1, 1, 0, 4])}, "InputTensor.Sizes[2]", "0", SIZE),
    ({"InputTensor": x_tensor(Sizes=[1, 1, -3, 4])}, "InputTensor.Sizes[2]", "-3", SIZE),
    ({"InputTensor": x_tensor(Sizes=[])}, "InputTensor.DimensionCount", "0", "1 to 8"),
    ({"InputTensor": x_tensor(DimensionCount=3)}, "InputTensor.DimensionCount", "3", "4 (the length of Sizes)"),
    ({"InputTensor": x_tensor(Strides=[4, 1])}, "InputTensor.Strides", "(4, 1), 2 strides", "4, one for each size"),
    ({"InputTensor": x_tensor(Strides=[1, 1, 4, None])}, "InputTensor.Strides[3]", "None", UINT),
    (
        {"InputTensor": x_tensor(TotalTensorSizeInBytes=47)},
        "InputTensor.TotalTensorSizeInBytes",
        "47",
        "48 to 18446744073709551615",
    ),
    (
        {"InputTensor": x_tensor(GuaranteedBaseOffsetAlignment=5)},
        "InputTensor.GuaranteedBaseOffsetAlignment",
        "5",
        "0, or a power of two from 4 to 2147483648",
    ),
    ({"InputTensor": x_tensor(Type="IMAGE")}, "InputTensor.Type", "'IMAGE'", "DML_TENSOR_TYPE_BUFFER"),
    ({"InputTensor": {"Desc": None}}, "InputTensor.Desc", "None", OBJECT),
    ({"InputTensor": {"Desc": x_tensor(), "Flags": "NONE"}}, "InputTensor.Flags", "unknown", "Desc"),
    ({"InputTensor": {"Desc": x_tensor(Sizes=[1, 0])}}, "InputTensor.Desc.Sizes[1]", "0", SIZE),
    (
        {"OutputValueTensor": x_tensor(Flags="OWNED_BY_DML")},
        "OutputValueTensor.Flags",
        "OWNED_BY_DML",
        "NONE (only inputs may be owned)",
    ),
]


@pytest.mark.parametrize(("members", "field", "found", "allowed"), FAULTS)
def test_faults_name_their_path(members, field, found, allowed):
    with pytest.raises(InvalidDescriptorError) as caught:
        operator_desc_from_dict(terse(**members))
    error = caught.value
    assert (error.operator, error.field, error.found, error.allowed) == ("DML_OPERATOR_TOP_K1", field, found, allowed)


@pytest.mark.parametrize("name", ["GEMM", "DML_OPERATOR_GEMM", "", "top_k1", None, 112, ["TOP_K1"]])
def test_unknown_operators_are_refused_with_those_there_are(name):
    with pytest.raises(UnsupportedError) as caught:
        operator_desc_from_dict({"type": name, "desc": {}})
    assert str(caught.value) == (
        f"operator_desc_from_dict: type is {name!r}; allowed: "
        + ", ".join(full_name(each) for row in OPERATORS.values() for each in row.descs)
    )


@pytest.mark.parametrize(
    ("d", "message"),
    [
        ({"desc": {}}, "type is missing; allowed: a value: it has no default"),
        ({"type": "TOP_K"}, "desc is missing; allowed: a value: it has no default"),
        ({"type": "TOP_K", "desc": []}, "desc is []; allowed: an object"),
        (
            {"type": "TOP_K", "desc": {}, "shader": "x.hlsl"},
            "shader is unknown; allowed: type, desc, bindings, dmlCompileType",
        ),
    ],
)
def test_faults_of_the_operators_own_object(d, message):
    with pytest.raises(InvalidDescriptorError) as caught:
        operator_desc_from_dict(d)
    assert str(caught.value) == f"operator_desc_from_dict: {message}"


@pytest.mark.parametrize("d", [None, [], "TOP_K1", 5])
def test_no_dictionary_is_a_type_error(d):
    with pytest.raises(TypeError) as caught:
        operator_desc_from_dict(d)
    assert str(caught.value) == f"operator_desc_from_dict: d is {d!r}; allowed: a dictionary"


@st.composite
def tensors(draw, data_type, sizes, output=False):
    """A tensor with all its optional fields in play."""
    strides, packed = [], 1
    for size in reversed(sizes):
        strides.insert(0, packed + draw(st.integers(0, 3)))
        packed = strides[0] * size
    fields = {"strides": draw(st.sampled_from([None, tuple(strides)]))}
    desc = tensor(data_type, *sizes, **fields)
    if draw(st.booleans()):
        fields["total_tensor_size_in_bytes"] = desc.total_tensor_size_in_bytes + draw(st.integers(0, 100))
    fields["guaranteed_base_offset_alignment"] = draw(st.sampled_from([0, 8, 256]))
    if not output and draw(st.booleans()):
        fields["flags"] = OWNED
    return tensor(data_type, *sizes, **fields)


@st.composite
def top_k_descs(draw):
    sizes = draw(st.lists(st.integers(1, 5), min_size=1, max_size=8))
    axis = draw(st.integers(0, len(sizes) - 1))
    k = draw(st.integers(1, sizes[axis]))
    selected = [*sizes[:axis], k, *sizes[axis + 1 :]]
    data_type = draw(st.sampled_from(["FLOAT16", "INT64", "UINT8"]))
    return top_k1_desc(
        input_tensor=draw(tensors(data_type, sizes)),
        output_value_tensor=draw(tensors(data_type, selected, output=True)),
        output_index_tensor=draw(tensors("UINT64", selected, output=True)),
        axis=axis,
        k=k,
        axis_direction=draw(st.sampled_from(AxisDirection)),
    )


@settings(deadline=None)
@given(st.one_of(top_k_descs(), st.builds(small_scatter_desc), st.builds(quantized_desc)))
def test_round_trip_is_exact(desc):
    again = operator_desc_from_dict(json.loads(json.dumps(desc.to_dict())))
    assert again == desc
    assert type(again) is type(desc)
    assert hash(again) == hash(desc)
