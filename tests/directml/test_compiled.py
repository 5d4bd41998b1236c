import threading
import tracemalloc

import numpy as np
import pytest
from desc_builders import (
    OWNED,
    ROWS,
    check_top_k,
    outputs,
    small_scatter_desc,
    tensor,
    top_k1_desc,
    top_k_desc,
)
from hypothesis import given, settings, strategies as st

from dmlcpu import AxisDirection, FeatureLevel, compile_operator, reference
from dmlcpu.errors import BindingError


def test_compile_operator_takes_descs_and_levels_only():
    with pytest.raises(TypeError) as caught:
        compile_operator("TOP_K1")
    assert str(caught.value) == "compile_operator: desc is 'TOP_K1'; allowed: OperatorDesc"
    with pytest.raises(TypeError) as caught:
        compile_operator(top_k1_desc(), feature_level=0x6400)
    assert str(caught.value) == "compile_operator: feature_level is 25600; allowed: FeatureLevel.LEVEL_6_4"


def test_attributes():
    op = compile_operator(top_k1_desc(), feature_level=FeatureLevel.LEVEL_3_1)
    assert op.desc == top_k1_desc()
    assert op.feature_level is FeatureLevel.LEVEL_3_1
    assert repr(op) == "<CompiledOperator DML_OPERATOR_TOP_K1 at DML_FEATURE_LEVEL_3_1>"
    assert compile_operator(top_k1_desc()).feature_level is FeatureLevel.LEVEL_6_4


@pytest.mark.parametrize("bound", [(), ("v",), ("i",), ("v", "i")])
def test_outputs_are_made_or_bound(bound):
    values, indices = outputs()
    given = {}
    if "v" in bound:
        given["output_value_tensor"] = values
    if "i" in bound:
        given["output_index_tensor"] = indices
    result = compile_operator(top_k1_desc())(input_tensor=ROWS, **given)
    check_top_k(result)
    assert (result.values is values) == ("v" in bound)
    assert (result.indices is indices) == ("i" in bound)


def test_an_output_bound_as_a_buffer_is_returned_as_its_view():
    buffer = np.full(8, -7, np.float32)
    result = compile_operator(top_k1_desc())(input_tensor=ROWS, output_value_tensor=buffer)
    check_top_k(result)
    assert np.shares_memory(result.values, buffer)
    np.testing.assert_array_equal(buffer, [11, 10, 9, 8, 7, 6, -7, -7])


def test_outputs_are_made_in_the_descs_strides():
    desc = top_k1_desc(
        output_value_tensor=tensor("FLOAT32", 1, 1, 3, 2, strides=(0, 0, 1, 4)),
        output_index_tensor=tensor("UINT32", 1, 1, 3, 2, strides=(30, 30, 5, 2)),
    )
    result = compile_operator(desc)(input_tensor=ROWS)
    check_top_k(result)
    assert result.values.strides[2:] == (4, 16)
    assert result.indices.strides == (120, 120, 20, 8)


def test_packed_outputs_follow_those_in_the_descs_strides():
    op = compile_operator(top_k1_desc(output_value_tensor=tensor("FLOAT32", 1, 1, 3, 2, strides=(0, 0, 1, 4))))
    for _ in range(2):
        check_top_k(op(input_tensor=ROWS.copy()))
        values = np.empty((1, 1, 3, 2), np.float32)
        check_top_k(op(input_tensor=ROWS.copy(), output_value_tensor=values))


def test_no_output_is_made_before_an_input_is_missed():
    op = compile_operator(
        top_k1_desc(
            input_tensor=tensor("FLOAT32", 1 << 24, 1),
            output_value_tensor=tensor("FLOAT32", 1 << 24, 1),
            output_index_tensor=tensor("UINT32", 1 << 24, 1),
            axis=1,
            k=1,
        )
    )
    tracemalloc.start()
    with pytest.raises(BindingError, match="InputTensor is missing"):
        op()
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


def test_strided_descs_view_buffers_and_padding_stays():
    desc = top_k_desc(
        input_tensor=tensor("FLOAT32", 1, 1, 3, 4, strides=(18, 18, 6, 1)),
        output_value_tensor=tensor("FLOAT32", 1, 1, 3, 2, strides=(9, 9, 3, 1)),
    )
    padded = np.full((3, 6), np.nan, np.float32)
    padded[:, :4] = ROWS
    out = np.full(8, -7, np.float32)
    result = compile_operator(desc)(input_tensor=padded.reshape(-1), output_value_tensor=out)
    check_top_k(result)
    np.testing.assert_array_equal(out, [11, 10, -7, 9, 8, -7, 7, 6])


def test_zero_strides_repeat_an_element():
    desc = top_k_desc(input_tensor=tensor("FLOAT32", 1, 1, 3, 4, strides=(0, 0, 0, 1)))
    result = compile_operator(desc)(input_tensor=np.array([5, 7, 6, 7], np.float32))
    np.testing.assert_array_equal(result.values, [[[[7, 7]] * 3]])
    np.testing.assert_array_equal(result.indices, [[[[1, 3]] * 3]])


def test_arrays_of_the_sizes_keep_their_own_strides():
    desc = top_k_desc(input_tensor=tensor("FLOAT32", 1, 1, 3, 4, strides=(18, 18, 6, 1)))
    for x in (
        ROWS.copy(),
        np.asfortranarray(ROWS),
        np.repeat(ROWS, 2, axis=3)[..., ::2],
        ROWS[..., ::-1].copy()[..., ::-1],
    ):
        x.flags.writeable = False
        check_top_k(compile_operator(desc)(input_tensor=x))


