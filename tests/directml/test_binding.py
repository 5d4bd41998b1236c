"""The binding rule, through TOP_K with K = N = 1: the value is the input, the index 0."""

import numpy as np
import pytest
from desc_builders import tensor, top_k_desc

from dmlcpu import compile_operator
from dmlcpu.errors import BindingError

X = np.arange(6, dtype=np.int32).reshape(2, 3)
ALLOWED = "an array of int32 and shape (2, 3), or a contiguous 1-D buffer of int32 or uint8 of at least 24 bytes"
MISALIGNED = np.frombuffer(b"?" + X.tobytes(), np.uint8)[1:]


def top_1(data_type="INT32", x_fields=None, out_fields=None):
    """Top-1 of (2, 3) along an axis of 3: the largest of each row."""
    return compile_operator(
        top_k_desc(
            input_tensor=tensor(data_type, 2, 3, **(x_fields or {})),
            output_value_tensor=tensor(data_type, 2, 1, **(out_fields or {})),
            output_index_tensor=tensor("UINT32", 2, 1),
            axis=1,
            k=1,
        )
    )


FORMS = {
    "the tensor": X,
    "fortran": np.asfortranarray(X),
    "negative strides": X[::-1, ::-1].copy()[::-1, ::-1],
    "flat": X.reshape(-1),
    "longer than needed": np.arange(9, dtype=np.int32),
    "bytes of an array": X.reshape(-1).view(np.uint8),
    "bytes": X.tobytes(),
    "bytearray": bytearray(X.tobytes()),
    "memoryview": memoryview(X),
    "memoryview of bytes": memoryview(X.tobytes()),
    "misaligned buffer": MISALIGNED,
    "misaligned tensor": np.ndarray((2, 3), np.int32, MISALIGNED),
    "misaligned flat": np.ndarray((6,), np.int32, MISALIGNED),
    "memmap": None,
    "read-only": np.broadcast_to(X, (2, 3)),
}


@pytest.mark.parametrize("form", FORMS)
def test_what_an_input_may_be(form, tmp_path):
    value = FORMS[form]
    if form == "memmap":
        X.tofile(tmp_path / "x.bin")
        value = np.memmap(tmp_path / "x.bin", np.int32, "r", shape=(2, 3))
    values, indices = top_1()(input_tensor=value)
    np.testing.assert_array_equal(values, [[2], [5]])
    np.testing.assert_array_equal(indices, [[2], [2]])


REFUSED_INPUTS = [
    (X.astype(np.int64), "an array of int64 and shape (2, 3)"),
    (X.astype(">i4"), "an array of >i4 and shape (2, 3)"),
    (X.T, "an array of int32 and shape (3, 2)"),
    (X[None], "an array of int32 and shape (1, 2, 3)"),
    (np.array(5, np.int32), "an array of int32 and shape ()"),
    (X.reshape(-1).astype(np.uint32), "an array of uint32 and shape (6,)"),
    (X.reshape(-1).view(np.int8), "an array of int8 and shape (24,)"),
    (X.reshape(-1)[:5], "a buffer of 20 bytes"),
    (np.arange(12, dtype=np.int32)[::2], "a buffer that is not contiguous"),
    (np.zeros(23, np.uint8), "a buffer of 23 bytes"),
    (np.zeros(48, np.uint8)[::2], "a buffer that is not contiguous"),
    (np.zeros((2, 12), np.uint8), "an array of uint8 and shape (2, 12)"),
    (b"", "a buffer of 0 bytes"),
    (bytes(23), "a buffer of 23 bytes"),
    (bytearray(23), "a buffer of 23 bytes"),
    (memoryview(bytes(48))[::2], "a buffer that is not contiguous"),
]


@pytest.mark.parametrize(("value", "found"), REFUSED_INPUTS)
def test_what_an_input_may_not_be(value, found):
    with pytest.raises(BindingError) as caught:
        top_1()(input_tensor=value)
    assert str(caught.value) == f"DML_OPERATOR_TOP_K: InputTensor is {found}; allowed: {ALLOWED}"


@pytest.mark.parametrize(
    ("value", "kind"), [([[0, 1, 2], [3, 4, 5]], "list"), (None, "NoneType"), (5, "int"), (np.int32(5), "int32")]
)
def test_what_is_no_array_is_a_type_error(value, kind):
    with pytest.raises(TypeError) as caught:
        top_1()(input_tensor=value)
    assert str(caught.value) == f"DML_OPERATOR_TOP_K: InputTensor is {kind}; allowed: {ALLOWED}"


OUTPUT_FORMS = {
    "the tensor": lambda memory: memory[:8].view(np.int32).reshape(2, 1),
    "strided": lambda memory: memory[:16].view(np.int32).reshape(2, 2)[:, :1],
    "backwards": lambda memory: memory[:8].view(np.int32).reshape(2, 1)[::-1],
    "flat": lambda memory: memory.view(np.int32),
    "bytes of an array": lambda memory: memory,
    "bytearray": lambda memory: bytearray(memory),
    "memoryview": lambda memory: memoryview(memory),
}


