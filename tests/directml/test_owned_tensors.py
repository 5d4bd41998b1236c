"""Operators with owned tensors."""

import copy
import pickle
from dataclasses import replace

import numpy as np
import pytest
from desc_builders import OWNED, quantized_desc, tensor

from dmlcpu import compile_operator, reference
from dmlcpu.errors import BindingError, DmlError
from dmlcpu.kernels import registry


def owned_b_desc():
    return quantized_desc(
        b_tensor=tensor("INT8", 1, 2, 3, 4, flags=OWNED), b_scale_tensor=tensor("FLOAT32", 4, flags=OWNED)
    )


def quantized_arrays():
    rng = np.random.default_rng(5)
    return {
        "a_tensor": rng.integers(0, 256, (1, 2, 2, 3), np.uint8),
        "a_scale_tensor": rng.uniform(0.1, 1, (1, 1, 2, 1)).astype(np.float32),
        "b_tensor": rng.integers(-128, 128, (1, 2, 3, 4), np.int8),
        "b_scale_tensor": rng.uniform(0.1, 1, 4).astype(np.float32),
        "output_scale_tensor": np.full((1, 1, 1, 1), 150, np.float32),
    }


def quantized_expected(arrays):
    a, a_scale, b, b_scale, y_scale = arrays.values()
    return reference.quantized_matmul(a, a_scale, None, b, b_scale, None, y_scale, None, out_dtype=np.int8)


def test_an_owned_matrix_is_packed_and_its_scales_kept():
    arrays = quantized_arrays()
    expected = quantized_expected(arrays)
    assert len(np.unique(expected)) > 4
    op = compile_operator(owned_b_desc())
    owned = {name: arrays.pop(name).copy() for name in ("b_tensor", "b_scale_tensor")}
    op.initialize(**owned)
    for array in owned.values():
        array[:] = 1
    for _ in range(2):
        np.testing.assert_array_equal(op(**arrays), expected)


@pytest.mark.parametrize("name", ["a_tensor", "a_scale_tensor", "b_tensor", "b_scale_tensor", "output_scale_tensor"])
def test_each_input_can_be_owned(name):
    arrays = quantized_arrays()
    desc = quantized_desc(b_tensor=tensor("INT8", 1, 2, 3, 4), b_scale_tensor=tensor("FLOAT32", 4))
    op = compile_operator(replace(desc, **{name: replace(getattr(desc, name), flags=OWNED)}))
    expected = quantized_expected(arrays)
    op.initialize(**{name: arrays.pop(name)})
    out = np.empty_like(expected)
    assert op(**arrays, output_tensor=out) is out
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(op(**arrays), expected)


def test_a_bad_owned_scale_is_refused_when_it_is_bound():
    arrays = quantized_arrays()
    op = compile_operator(owned_b_desc())
    with pytest.raises(DmlError) as caught:
        op.initialize(b_tensor=arrays["b_tensor"], b_scale_tensor=np.float32([1, 1, -1, 1]))
    assert (caught.value.field, caught.value.found) == ("BScaleTensor[2]", "-1.0")


def test_read_only_parameters_compile_nothing_more():
    arrays = quantized_arrays()
    op = compile_operator(owned_b_desc())
    op.initialize(**{name: arrays.pop(name) for name in ("b_tensor", "b_scale_tensor")})
    expected = op(**arrays)
    share = registry.find("quantized_matmul", "dot").kernel.share
    compiled = len(share.signatures)
    for array in arrays.values():
        array.flags.writeable = False
    np.testing.assert_array_equal(op(**arrays), expected)
    assert len(share.signatures) == compiled


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda op: pickle.loads(pickle.dumps(op))])
def test_owned_tensors_are_copied_and_pickled(again):
    arrays = quantized_arrays()
    expected = quantized_expected(arrays)
    op = compile_operator(owned_b_desc())
    owned = {name: arrays.pop(name) for name in ("b_tensor", "b_scale_tensor")}
    not_yet = again(op)
    with pytest.raises(BindingError, match="BTensor is not initialized"):
        not_yet(**arrays)
    op.initialize(**owned)
    other = again(op)
    op.initialize(b_tensor=np.zeros_like(owned["b_tensor"]), b_scale_tensor=owned["b_scale_tensor"])
    np.testing.assert_array_equal(other(**arrays), expected)
    not_yet.initialize(**owned)
    np.testing.assert_array_equal(not_yet(**arrays), expected)


def test_a_failed_initialization_changes_nothing():
    arrays = quantized_arrays()
    expected = quantized_expected(arrays)
    op = compile_operator(owned_b_desc())
    owned = {name: arrays.pop(name) for name in ("b_tensor", "b_scale_tensor")}
    op.initialize(**owned)
    with pytest.raises(BindingError):
        op.initialize(b_tensor=np.zeros((1, 2, 3, 4), np.int8), b_scale_tensor=np.zeros(3, np.float32))
    np.testing.assert_array_equal(op(**arrays), expected)


def test_an_absent_zero_point_cannot_be_bound():
    with pytest.raises(BindingError) as caught:
        compile_operator(quantized_desc())(**quantized_arrays(), a_zero_point_tensor=np.zeros(1, np.uint8))
    assert caught.value.field == "a_zero_point_tensor"
    assert caught.value.found == "not a tensor of the desc"