def test_initialize_binds_once_and_keeps_a_copy():
    op = compile_operator(top_k_desc(input_tensor=tensor("FLOAT32", 1, 1, 3, 4, flags=OWNED)))
    x = ROWS.copy()
    assert op.initialize(input_tensor=x) is None
    x[:] = 0
    check_top_k(op())
    check_top_k(op())
    op.initialize(input_tensor=-ROWS)
    np.testing.assert_array_equal(op().values, [[[[0, -1], [-2, -3], [-4, -5]]]])


def test_without_owned_tensors_initialize_has_nothing_to_do():
    op = compile_operator(top_k_desc())
    op.initialize()
    check_top_k(op(input_tensor=ROWS))


def test_scatter_in_place():
    op = compile_operator(small_scatter_desc())
    indices = np.array([[4], [3], [1], [7]], np.int32)
    updates = np.array([[9, 10, 11, 12]], np.float32)
    expected = [[1, 11, 3, 10, 9, 6, 7, 12]]
    for bind in (
        lambda x: (x, x),
        lambda x: (x, x.reshape(-1)),
        lambda x: (x.view(np.uint8).reshape(-1), x),
        lambda x: (np.broadcast_to(x, x.shape), x),  # one memory, seen once read-only
    ):
        x = np.array([[1, 2, 3, 4, 5, 6, 7, 8]], np.float32)
        given, out = bind(x)
        result = op(input_tensor=given, indices_tensor=indices, updates_tensor=updates, output_tensor=out)
        np.testing.assert_array_equal(x, expected)
        np.testing.assert_array_equal(result, expected)
        assert np.shares_memory(result, x)


def test_scatter_in_place_whatever_the_strides_of_one_long_dimensions():
    op = compile_operator(small_scatter_desc(output_tensor=tensor("FLOAT32", 1, 8, strides=(0, 1))))
    x = np.array([1, 2, 3, 4, 5, 6, 7, 8], np.float32)
    op(
        input_tensor=x,
        indices_tensor=np.array([[4], [3], [1], [7]], np.int32),
        updates_tensor=np.array([[9, 10, 11, 12]], np.float32),
        output_tensor=x,
    )
    np.testing.assert_array_equal(x, [1, 11, 3, 10, 9, 6, 7, 12])


def test_in_place_and_out_of_range_leaves_the_input_alone():
    x = np.arange(8, dtype=np.float32)[None]
    with pytest.raises(IndexError):
        compile_operator(small_scatter_desc())(
            input_tensor=x,
            indices_tensor=np.array([[0], [1], [2], [8]], np.int32),
            updates_tensor=np.zeros((1, 4), np.float32),
            output_tensor=x,
        )
    np.testing.assert_array_equal(x, [np.arange(8)])


def test_one_operator_in_many_threads():
    op = compile_operator(top_k1_desc(axis_direction=AxisDirection.INCREASING))
    wrong = []

    def work(seed):
        x = np.random.default_rng(seed).integers(0, 5, (1, 1, 3, 4)).astype(np.float32)
        expected = reference.top_k(x, 2, axis=3, largest=False)
        for _ in range(50):
            values, indices = op(input_tensor=x)
            if not (values == expected.values).all() or not (indices == expected.indices).all():
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@st.composite
def padded_strides(draw, sizes):
    """Strides of a layout with the dimensions in any order and gaps between them."""
    strides, step = [0] * len(sizes), draw(st.integers(1, 2))
    for d in draw(st.permutations(range(len(sizes)))):
        strides[d] = step
        step = step * sizes[d] + draw(st.integers(0, 2))
    return tuple(strides)


@settings(deadline=None)
@given(st.data())
def test_buffers_of_any_strides_against_the_reference(data):
    sizes = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    axis = data.draw(st.integers(0, len(sizes) - 1))
    k = data.draw(st.integers(1, sizes[axis]))
    data_type = data.draw(st.sampled_from(["FLOAT16", "INT8", "UINT32", "INT64"]))
    direction = data.draw(st.sampled_from(AxisDirection))
    selected = (*sizes[:axis], k, *sizes[axis + 1 :])
    x_desc, value_desc, index_desc = (
        tensor(name, *shape, strides=data.draw(padded_strides(shape)))
        for name, shape in ((data_type, sizes), (data_type, selected), ("UINT64", selected))
    )
    op = compile_operator(
        top_k1_desc(
            input_tensor=x_desc,
            output_value_tensor=value_desc,
            output_index_tensor=index_desc,
            axis=axis,
            k=k,
            axis_direction=direction,
        )
    )
    x_buffer = np.zeros(x_desc.total_tensor_size_in_bytes, np.uint8)
    x = x_desc.view(x_buffer)
    x[...] = np.random.default_rng(data.draw(st.integers(0, 9))).integers(0, 6, sizes)
    buffers = [np.full(desc.total_tensor_size_in_bytes, 0xAB, np.uint8) for desc in (value_desc, index_desc)]
    result = op(input_tensor=x_buffer, output_value_tensor=buffers[0], output_index_tensor=buffers[1])
    expected = reference.top_k(x, k, axis=axis, largest=direction is AxisDirection.DECREASING)
    np.testing.assert_array_equal(result.values, expected.values)
    np.testing.assert_array_equal(result.indices, expected.indices)
    for desc, buffer, array in zip((value_desc, index_desc), buffers, result, strict=True):
        untouched = np.full_like(buffer, 0xAB)
        desc.view(untouched)[...] = array
        np.testing.assert_array_equal(buffer, untouched)  # the gaps are as they were
