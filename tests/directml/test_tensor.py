import copy
import itertools
import pickle
from dataclasses import FrozenInstanceError, asdict, replace

import ml_dtypes
import numpy as np
import pytest
from desc_builders import OWNED, tensor
from hypothesis import given, strategies as st

import dmlcpu
from dmlcpu import TensorDataType, TensorDesc, TensorFlags
from dmlcpu.errors import InvalidDescriptorError, UnsupportedError


def test_defaults():
    desc = TensorDesc(TensorDataType.FLOAT32, sizes=(1, 1, 3, 4))
    assert desc.data_type is TensorDataType.FLOAT32
    assert desc.flags is TensorFlags.NONE
    assert desc.sizes == (1, 1, 3, 4)
    assert desc.strides is None
    assert desc.total_tensor_size_in_bytes == 48
    assert desc.guaranteed_base_offset_alignment == 0
    assert desc.dimension_count == 4
    assert desc.dtype == np.float32
    assert desc.byte_strides is None


def test_any_sequence_of_any_integers_becomes_a_tuple_of_ints():
    desc = TensorDesc(TensorDataType.INT8, sizes=np.array([2, 3]), strides=[np.uint8(3), 1])
    assert (desc.sizes, desc.strides) == ((2, 3), (3, 1))
    assert {type(n) for n in desc.sizes + desc.strides} == {int}
    assert desc == tensor("INT8", 2, 3, strides=(3, 1))


def test_everything_but_the_type_goes_by_keyword():
    with pytest.raises(TypeError):
        TensorDesc(TensorDataType.INT8, TensorFlags.NONE, sizes=(1,))


def test_frozen_and_slotted():
    desc = tensor("INT8", 2)
    with pytest.raises(FrozenInstanceError):
        desc.sizes = (3,)
    with pytest.raises((AttributeError, TypeError)):  # a slotted class has no place for it
        object.__setattr__(desc, "name", "x")
    assert not hasattr(desc, "__dict__")


def test_equality_hash_and_pickle():
    desc = tensor("FLOAT16", 2, 3, strides=(4, 1), flags=OWNED)
    assert pickle.loads(pickle.dumps(desc)) == desc
    assert hash(desc) == hash(tensor("FLOAT16", 2, 3, strides=(4, 1), flags=OWNED))
    assert desc != tensor("FLOAT16", 2, 3, strides=(4, 1))
    # What is asked for by default and what is given explicitly is one tensor.
    assert tensor("INT8", 2, total_tensor_size_in_bytes=4) == tensor("INT8", 2)


EXPLICIT = {"total_tensor_size_in_bytes": 64}


def test_a_computed_size_is_computed_again():
    packed = tensor("FLOAT32", 2, 3)
    assert replace(packed, sizes=(1, 2)).total_tensor_size_in_bytes == 8
    assert replace(packed, sizes=(9, 9)).total_tensor_size_in_bytes == 324
    assert replace(packed, strides=(5, 1)).total_tensor_size_in_bytes == 32
    assert replace(packed, data_type=TensorDataType.INT8) == tensor("INT8", 2, 3)
    assert replace(replace(packed, sizes=(9, 9)), sizes=(1,)) == tensor("FLOAT32", 1)


def test_a_given_size_is_kept_and_checked():
    given = tensor("FLOAT32", 2, 3, **EXPLICIT)
    assert replace(given, sizes=(1, 2)).total_tensor_size_in_bytes == 64
    assert replace(replace(given, sizes=(4, 4)), sizes=(1,)).total_tensor_size_in_bytes == 64
    with pytest.raises(InvalidDescriptorError, match="TotalTensorSizeInBytes is 64; allowed: 324 to"):
        replace(given, sizes=(9, 9))
    least = tensor("FLOAT32", 2, 3, total_tensor_size_in_bytes=24)  # it is given, too
    assert replace(least, sizes=(1, 2)).total_tensor_size_in_bytes == 24
    with pytest.raises(InvalidDescriptorError, match="TotalTensorSizeInBytes is 24; allowed: 324 to"):
        replace(least, sizes=(9, 9))


def test_a_size_can_be_given_and_taken_back():
    given = replace(tensor("FLOAT32", 2, 3), **EXPLICIT)
    assert given == tensor("FLOAT32", 2, 3, **EXPLICIT)
    computed = replace(given, total_tensor_size_in_bytes=None)
    assert computed == tensor("FLOAT32", 2, 3)
    assert replace(computed, sizes=(1, 2)) == tensor("FLOAT32", 1, 2)
    with pytest.raises(InvalidDescriptorError, match="TotalTensorSizeInBytes is 23; allowed: 24 to"):
        replace(computed, total_tensor_size_in_bytes=23)


