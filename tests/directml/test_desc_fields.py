"""The kinds of fields a desc can have, with operators made up of them."""

import json
import sys
from types import ModuleType

import numpy as np
import pytest
from desc_builders import OWNED, tensor
from toy_descs import FLOATS, OPERATOR, SumOperatorDesc, split, sums

from dmlcpu import (
    FeatureLevel,
    OperatorType,
    TensorDataType,
    TensorDesc,
    batch,
    compile_operator,
    operator_desc_from_dict,
)
from dmlcpu.directml.base import check_support
from dmlcpu.directml.feature_level import FOUR, Allowed, Support
from dmlcpu.errors import BindingError, InvalidDescriptorError, UnsupportedError
from dmlcpu.operators import descs
from dmlcpu.operators.table import Operator


@pytest.fixture
def in_the_table(monkeypatch):
    module = ModuleType("dmlcpu.operators.sums.descriptor")
    module.SumOperatorDesc = SumOperatorDesc
    monkeypatch.setitem(sys.modules, "dmlcpu.operators.sums", ModuleType("dmlcpu.operators.sums"))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    row = Operator("sums", {OperatorType.SCATTER_ND: "SumOperatorDesc"}, ("float32",))
    monkeypatch.setattr(descs, "OPERATORS", {"sums": row})


def test_arrays_are_tuples_of_checked_elements():
    desc = sums(weights=[np.int64(3), 10])
    assert desc.weights == (3, 10)
    assert all(type(weight) is int for weight in desc.weights)
    assert desc.input_tensors == (tensor("FLOAT32", 2, 3),) * 2
    assert hash(desc) == hash(sums())
    assert [(field.name, field.dml_name, field.output) for field, _ in desc.tensors()] == [
        ("input_tensors[0]", "InputTensors[0]", False),
        ("input_tensors[1]", "InputTensors[1]", False),
        ("bias_tensor", "BiasTensor", False),
        ("output_tensor", "OutputTensor", True),
    ]


def test_the_repr_has_arrays_and_no_defaults():
    desc = sums(bias_tensor=None)
    one = "TensorDesc(TensorDataType.FLOAT32, sizes=(2, 3))"
    assert repr(desc) == f"SumOperatorDesc(input_tensors=({one}, {one}), weights=(3, 10), output_tensor={one})"
    names = {"SumOperatorDesc": SumOperatorDesc, "TensorDesc": TensorDesc, "TensorDataType": TensorDataType}
    assert eval(repr(desc), names) == desc


def test_directmls_spelling_of_an_array_gets_a_hint():
    with pytest.raises(
        TypeError, match="SumOperatorDesc: InputTensors is DirectML's spelling; allowed: input_tensors "
    ):
        sums(InputTensors=[])
    with pytest.raises(BindingError, match="InputTensors is DirectML's spelling; allowed: input_tensors here"):
        compile_operator(sums())(InputTensors=[A, B])


def test_the_operators_own_range_comes_first():
    """Nothing but the kind of a field is known before `_check`."""
    with pytest.raises(InvalidDescriptorError, match="WeightCount is 1; allowed: 2"):
        sums(weights=(-1,))
    with pytest.raises(InvalidDescriptorError, match=r"Weights\[0\] is 4294967296; allowed: 0 to 4294967295"):
        sums(weights=(2**32, -1))


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"weights": 5}, TypeError, "Weights is 5; allowed: a sequence of int"),
        ({"weights": (1, "2")}, TypeError, "Weights[1] is '2'; allowed: an integer"),
        ({"weights": (1, -1)}, InvalidDescriptorError, "Weights[1] is -1; allowed: 0 to 4294967295"),
        ({"weights": (1,)}, InvalidDescriptorError, "WeightCount is 1; allowed: 2 (InputCount)"),
        (
            {"input_tensors": tensor("FLOAT32", 2, 3)},
            TypeError,
            f"InputTensors is {tensor('FLOAT32', 2, 3)!r}; allowed: a sequence of TensorDesc",
        ),
        ({"input_tensors": (tensor("FLOAT32", 2, 3), None)}, TypeError, "InputTensors[1] is None; allowed: TensorDesc"),
        (
            {"input_tensors": (tensor("FLOAT32", 2, 3), tensor("FLOAT32", 3, 2))},
            InvalidDescriptorError,
            "InputTensors[1].Sizes is (3, 2); allowed: (2, 3) (OutputTensor.Sizes)",
        ),
        (
            {"greatest_tensor": tensor("FLOAT32", 1, flags=OWNED)},
            InvalidDescriptorError,
            "GreatestTensor.Flags is OWNED_BY_DML; allowed: NONE (only inputs may be owned)",
        ),
    ],
)
def test_refused_fields(fields, error, message):
    with pytest.raises(error) as caught:
        sums(**fields)
    assert str(caught.value) == f"{OPERATOR}: {message}"