@pytest.mark.parametrize("form", OUTPUT_FORMS)
def test_what_an_output_may_be(form):
    value = OUTPUT_FORMS[form](np.full(32, 255, np.uint8))
    result = top_1()(input_tensor=X, output_value_tensor=value).values
    np.testing.assert_array_equal(result, [[2], [5]])
    assert np.shares_memory(result, np.asarray(memoryview(value)))


Y_ALLOWED = "an array of int32 and shape (2, 1), or a contiguous 1-D buffer of int32 or uint8 of at least 8 bytes"
READ_ONLY = "OutputValueTensor is read-only; allowed: an array that can be written to"
UNALIGNED = "OutputValueTensor is not aligned to its element size; allowed: an aligned array"
REFUSED_OUTPUTS = [
    (bytes(8), READ_ONLY),
    (memoryview(bytes(8)), READ_ONLY),
    (np.broadcast_to(np.zeros((2, 1), np.int32), (2, 1)), READ_ONLY),
    (np.zeros(9, np.uint8)[1:], UNALIGNED),
    (np.ndarray((2, 1), np.int32, np.zeros(9, np.uint8), offset=1), UNALIGNED),
    (
        np.ndarray((2, 1), np.int32, np.zeros(4, np.uint8), strides=(0, 4)),
        "OutputValueTensor is laid out so that elements overlap; allowed: an array whose elements are apart",
    ),
    (np.zeros((2, 1)), f"OutputValueTensor is an array of float64 and shape (2, 1); allowed: {Y_ALLOWED}"),
    (np.zeros(7, np.uint8), f"OutputValueTensor is a buffer of 7 bytes; allowed: {Y_ALLOWED}"),
]


@pytest.mark.parametrize(("value", "message"), REFUSED_OUTPUTS)
def test_what_an_output_may_not_be(value, message):
    with pytest.raises(BindingError) as caught:
        top_1()(input_tensor=X, output_value_tensor=value)
    assert str(caught.value) == f"DML_OPERATOR_TOP_K: {message}"


def test_an_output_that_is_no_array_is_a_type_error():
    with pytest.raises(TypeError) as caught:
        top_1()(input_tensor=X, output_value_tensor=[0, 0])
    assert str(caught.value) == f"DML_OPERATOR_TOP_K: OutputValueTensor is list; allowed: {Y_ALLOWED}"


def test_an_array_of_the_sizes_is_the_tensor_even_if_it_could_be_the_buffer():
    # In one dimension both forms look alike; the array's own strides count.
    op = compile_operator(
        top_k_desc(
            input_tensor=tensor("INT32", 3, strides=(2,)),
            output_value_tensor=tensor("INT32", 1),
            output_index_tensor=tensor("UINT32", 1),
            axis=0,
            k=1,
        )
    )
    assert op(input_tensor=np.array([1, 2, 0], np.int32)).indices[0] == 1
    assert op(input_tensor=np.array([1, 9, 0, 9, 3], np.int32)).indices[0] == 2


def test_the_padding_to_four_bytes_need_not_be_there_unless_a_larger_size_is_asked_for():
    x = bytes([1, 2, 3, 4, 6, 5])
    op = top_1("UINT8")
    np.testing.assert_array_equal(op(input_tensor=x).values, [[3], [6]])
    op = top_1("UINT8", {"total_tensor_size_in_bytes": 8})  # what is computed by default
    np.testing.assert_array_equal(op(input_tensor=x).values, [[3], [6]])
    op = top_1("UINT8", {"total_tensor_size_in_bytes": 12})
    with pytest.raises(BindingError) as caught:
        op(input_tensor=x)
    assert str(caught.value) == (
        "DML_OPERATOR_TOP_K: InputTensor is a buffer of 6 bytes; "
        "allowed: an array of uint8 and shape (2, 3), or a contiguous 1-D buffer of uint8 of at least 12 bytes"
    )
    np.testing.assert_array_equal(op(input_tensor=x + bytes(6)).values, [[3], [6]])


def test_a_strided_buffer_has_to_reach_the_last_element_only():
    op = top_1("INT32", {"strides": (4, 1)}, {"strides": (3, 1)})
    buffer = np.array([1, 2, 3, 99, 6, 5, 4], np.int32)
    out = np.full(4, -7, np.int32)
    values, indices = op(input_tensor=buffer, output_value_tensor=out)
    np.testing.assert_array_equal(values, [[3], [6]])
    np.testing.assert_array_equal(indices, [[2], [0]])
    np.testing.assert_array_equal(out, [3, -7, -7, 6])
    with pytest.raises(BindingError) as caught:
        op(input_tensor=buffer[:6])
    assert caught.value.found == "a buffer of 24 bytes"


def test_masked_arrays_are_refused():
    with pytest.raises(TypeError, match=r"^DML_OPERATOR_TOP_K: InputTensor is a masked array; allowed: "):
        top_1()(input_tensor=np.ma.masked_array(X))
