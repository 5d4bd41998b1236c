"""Packed matrices that are pickled; what they hold is tested with the products and the packing kernel."""

import dataclasses
import pickle
import pickletools

import numpy as np
import pytest

import dmlcpu
from dmlcpu.errors import UnsupportedError
from dmlcpu.products.packing import PackedMatrix, unpack

WEIGHTS = np.arange(70 * 33).astype(np.int8).reshape(70, 33)


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_pickle_names_the_class_by_its_public_path_and_nothing_else_of_the_package(protocol):
    operations = list(pickletools.genops(pickle.dumps(dmlcpu.pack_b(WEIGHTS), protocol)))
    strings = [argument for operation, argument, _ in operations if isinstance(argument, str)]
    assert {text.replace(" ", ".") for text in strings if "dmlcpu" in text} <= {"dmlcpu", "dmlcpu.PackedMatrix"}
    assert "_unpickle" not in strings


def test_unpickled_arrays_are_aligned_and_writable_even_over_read_only_buffers():
    buffers = []
    data = pickle.dumps(dmlcpu.pack_b(WEIGHTS), 5, buffer_callback=buffers.append)
    again = pickle.loads(data, buffers=[bytes(buffer) for buffer in buffers])
    for array in (again.panels, again.sums):
        assert array.ctypes.data % 64 == 0
        assert array.flags.writeable
    np.testing.assert_array_equal(unpack(again), WEIGHTS)


def test_pickle_keeps_the_number_of_saturating_pairs():
    packed = dataclasses.replace(dmlcpu.pack_b(WEIGHTS), saturating=5)
    assert pickle.loads(pickle.dumps(packed)).saturating == 5


def test_pickle_of_an_earlier_version_has_no_such_number():
    class Earlier:
        def __reduce__(self):
            return PackedMatrix, PackedMatrix.__reduce__(dmlcpu.pack_b(WEIGHTS))[1][:5]

    again = pickle.loads(pickle.dumps(Earlier()))
    assert again.saturating is None
    np.testing.assert_array_equal(unpack(again), WEIGHTS)


def test_another_layout_is_refused():
    packed = dmlcpu.pack_b(WEIGHTS)
    with pytest.raises(UnsupportedError, match="pack_b: layout is s8_k8; allowed: s8_k4_n32"):
        PackedMatrix(packed.shape, packed.dtype, "s8_k8", packed.panels, packed.sums)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("shape", [(1, 64), (31, 200), (32, 63), (33, 64), (100, 65), (64, 700)])
def test_contiguous_columns_are_packed_like_contiguous_rows(shape, dtype):
    limits = np.iinfo(dtype)
    vectors = np.random.default_rng(0).integers(limits.min, limits.max, shape, dtype, endpoint=True)
    packed, right = dmlcpu.pack_b(vectors.T), dmlcpu.pack_b(np.ascontiguousarray(vectors.T))
    assert packed.panels.tobytes() == right.panels.tobytes()
    assert packed.sums.tolist() == right.sums.tolist()
    assert packed.saturating == right.saturating
