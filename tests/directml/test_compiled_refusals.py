import numpy as np
import pytest
from desc_builders import (
    OWNED,
    ROWS,
    outputs,
    quantized_desc,
    small_scatter_desc,
    tensor,
    top_k1_desc,
    top_k_desc,
)

from dmlcpu import compile_operator
from dmlcpu.errors import BindingError

X_ALLOWED = (
    "an array of float32 and shape (1, 1, 3, 4), or a contiguous 1-D buffer of float32 or uint8 of at least 48 bytes"
)


def scatter_overlaps():
    memory = np.arange(12, dtype=np.float32)
    indices = np.array([[4], [3], [1], [7]], np.int32)
    updates = np.zeros((1, 4), np.float32)
    flat = np.zeros(8, np.float32)
    return [
        (memory[0:8], indices, updates, memory[1:9], "InputTensor"),
        (flat, indices, memory[:4], memory[3:11], "UpdatesTensor"),
        (flat, memory[:4].view(np.int32), updates, memory[3:11], "IndicesTensor"),
    ]


@pytest.mark.parametrize("case", range(3))
def test_scatters_output_may_not_overlap_anything_else(case):
    x, indices, updates, out, other = scatter_overlaps()[case]
    before = out.copy()
    with pytest.raises(BindingError) as caught:
        compile_operator(small_scatter_desc())(
            input_tensor=x, indices_tensor=indices, updates_tensor=updates, output_tensor=out
        )
    assert str(caught.value) == (
        f"DML_OPERATOR_SCATTER_ND: OutputTensor is sharing memory with {other}; allowed: its own memory"
    )
    np.testing.assert_array_equal(out, before)


def test_the_outputs_of_top_k_may_not_overlap_the_input_or_one_another():
    op = compile_operator(top_k_desc())
    memory = np.zeros(24, np.float32)
    x, v = memory[:12], memory[11:17]
    with pytest.raises(BindingError) as caught:
        op(input_tensor=x, output_value_tensor=v)
    assert str(caught.value) == (
        "DML_OPERATOR_TOP_K: OutputValueTensor is sharing memory with InputTensor; allowed: its own memory"
    )
    with pytest.raises(BindingError) as caught:
        op(input_tensor=ROWS, output_value_tensor=v, output_index_tensor=v.view(np.uint32))
    assert str(caught.value) == (
        "DML_OPERATOR_TOP_K: OutputIndexTensor is sharing memory with OutputValueTensor; allowed: its own memory"
    )
    assert not memory.any()


OWNED_X = {"input_tensor": tensor("FLOAT32", 1, 1, 3, 4, flags=OWNED)}
REFUSED_CALLS = [
    ({}, {}, f"InputTensor is missing; allowed: {X_ALLOWED}"),
    ({}, {"output_value_tensor": outputs()[0]}, f"InputTensor is missing; allowed: {X_ALLOWED}"),
    (
        {},
        {"input_tensor": ROWS, "x": ROWS},
        "x is not a tensor of the desc; allowed: input_tensor, output_value_tensor, output_index_tensor",
    ),
    (OWNED_X, {}, "InputTensor is not initialized; allowed: a call after initialize(input_tensor=...)"),
]


@pytest.mark.parametrize(("fields", "tensors", "message"), REFUSED_CALLS)
def test_refused_calls(fields, tensors, message):
    with pytest.raises(BindingError) as caught:
        compile_operator(top_k_desc(**fields))(**tensors)
    assert str(caught.value) == f"DML_OPERATOR_TOP_K: {message}"


def test_an_owned_tensor_is_refused_at_the_call():
    op = compile_operator(top_k_desc(**OWNED_X))
    op.initialize(input_tensor=ROWS)
    with pytest.raises(BindingError) as caught:
        op(input_tensor=ROWS)
    assert str(caught.value) == (
        "DML_OPERATOR_TOP_K: InputTensor is given to the call; "
        "allowed: initialize(input_tensor=...), as it is flagged OWNED_BY_DML"
    )


REFUSED_INITIALIZATIONS = [
    (OWNED_X, {}, f"InputTensor is missing; allowed: {X_ALLOWED}"),
    (
        OWNED_X,
        {"input_tensor": ROWS, "output_value_tensor": outputs()[0]},
        "OutputValueTensor is given to initialize; allowed: a call, as it is not flagged OWNED_BY_DML",
    ),
    (OWNED_X, {"input_tensor": ROWS, "x": ROWS}, "x is not a tensor of the desc; allowed: input_tensor"),
    ({}, {"x": ROWS}, "x is not a tensor of the desc; allowed: no tensors"),
    (
        OWNED_X,
        {"input_tensor": ROWS[..., :3]},
        f"InputTensor is an array of float32 and shape (1, 1, 3, 3); allowed: {X_ALLOWED}",
    ),
]


@pytest.mark.parametrize(("fields", "owned", "message"), REFUSED_INITIALIZATIONS)
def test_refused_initializations(fields, owned, message):
    with pytest.raises(BindingError) as caught:
        compile_operator(top_k_desc(**fields)).initialize(**owned)
    assert str(caught.value) == f"DML_OPERATOR_TOP_K: {message}"


def test_all_missing_tensors_are_named():
    with pytest.raises(BindingError) as caught:
        compile_operator(small_scatter_desc())(updates_tensor=np.zeros((1, 4), np.float32))
    assert str(caught.value) == (
        "DML_OPERATOR_SCATTER_ND: InputTensor is missing, and so is IndicesTensor; allowed: an array of float32 and "
        "shape (1, 8), or a contiguous 1-D buffer of float32 or uint8 of at least 32 bytes"
    )
    with pytest.raises(BindingError) as caught:
        compile_operator(quantized_desc())(output_scale_tensor=np.ones((1, 1, 1, 1), np.float32))
    assert (caught.value.field, caught.value.found) == (
        "ATensor",
        "missing, and so are AScaleTensor, BTensor, BScaleTensor",
    )
    owned = {"a_tensor": tensor("UINT8", 1, 2, 2, 3, flags=OWNED), "b_tensor": tensor("INT8", 1, 2, 3, 4, flags=OWNED)}
    with pytest.raises(BindingError, match="ATensor is missing, and so is BTensor; allowed: an array of uint8"):
        compile_operator(quantized_desc(**owned)).initialize()


@pytest.mark.parametrize(
    ("given", "name"), [("InputTensor", "input_tensor"), ("OutputIndexTensor", "output_index_tensor")]
)
def test_directmls_spelling_of_a_tensor_gets_a_hint(given, name):
    op, owned = compile_operator(top_k_desc()), compile_operator(top_k_desc(**OWNED_X))
    for call in (op, op.bind, owned.initialize):
        with pytest.raises(BindingError) as caught:
            call(**{given: ROWS})
        assert str(caught.value) == f"DML_OPERATOR_TOP_K: {given} is DirectML's spelling; allowed: {name} here"


@pytest.mark.parametrize("name", ["Axis", "AZeroPointTensor"])
def test_what_is_no_tensor_of_the_desc_gets_no_hint(name):
    with pytest.raises(BindingError, match=f"{name} is not a tensor of the desc"):
        compile_operator(top_k_desc() if name == "Axis" else quantized_desc())(**{name: ROWS})


def test_nothing_is_written_when_a_later_argument_does_not_fit():
    values, indices = outputs()
    with pytest.raises(BindingError):
        compile_operator(top_k1_desc())(
            output_value_tensor=values, output_index_tensor=indices, input_tensor=ROWS.astype(np.float64)
        )
    assert (values == -7).all()
    assert (indices == 77).all()