@pytest.mark.usefixtures("in_the_table")
def test_dictionaries():
    desc = sums(bias_tensor=None, greatest_tensor=tensor("FLOAT32", 1))
    d = desc.to_dict()
    assert list(d["desc"]) == ["InputCount", "InputTensors", "WeightCount", "Weights", "OutputTensor", "GreatestTensor"]
    assert (d["desc"]["InputCount"], d["desc"]["WeightCount"], d["desc"]["Weights"]) == (2, 2, [3, 10])
    assert operator_desc_from_dict(json.loads(json.dumps(d))) == desc
    del d["desc"]["InputCount"], d["desc"]["WeightCount"]  # they can be counted
    assert operator_desc_from_dict(d) == desc


@pytest.mark.usefixtures("in_the_table")
@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"InputCount": 3}, "InputCount is 3; allowed: 2 (the length of InputTensors)"),
        ({"InputCount": 1}, "InputCount is 1; allowed: 2 (the length of InputTensors)"),
        ({"WeightCount": None}, "WeightCount is None; allowed: an integer from 0 to 4294967295"),
        ({"Weights": 3}, "Weights is 3; allowed: a list"),
        ({"Weights": [3, 1.5]}, "Weights[1] is 1.5; allowed: an integer"),
        ({"InputTensors": [{"Sizes": [2]}, {}]}, "InputTensors[0].DataType is missing; allowed: a value: it has no"),
    ],
)
def test_refused_dictionaries(members, message):
    d = sums().to_dict()
    d["desc"] |= members
    with pytest.raises(InvalidDescriptorError) as caught:
        operator_desc_from_dict(d)
    assert str(caught.value).startswith(f"{OPERATOR}: {message}")


def test_a_tensor_that_became_optional():
    late, early = sums(bias_tensor=None), FeatureLevel.LEVEL_6_1
    compile_operator(late, feature_level=FeatureLevel.LEVEL_6_2)
    compile_operator(sums(), feature_level=early)
    with pytest.raises(UnsupportedError) as caught:
        compile_operator(late, feature_level=early)
    assert str(caught.value) == (
        f"{OPERATOR}: BiasTensor is missing; "
        "allowed: a tensor at DML_FEATURE_LEVEL_6_1 (optional from DML_FEATURE_LEVEL_6_2 on)"
    )


def test_an_array_can_be_required(monkeypatch):
    needs = Support(
        FeatureLevel.LEVEL_2_0, {**sums().FEATURE_LEVELS[-1].tensors, "InputTensors": Allowed(FOUR, FLOATS, True)}
    )
    monkeypatch.setattr(SumOperatorDesc, "FEATURE_LEVELS", (needs,))
    four = tensor("FLOAT32", 1, 1, 2, 3)
    check_support(sums(input_tensors=[four] * 2, output_tensor=four), FeatureLevel.LEVEL_2_0)
    with pytest.raises(UnsupportedError, match="InputTensors is missing; allowed: a tensor at DML_FEATURE_LEVEL_2_0"):
        check_support(sums(input_tensors=[], weights=[]), FeatureLevel.LEVEL_2_0)


def test_the_row_of_an_array_holds_for_each_of_its_tensors():
    desc = sums(input_tensors=(tensor("FLOAT32", 2, 3), tensor("INT8", 2, 3)))
    with pytest.raises(UnsupportedError, match=r"InputTensors\[1\].DataType is INT8; allowed: FLOAT32, FLOAT16 at"):
        compile_operator(desc)


def test_arrays_of_outputs():
    op = compile_operator(split())
    assert [out.tolist() for out in op(input_tensor=B)] == [[3, 4, 5], [0, 1, 2]]
    mine = np.zeros(3, np.float32)
    assert op(input_tensor=B, output_tensors=[None, mine])[1] is mine
    with pytest.raises(BindingError, match=r"OutputTensors\[1\] is sharing memory with OutputTensors\[0\]"):
        op(input_tensor=B, output_tensors=[mine, mine])
    with pytest.raises(InvalidDescriptorError, match=r"OutputTensors\[1\].Flags is OWNED_BY_DML"):
        split(output_tensors=[tensor("FLOAT32", 3), tensor("FLOAT32", 3, flags=OWNED)])


