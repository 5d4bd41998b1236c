"""Compiled operators on bound memory; what they share with bound functions is tested beside those."""

import gc

import numpy as np
import pytest
from desc_builders import OWNED, ROWS, check_top_k, outputs, small_scatter_desc, tensor, to_float_desc, top_k1_desc
from toy_descs import sums

from dmlcpu import QuantizedLinearMatrixMultiplyOperatorDesc, TensorFlags, compile_operator
from dmlcpu.errors import BindingError, DmlError, IndexOutOfRangeError
from dmlcpu.operators.scatter_nd.plan import prepare
from dmlcpu.runtime.threads import use_budget

FORMS = {
    "packed": np.copy,
    "buffer": lambda x: x.reshape(-1).copy(),
    "bytes": lambda x: np.frombuffer(bytearray(x.tobytes()), np.uint8),
    "bytearray": lambda x: bytearray(x.tobytes()),
    "strided": lambda x: np.repeat(x, 2, axis=-1)[..., ::2],
    "misaligned": lambda x: np.frombuffer(bytearray(b"?" + x.tobytes()), np.uint8)[1:].view(x.dtype).reshape(x.shape),
}


def set_to(given, value, like):
    """Write numbers to an array or buffer, whatever its form."""
    if isinstance(given, bytearray):
        given[:] = value.astype(like.dtype).tobytes()
    elif given.dtype != like.dtype:
        given[...] = np.frombuffer(value.astype(like.dtype).tobytes(), given.dtype)
    else:
        given[...] = value.reshape(given.shape)


@pytest.mark.parametrize("form", FORMS)
def test_each_call_reads_the_values_of_that_time(form):
    x = FORMS[form](np.zeros_like(ROWS))
    run = compile_operator(top_k1_desc()).bind(input_tensor=x)
    first = run()
    assert first is run()
    set_to(x, ROWS, ROWS)
    check_top_k(run())
    check_top_k(first)


@pytest.mark.parametrize("form", FORMS)
def test_given_outputs_are_written_and_returned(form):
    values, indices = outputs()
    given = values if form == "misaligned" else FORMS[form](values)  # a misaligned output is refused
    run = compile_operator(top_k1_desc()).bind(
        input_tensor=ROWS.copy(), output_value_tensor=given, output_index_tensor=indices
    )
    assert run.outputs.indices is indices
    assert np.shares_memory(run.outputs.values, np.frombuffer(given, np.uint8) if form == "bytearray" else given)
    check_top_k(run())


def scatter():
    x = np.array([[1, 2, 3, 4, 5, 6, 7, 8]], np.float32)
    return x, np.array([[4], [3], [1], [7]], np.int32), np.array([[9, 10, 11, 12]], np.float32)


@pytest.mark.parametrize("in_place", [False, True])
def test_an_index_that_leaves_its_range_is_refused_before_anything_is_written(in_place):
    x, indices, updates = scatter()
    out = x if in_place else np.full_like(x, -1)
    op = compile_operator(small_scatter_desc())
    run = op.bind(input_tensor=x, indices_tensor=indices, updates_tensor=updates, output_tensor=out)
    indices[2] = 8
    before = out.copy()
    with pytest.raises(IndexOutOfRangeError, match=r"DML_OPERATOR_SCATTER_ND: IndicesTensor\[2, 0\] is 8;"):
        run()
    np.testing.assert_array_equal(out, before)
    indices[2] = 1
    assert run() is out
    np.testing.assert_array_equal(out, [[1, 11, 3, 10, 9, 6, 7, 12]])


def test_a_scatter_in_place_is_planned_once():
    x, indices, updates = scatter()
    views = (lambda x: x, lambda x: x[:], lambda x: x.reshape(-1))
    for out in [view(x) for view in views]:
        run = compile_operator(small_scatter_desc()).bind(
            input_tensor=x, indices_tensor=indices, updates_tensor=updates, output_tensor=out
        )
        looked_up = prepare.cache_info()
        for number in (0, 5):
            x[...] = number
            run()
            np.testing.assert_array_equal(x, [[number, 11, number, 10, 9, number, number, 12]])
        assert prepare.cache_info() == looked_up


SCALE = tensor("FLOAT32", 1, 1, 1, 1)


def product(b_flags):
    return compile_operator(
        QuantizedLinearMatrixMultiplyOperatorDesc(
            a_tensor=tensor("UINT8", 1, 1, 2, 2),
            a_scale_tensor=SCALE,
            b_tensor=tensor("INT8", 1, 1, 2, 2, flags=b_flags),
            b_scale_tensor=tensor("FLOAT32", 1, 1, 1, 2),
            output_scale_tensor=SCALE,
            output_tensor=tensor("UINT8", 1, 1, 2, 2),
        )
    )