def test_the_size_that_was_computed_is_no_other():
    """`dataclasses.replace` hands it on, named or not; a new tensor takes it."""
    computed = tensor("FLOAT32", 2, 3)
    assert replace(computed, sizes=(1, 2), total_tensor_size_in_bytes=24) == tensor("FLOAT32", 1, 2)
    assert tensor("FLOAT32", 1, 2, total_tensor_size_in_bytes=24).total_tensor_size_in_bytes == 24


COPIES = [copy.copy, copy.deepcopy, lambda desc: TensorDesc(**asdict(desc))]
COPIES += [
    lambda desc, each=each: pickle.loads(pickle.dumps(desc, each)) for each in range(pickle.HIGHEST_PROTOCOL + 1)
]


@pytest.mark.parametrize("again", COPIES)
def test_copies_know_whether_the_size_was_given(again):
    computed, given = tensor("FLOAT32", 2, 3), tensor("FLOAT32", 2, 3, total_tensor_size_in_bytes=24)
    assert again(computed) == again(given) == computed
    assert hash(again(computed)) == hash(again(given)) == hash(computed)
    assert replace(again(computed), sizes=(1,)).total_tensor_size_in_bytes == 4
    assert replace(again(given), sizes=(1,)).total_tensor_size_in_bytes == 24


WRITTEN = [
    (tensor("FLOAT32", 1, 2), "TensorDesc(TensorDataType.FLOAT32, sizes=(1, 2))"),
    (
        tensor("INT4", 8, total_tensor_size_in_bytes=4),
        "TensorDesc(TensorDataType.INT4, sizes=(8,), total_tensor_size_in_bytes=4)",
    ),
    (
        tensor("INT8", 2, 3, flags=OWNED, strides=(0, 1), guaranteed_base_offset_alignment=16, **EXPLICIT),
        "TensorDesc(TensorDataType.INT8, flags=TensorFlags.OWNED_BY_DML, sizes=(2, 3), strides=(0, 1), "
        "total_tensor_size_in_bytes=64, guaranteed_base_offset_alignment=16)",
    ),
]


@pytest.mark.parametrize(("desc", "text"), WRITTEN)
def test_the_repr_is_the_python_that_makes_it(desc, text):
    assert repr(desc) == text
    again = eval(text, {name: getattr(dmlcpu, name) for name in dmlcpu.__all__})
    assert again == desc
    assert repr(again) == text


def test_directmls_spelling_of_a_field_gets_a_hint():
    with pytest.raises(TypeError) as caught:
        TensorDesc(TensorDataType.INT8, sizes=(2,), TotalTensorSizeInBytes=4)
    assert str(caught.value) == (
        "TensorDesc: TotalTensorSizeInBytes is DirectML's spelling; allowed: total_tensor_size_in_bytes here"
    )
    with pytest.raises(TypeError, match="unexpected keyword argument 'TotalSize'"):
        TensorDesc(TensorDataType.INT8, sizes=(2,), TotalSize=4)


ARRAYS = [
    (np.zeros((2, 3), np.int8), "INT8", (2, 3)),
    (np.zeros((2, 3), np.float16).T, "FLOAT16", (3, 2)),
    (np.zeros(3, ">u4")[::-1], "UINT32", (3,)),
    ([[1.5, 2.5]], "FLOAT64", (1, 2)),
    (np.zeros(5, ml_dtypes.int4), "INT4", (5,)),
]


@pytest.mark.parametrize(("array", "data_type", "sizes"), ARRAYS)
def test_the_desc_of_an_array(array, data_type, sizes):
    assert TensorDesc.of(array) == tensor(data_type, *sizes)
    assert TensorDesc.of(array, flags=OWNED) == tensor(data_type, *sizes, flags=OWNED)
    assert replace(TensorDesc.of(array), sizes=(7,)) == tensor(data_type, 7)