def test_an_output_that_may_be_the_input_may_also_be_left_out():
    x = np.asfortranarray(B)[::-1]  # an array that does not own its data
    assert [out.tolist() for out in compile_operator(split())(input_tensor=x)] == [[0, 1, 2], [3, 4, 5]]
    in_place = compile_operator(split(copy_tensor=tensor("FLOAT32", 2, 3)))
    assert [out.tolist() for out in in_place(input_tensor=x, copy_tensor=x)] == [[0, 1, 2], [3, 4, 5]]


def test_arrays_that_directml_has_one_length_for():
    with pytest.raises(InvalidDescriptorError) as caught:
        split(rows=[1])
    assert (
        str(caught.value) == f"{OPERATOR}: Rows is 1 elements; allowed: 2 elements (OutputCount, as OutputTensors has)"
    )
    d = split(rows=range(2)).to_dict()["desc"]
    assert list(d) == ["InputTensor", "OutputCount", "OutputTensors", "Rows"]
    assert d["OutputCount"] == 2


A, B, BIAS = np.ones((2, 3), np.float32), np.arange(6, dtype=np.float32).reshape(2, 3), np.full((2, 3), 0.5, np.float32)
EXPECTED = 3 * A + 10 * B + BIAS


def test_arrays_of_tensors_are_bound_as_lists():
    op = compile_operator(sums())
    assert op(input_tensors=[A, B], bias_tensor=BIAS).sums.tolist() == EXPECTED.tolist()
    assert op(input_tensors=(A.tobytes(), B.reshape(-1)), bias_tensor=BIAS).sums.tolist() == EXPECTED.tolist()
    assert op(input_tensors=[A, B], bias_tensor=BIAS).greatest is None


def test_an_element_can_be_bound_by_its_name_but_not_twice():
    op = compile_operator(sums())
    one_by_one = {"input_tensors[0]": A, "input_tensors[1]": B}
    assert op(**one_by_one, bias_tensor=BIAS).sums.tolist() == EXPECTED.tolist()
    with pytest.raises(BindingError, match=r"InputTensors\[1\] is given twice; allowed: in the list or by itself"):
        op(input_tensors=[A, B], bias_tensor=BIAS, **{"input_tensors[1]": A})
    with pytest.raises(
        BindingError, match="x is not a tensor of the desc; allowed: input_tensors, bias_tensor, output"
    ):
        op(x=A)


def test_an_element_can_be_owned():
    one = (tensor("FLOAT32", 2, 3), tensor("FLOAT32", 2, 3, flags=OWNED))
    op = compile_operator(sums(input_tensors=one))
    b = B.copy()
    op.initialize(input_tensors=[None, b])
    b[...] = -1
    assert op(input_tensors=[A, None], bias_tensor=BIAS).sums.tolist() == EXPECTED.tolist()
    with pytest.raises(
        BindingError, match=r"InputTensors\[1\] is given to the call; allowed: initialize\(input_tensors="
    ):
        op(input_tensors=[A, B], bias_tensor=BIAS)
    with pytest.raises(BindingError, match=r"allowed: a call after initialize\(input_tensors=...\)"):
        compile_operator(sums(input_tensors=one))(input_tensors=[A, None], bias_tensor=BIAS)


def test_optional_outputs():
    op = compile_operator(sums(greatest_tensor=tensor("FLOAT32", 1), bias_tensor=None))
    assert op(input_tensors=[A, B]).greatest.tolist() == [53]
    mine = np.zeros(1, np.float32)
    assert op(input_tensors=[A, B], greatest_tensor=mine).greatest is mine
    with pytest.raises(BindingError, match="GreatestTensor is sharing memory with InputTensors"):
        op(input_tensors=[A, B], greatest_tensor=A.reshape(-1)[:1])
    with pytest.raises(BindingError, match="greatest_tensor is not a tensor of the desc"):
        compile_operator(sums())(input_tensors=[A, B], bias_tensor=BIAS, greatest_tensor=mine)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (A, TypeError, "InputTensors is ndarray; allowed: a list of 2 arrays or buffers, one for each tensor"),
        ([A], BindingError, "InputTensors is a list of 1; allowed: a list of 2 arrays or buffers, one for each tensor"),
        ([A, None], BindingError, "InputTensors[1] is missing; allowed: an array of float32 and shape (2, 3), "),
        ([A, B[:1]], BindingError, "InputTensors[1] is an array of float32 and shape (1, 3); allowed: "),
    ],
)
def test_refused_lists(given, error, message):
    out = np.full((2, 3), 7, np.float32)
    with pytest.raises(error) as caught:
        compile_operator(sums())(input_tensors=given, bias_tensor=BIAS, output_tensor=out)
    assert str(caught.value).startswith(f"{OPERATOR}: {message}")
    assert (out == 7).all()


