"""The descs of argmax and argmin."""

import numpy as np
import pytest
from desc_builders import tensor
from feature_levels import ALL_TYPES, ANY, TO_32, WITH_64, levels_of, supported

import dmlcpu
from dmlcpu.errors import InvalidDescriptorError, UnsupportedError

DESCS = {"ARGMAX": dmlcpu.ArgmaxOperatorDesc, "ARGMIN": dmlcpu.ArgminOperatorDesc}
INDICES = "INT64 INT32 UINT64 UINT32"
C = np.array([[[1, 9], [3, 4]], [[9, 2], [0, 8]]], np.float32)
each_type = pytest.mark.parametrize("operator_type", DESCS)


def desc(operator_type="ARGMAX", sizes=(2, 2, 2), axes=(0, 2), values="FLOAT32", indices="INT64", **fields):
    reduced = [1 if d in axes else n for d, n in enumerate(sizes)]
    tensors = {"input_tensor": tensor(values, *sizes), "output_tensor": tensor(indices, *reduced)}
    direction = dmlcpu.AxisDirection[fields.pop("direction", "INCREASING")]
    return DESCS[operator_type](**{**tensors, "axes": axes, "axis_direction": direction, **fields})


@pytest.mark.parametrize(
    ("operator_type", "direction", "expected"),
    [("ARGMAX", "INCREASING", [1, 3]), ("ARGMAX", "DECREASING", [2, 3]), ("ARGMIN", "INCREASING", [0, 2])],
)
@pytest.mark.parametrize("axes", [(0, 2), (2, 0)])
@pytest.mark.parametrize("indices", INDICES.split())
def test_direction_decides_ties_and_the_order_of_axes_nothing(operator_type, direction, expected, axes, indices):
    operator = dmlcpu.compile_operator(desc(operator_type, axes=axes, indices=indices, direction=direction))
    found = operator(input_tensor=C)
    assert (found.shape, found.dtype.name.upper(), found.ravel().tolist()) == ((1, 2, 1), indices, expected)


@each_type
def test_strides_of_both_tensors(operator_type):
    sizes, bits = (3, 4), np.random.default_rng(0).random(24, np.float32)
    x = tensor("FLOAT32", *sizes, strides=(1, 6))
    y = tensor("INT32", 3, 1, strides=(2, 7))
    operator = dmlcpu.compile_operator(desc(operator_type, sizes=sizes, axes=(1,), input_tensor=x, output_tensor=y))
    found = operator(input_tensor=bits)
    function = np.argmax if operator_type == "ARGMAX" else np.argmin
    assert found.tolist() == function(x.view(bits), axis=1, keepdims=True).tolist()


@each_type
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"axes": ()}, r"AxisCount is 0; allowed: 1 to 3 \(at most InputTensor\.DimensionCount\)"),
        ({"axes": (0, 1, 2, 0)}, "AxisCount is 4; allowed: 1 to 3"),
        ({"axes": (0, 3)}, r"Axes\[1\] is 3; allowed: 0 to 2 \(below InputTensor\.DimensionCount\)"),
        ({"axes": (-1,)}, r"Axes\[0\] is -1; allowed: 0 to 2"),
        ({"axes": (2, 2)}, r"Axes\[1\] is 2; allowed: an axis that was not named before"),
        ({"output_tensor": tensor("INT64", 1, 1, 1)}, r"OutputTensor\.Sizes is \(1, 1, 1\); allowed: \(1, 2, 1\)"),
        ({"output_tensor": tensor("INT64", 2)}, r"OutputTensor\.Sizes is \(2,\); allowed: \(1, 2, 1\)"),
    ],
)
def test_a_desc_that_contradicts_itself_is_refused(operator_type, change, message):
    with pytest.raises(InvalidDescriptorError, match=message):
        desc(operator_type, **change)


def test_an_output_type_has_to_hold_the_last_index():
    large = {"sizes": (2, 2**30 + 1), "axes": (0, 1), "values": "UINT8"}
    with pytest.raises(
        InvalidDescriptorError, match=r"OutputTensor\.DataType is INT32; allowed: a type that holds 2147"
    ):
        desc(**large, indices="INT32")
    assert desc(**large, indices="UINT32").axes == (0, 1)


@each_type
def test_axis_count_may_be_left_out_of_dictionaries(operator_type):
    made = desc(operator_type)
    written = made.to_dict()
    assert written["desc"]["AxisCount"] == 2
    for count, error in ((None, None), (2, None), (1, r"AxisCount is 1; allowed: 2 \(the length of Axes\)")):
        fields = {**written["desc"], "AxisCount": count}
        if count is None:
            del fields["AxisCount"]
        if error is None:
            assert dmlcpu.operator_desc_from_dict({**written, "desc": fields}) == made
        else:
            with pytest.raises(InvalidDescriptorError, match=error):
                dmlcpu.operator_desc_from_dict({**written, "desc": fields})


@each_type
@pytest.mark.parametrize(("first", "after", "values"), [("3_0", "4_1", TO_32), ("4_1", None, WITH_64)])
def test_feature_levels_are_microsofts(operator_type, first, after, values):
    def with_types(count=4, **types):
        return desc(operator_type, sizes=(1,) * (count - 1) + (5,), axes=(count - 1,), **types)

    for level in levels_of(first, after):
        assert [n for n in ANY if supported(with_types(n), level)] == list(range(1, 9))
        assert {t for t in ALL_TYPES if supported(with_types(values=t), level)} == set(values.split())
        assert {t for t in ALL_TYPES if supported(with_types(indices=t), level)} == set(INDICES.split())


@each_type
def test_before_level_3_0_there_is_none(operator_type):
    with pytest.raises(UnsupportedError, match="FeatureLevel"):
        dmlcpu.compile_operator(desc(operator_type), feature_level=dmlcpu.FeatureLevel.LEVEL_2_1)