@pytest.mark.parametrize(
    ("array", "error", "message"),
    [
        (np.zeros(2, bool), UnsupportedError, "TensorDesc.of: array.dtype is bool; allowed: float32, float16, uint32"),
        (np.zeros(2, ml_dtypes.bfloat16), UnsupportedError, "TensorDesc.of: array.dtype is bfloat16; allowed: float32"),
        (np.zeros(2, object), UnsupportedError, "TensorDesc.of: array.dtype is object; allowed: float32"),
        (np.float32(1), InvalidDescriptorError, "DML_BUFFER_TENSOR_DESC: DimensionCount is 0; allowed: 1 to 8"),
        (np.zeros((2, 0)), InvalidDescriptorError, "DML_BUFFER_TENSOR_DESC: Sizes[1] is 0; allowed: 1 to"),
        (np.ma.zeros(2), TypeError, "TensorDesc.of: array is a masked array; allowed: an array without a mask"),
    ],
)
def test_arrays_that_no_tensor_describes(array, error, message):
    with pytest.raises(error) as caught:
        TensorDesc.of(array)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("data_type", "sizes", "strides", "extent", "total"),
    [
        ("FLOAT32", (1, 1, 3, 4), None, 48, 48),
        ("FLOAT16", (3, 3), None, 18, 20),
        ("UINT8", (1,), None, 1, 4),
        ("INT64", (1,), None, 8, 8),
        ("FLOAT32", (2, 3), (4, 1), 28, 28),
        ("INT8", (2, 3), (4, 1), 7, 8),
        ("INT16", (4, 5), (0, 1), 10, 12),
        ("INT16", (4, 5), (0, 0), 2, 4),
        ("FLOAT64", (3,), (2**32 - 1,), 8 * (2 * (2**32 - 1) + 1), 8 * (2 * (2**32 - 1) + 1)),
        ("UINT4", (3,), None, 2, 4),
        ("INT4", (9,), None, 5, 8),
    ],
)
def test_sizes_in_bytes(data_type, sizes, strides, extent, total):
    desc = tensor(data_type, *sizes, strides=strides)
    assert desc.extent_in_bytes == extent
    assert desc.total_tensor_size_in_bytes == desc.minimum_size_in_bytes == total


def test_what_is_just_allowed():
    tensor("INT8", *[1] * 8)
    tensor("INT8", 2**32 - 1)
    tensor("INT8", 2**16, 2**16 - 1)
    tensor("INT8", 3, total_tensor_size_in_bytes=2**64 - 1)
    for alignment in (4, 8, 2**31):
        tensor("FLOAT32", 3, guaranteed_base_offset_alignment=alignment)
    tensor("INT4", 3, guaranteed_base_offset_alignment=1)


REFUSED = [
    (
        {"data_type": TensorDataType.UNKNOWN},
        "DataType is UNKNOWN; allowed: FLOAT32, FLOAT16, UINT32, UINT16, UINT8, "
        "INT32, INT16, INT8, FLOAT64, UINT64, INT64, UINT4, INT4",
    ),
    ({"sizes": ()}, "DimensionCount is 0; allowed: 1 to 8"),
    ({"sizes": (1,) * 9}, "DimensionCount is 9; allowed: 1 to 8"),
    ({"sizes": (3, 0)}, "Sizes[1] is 0; allowed: 1 to 4294967295"),
    ({"sizes": (-1, 3)}, "Sizes[0] is -1; allowed: 1 to 4294967295"),
    ({"sizes": (1, 2**32)}, "Sizes[1] is 4294967296; allowed: 1 to 4294967295"),
    ({"sizes": (2**16, 2**16)}, "Sizes is (65536, 65536), 4294967296 elements; allowed: at most 4294967295 elements"),
    ({"strides": (1,)}, "Strides is (1,), 1 strides; allowed: 2, one for each size"),
    ({"strides": ()}, "Strides is (), 0 strides; allowed: 2, one for each size"),
    ({"strides": (1, -1)}, "Strides[1] is -1; allowed: 0 to 4294967295"),
    ({"strides": (2**32, 1)}, "Strides[0] is 4294967296; allowed: 0 to 4294967295"),
    ({"total_tensor_size_in_bytes": 23}, "TotalTensorSizeInBytes is 23; allowed: 24 to 18446744073709551615"),
    ({"total_tensor_size_in_bytes": 0}, "TotalTensorSizeInBytes is 0; allowed: 24 to 18446744073709551615"),
    (
        {"total_tensor_size_in_bytes": 24, "strides": (4, 1)},
        "TotalTensorSizeInBytes is 24; allowed: 28 to 18446744073709551615",
    ),
    *[
        (
            {"guaranteed_base_offset_alignment": alignment},
            f"GuaranteedBaseOffsetAlignment is {alignment}; allowed: 0, or a power of two from 4 to 2147483648",
        )
        for alignment in (1, 2, 3, 12, -4, 2**32)
    ],
]


@pytest.mark.parametrize(("fields", "message"), REFUSED)
def test_contradictions_are_refused(fields, message):
    fields = {"data_type": TensorDataType.FLOAT32, "sizes": (2, 3), **fields}
    with pytest.raises(InvalidDescriptorError) as caught:
        TensorDesc(**fields)
    assert str(caught.value) == f"DML_BUFFER_TENSOR_DESC: {message}"
    assert message.startswith(f"{caught.value.field} is {caught.value.found}; allowed: {caught.value.allowed}")