def model(tmp_path, bindings, desc=None):
    """Write a model that binds A to a constant and B to a sequence."""
    initial = {"initialValuesDataType": "FLOAT32"}
    path = tmp_path / "model.json"
    path.write_text(
        json.dumps(
            {
                "resources": {
                    "a": {**initial, "initialValues": {"valueCount": 6, "value": 1}},
                    "b": {**initial, "initialValues": {"valueCount": 6, "valueStart": 0, "valueDelta": 1}},
                    "out": {**initial, "initialValues": {"valueCount": 6, "value": 0}},
                },
                "dispatchables": {"sum": (desc or sums(bias_tensor=None)).to_dict()},
                "commands": [{"type": "dispatch", "dispatchable": "sum", "bindings": bindings}],
            }
        )
    )
    return path


@pytest.mark.usefixtures("in_the_table")
def test_models_bind_lists(tmp_path):
    path = model(tmp_path, {"InputTensors": ["a", {"name": "b"}], "OutputTensor": "out"})
    assert batch.run_model(batch.load_model(path), emit=lambda line: None)["out"].tolist() == [3, 13, 23, 33, 43, 53]


@pytest.mark.usefixtures("in_the_table")
def test_a_list_of_one_tensor_may_be_left_out_in_models(tmp_path):
    desc = sums(bias_tensor=None, input_tensors=[tensor("FLOAT32", 2, 3)], weights=[2])
    path = model(tmp_path, {"InputTensors": "b", "OutputTensor": "out"}, desc)
    assert batch.run_model(batch.load_model(path), emit=lambda line: None)["out"].tolist() == [0, 2, 4, 6, 8, 10]


@pytest.mark.usefixtures("in_the_table")
@pytest.mark.parametrize(
    ("bindings", "fault"),
    [
        ({"InputTensors": ["a"]}, "$.commands[0].bindings.InputTensors[1]: missing; allowed: the name of a resource"),
        ({"InputTensors": ["a", "c"]}, "$.commands[0].bindings.InputTensors[1]: 'c'; allowed: a resource: a, b, out"),
        (
            {"InputTensors": ["a", "b", "a"]},
            "$.commands[0].bindings.InputTensors[2]: unknown; allowed: the tensors InputTensors, OutputTensor",
        ),
        (
            {"InputTensors": ["a", None]},
            "$.commands[0].bindings.InputTensors[1]: missing; allowed: the name of a resource",
        ),
        (
            {"InputTensors": ["a", "b"], "InputTensors[1]": "b"},
            '$.commands[0].bindings["InputTensors[1]"]: unknown; allowed: the tensors InputTensors, OutputTensor',
        ),
        ({}, "$.commands[0].bindings.InputTensors[0]: missing; allowed: the name of a resource"),
        (
            {"InputTensors": ["a", "out"]},
            "$.commands[0].bindings.OutputTensor: 'out', which overlaps InputTensors[1]; allowed: its own memory",
        ),
    ],
)
def test_faults_of_lists_in_models(tmp_path, bindings, fault):
    with pytest.raises(batch.ModelError) as caught:
        batch.load_model(model(tmp_path, {**bindings, "OutputTensor": "out"}))
    assert fault in [str(each) for each in caught.value.faults]


@pytest.mark.usefixtures("in_the_table")
def test_lists_are_looked_at_even_if_the_operator_is_at_fault(tmp_path):
    path = model(tmp_path, {"InputTensors": ["c", "a", "d", None], "OutputTensor": ["e"]})
    data = json.loads(path.read_text())
    data["dispatchables"]["sum"]["desc"]["Weights"] = "two"
    path.write_text(json.dumps(data))
    with pytest.raises(batch.ModelError) as caught:
        batch.load_model(path)
    assert [fault.path for fault in caught.value.faults] == [
        "$.dispatchables.sum.desc.Weights",
        "$.commands[0].bindings.InputTensors[0]",
        "$.commands[0].bindings.InputTensors[2]",
        "$.commands[0].bindings.OutputTensor",
    ]


@pytest.mark.usefixtures("in_the_table")
def test_an_element_that_is_owned_is_null_in_the_other_list(tmp_path):
    one = (tensor("FLOAT32", 2, 3), tensor("FLOAT32", 2, 3, flags=OWNED))
    path = model(
        tmp_path, {"InputTensors": ["a", None], "OutputTensor": "out"}, sums(bias_tensor=None, input_tensors=one)
    )
    data = json.loads(path.read_text())
    data["dispatchables"]["sum"]["bindings"] = {"InputTensors": [None, "b"]}
    path.write_text(json.dumps(data))
    assert batch.run_model(batch.load_model(path), emit=lambda line: None)["out"].tolist() == [3, 13, 23, 33, 43, 53]