def operands():
    one = np.ones((1, 1, 1, 1), np.float32)
    return {
        "a_tensor": np.array([[[[1, 2], [3, 4]]]], np.uint8),
        "a_scale_tensor": one,
        "b_scale_tensor": np.array([[[[1, 2]]]], np.float32),
        "output_scale_tensor": one.copy(),
    }


def test_owned_tensors_are_those_of_the_time_of_binding():
    op, given = product(OWNED), operands()
    with pytest.raises(BindingError, match="BTensor is not initialized"):
        op.bind(**given)
    op.initialize(b_tensor=np.array([[[[1, 0], [0, 1]]]], np.int8))
    run = op.bind(**given)
    op.initialize(b_tensor=np.zeros((1, 1, 2, 2), np.int8))
    assert run().tolist() == [[[[1, 4], [3, 8]]]]
    assert op.bind(**given)().tolist() == [[[[0, 0], [0, 0]]]]


@pytest.mark.parametrize("name", ["a_scale_tensor", "b_scale_tensor"])
@pytest.mark.parametrize("layout", [np.copy, lambda x: np.repeat(x, 2, axis=-1)[..., ::2]])
def test_a_scale_that_became_bad_is_refused(name, layout):
    op, given = product(TensorFlags.NONE), operands()
    given[name] = layout(given[name])
    out = np.full((1, 1, 2, 2), 77, np.uint8)
    b = np.array([[[[1, 0], [0, 1]]]], np.int8)
    run = op.bind(**given, b_tensor=b, output_tensor=out)
    given[name][..., -1] = np.nan
    with pytest.raises(DmlError, match=rf"DML_OPERATOR_QUANTIZED_LINEAR_MATRIX_MULTIPLY: {'AB'[name[0] == 'b']}Scale"):
        run()
    assert (out == 77).all()
    given[name][..., -1] = 2
    b[...] = 1
    run()
    assert (out != 77).all()


def test_a_tensor_that_is_converted_is_read_each_time_though_it_lies_among_one_that_is_not():
    sizes = {"a_scale_tensor": (1, 1, 2, 1), "b_scale_tensor": (1, 1, 1, 4), "output_tensor": (1, 2, 2, 4)}
    op = compile_operator(to_float_desc(**{name: tensor("FLOAT16", *each) for name, each in sizes.items()}))
    records = np.zeros(4, [("a", "u1", 4), ("a_scale", "f2"), ("b_scale", "f2")])
    records[...] = 3, 1, 1
    a, b = records["a"].reshape(1, 2, 2, 4)[..., :3], np.ones((1, 2, 3, 4), np.int8)
    a_scale, b_scale = records["a_scale"][:2].reshape(1, 1, 2, 1), records["b_scale"].reshape(1, 1, 1, 4)
    run = op.bind(a_tensor=a, a_scale_tensor=a_scale, b_tensor=b, b_scale_tensor=b_scale)
    assert (run() == 9).all()
    for name, value, product in (("a_scale", 2, 18), ("b_scale", 4, 72), ("a", 1, 24)):
        records[name] = value
        assert (run() == product).all()


def test_operators_without_kernels_are_bound_as_well():
    a, bias = np.ones((2, 3), np.float32), np.zeros((2, 3), np.float32)
    run = compile_operator(sums()).bind(input_tensors=[a, a + 1], bias_tensor=bias)
    assert (run().sums == 23).all()
    a[...] = 2
    assert (run().sums == 26).all()
    assert run().greatest is None


def test_what_a_call_refuses_is_refused_when_it_is_bound():
    op = compile_operator(top_k1_desc())
    _, indices = outputs()
    for bad, message in (
        ({}, "InputTensor is missing"),
        ({"input_tensor": ROWS[..., 1:]}, "InputTensor is an array of float32"),
        ({"input_tensor": ROWS, "axis": 3}, "axis is not a tensor of the desc"),
        ({"input_tensor": ROWS, "output_value_tensor": ROWS[..., :2]}, "OutputValueTensor is sharing memory"),
        ({"input_tensor": ROWS, "output_index_tensor": np.broadcast_to(indices[:1], indices.shape)}, "read-only"),
    ):
        with pytest.raises(BindingError, match=message):
            op.bind(**bad)


def test_memory_is_held_and_not_resized():
    room = bytearray(ROWS.tobytes())
    run = compile_operator(top_k1_desc()).bind(input_tensor=room)
    with pytest.raises(BufferError):
        room.clear()
    check_top_k(run())
    del run
    gc.collect()
    room.clear()


def test_the_number_of_threads_may_change_between_calls():
    run = compile_operator(top_k1_desc()).bind(input_tensor=ROWS.copy())
    for threads in (1, 2, 1):
        with use_budget(threads, grain=1):
            check_top_k(run())