WRONG_KINDS = [
    ({"data_type": 1}, "DataType is 1; allowed: TensorDataType.FLOAT32"),
    ({"data_type": 0}, "DataType is 0; allowed: TensorDataType"),  # UNKNOWN, which no tensor has
    ({"data_type": "INT8"}, "DataType is 'INT8'; allowed: TensorDataType.INT8"),
    ({"data_type": np.float32}, "DataType is <class 'numpy.float32'>; allowed: TensorDataType"),
    ({"flags": 0}, "Flags is 0; allowed: TensorFlags.NONE"),
    ({"sizes": 3}, "Sizes is 3; allowed: a sequence of integers"),
    ({"sizes": None}, "Sizes is None; allowed: a sequence of integers"),
    ({"sizes": (2, 3.0)}, "Sizes[1] is 3.0; allowed: an integer"),
    ({"sizes": (True, 3)}, "Sizes[0] is True; allowed: an integer"),
    ({"sizes": "23"}, "Sizes[0] is '2'; allowed: an integer"),
    ({"strides": 1}, "Strides is 1; allowed: a sequence of integers"),
    ({"strides": (None, 1)}, "Strides[0] is None; allowed: an integer"),
    ({"total_tensor_size_in_bytes": 24.0}, "TotalTensorSizeInBytes is 24.0; allowed: an integer"),
    ({"guaranteed_base_offset_alignment": None}, "GuaranteedBaseOffsetAlignment is None; allowed: an integer"),
]


@pytest.mark.parametrize(("fields", "message"), WRONG_KINDS)
def test_wrong_kinds_are_type_errors(fields, message):
    fields = {"data_type": TensorDataType.FLOAT32, "sizes": (2, 3), **fields}
    with pytest.raises(TypeError) as caught:
        TensorDesc(**fields)
    assert str(caught.value) == f"DML_BUFFER_TENSOR_DESC: {message}"


@pytest.mark.parametrize("buffer_type", ["int16", "uint8", "bytes", "bytearray", "memoryview"])
@pytest.mark.parametrize(
    ("sizes", "strides", "expected"),
    [
        ((2, 3), None, [[0, 1, 2], [3, 4, 5]]),
        ((2, 3), (4, 1), [[0, 1, 2], [4, 5, 6]]),
        ((2, 3), (1, 2), [[0, 2, 4], [1, 3, 5]]),
        ((2, 3), (0, 1), [[0, 1, 2], [0, 1, 2]]),
        ((3,), (0,), [0, 0, 0]),
    ],
)
def test_view_copies_nothing(buffer_type, sizes, strides, expected):
    flat = np.arange(8, dtype=np.int16)
    buffers = {
        "int16": flat,
        "uint8": flat.view(np.uint8),
        "bytes": flat.tobytes(),
        "bytearray": bytearray(flat.tobytes()),
        "memoryview": memoryview(flat),
    }
    buffer = buffers[buffer_type]
    view = tensor("INT16", *sizes, strides=strides).view(buffer)
    assert view.dtype == np.int16
    np.testing.assert_array_equal(view, expected)
    assert np.shares_memory(view, np.frombuffer(buffer, np.uint8))
    assert view.flags.writeable == (buffer_type != "bytes")


OVERLAPPING = [((2,), (0,)), ((2, 3), (1, 1)), ((3, 3), (2, 1)), ((3, 2, 4), (8, 4, 0)), ((5, 7), (6, 4))]
APART = [
    ((2, 3), None),
    ((2, 3), (3, 1)),
    ((2, 3), (1, 2)),
    ((2, 3), (3, 2)),  # not nested, but apart: 0 2 4, 3 5 7
    ((1, 3), (0, 1)),
    ((1,), (0,)),
    ((65535, 65537), (65537, 1)),
    ((2**16, 2), (2, 2**17 - 1)),
]


@pytest.mark.parametrize(("sizes", "strides"), OVERLAPPING)
def test_elements_that_share_memory(sizes, strides):
    assert tensor("INT8", *sizes, strides=strides).elements_overlap() is True


@pytest.mark.parametrize(("sizes", "strides"), APART)
def test_elements_that_do_not_share_memory(sizes, strides):
    assert tensor("INT8", *sizes, strides=strides).elements_overlap() is False


def test_elements_overlap_if_the_search_exhausts_its_budget():
    strides = (3802099646, 3953824853, 2321362740, 3259522618, 4234527205, 3886662520, 3450201865, 4194451972)
    assert tensor("INT8", *[5] * 8, strides=strides).elements_overlap() is True


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 12)), min_size=1, max_size=4))
def test_overlap_is_exact(dimensions):
    sizes, strides = zip(*dimensions, strict=True)
    places = [
        sum(i * stride for i, stride in zip(index, strides, strict=True))
        for index in itertools.product(*map(range, sizes))
    ]
    desc = tensor("INT8", *sizes, strides=strides)
    assert desc.elements_overlap() == (len(set(places)) < len(places))
    assert desc.extent_in_bytes == max(places) + 1
