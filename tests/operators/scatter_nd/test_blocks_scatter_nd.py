"""scatter_nd in blocks."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from samples import INDEX_TYPES, NUMERIC_TYPES, assert_same_bits, random_shape, values
from sources import Unreadable, Watched, assert_refused_alike, in_blocks

from dmlcpu import reference
from dmlcpu.common.regions import Tensor
from dmlcpu.errors import BindingError, DmlError, IndexOutOfRangeError, UnsupportedError
from dmlcpu.operators.scatter_nd import blocks


@settings(max_examples=40, deadline=None)
@given(
    data=st.data(),
    rows=st.integers(1, 40),
    seed=st.integers(0, 1000),
    reduction=st.sampled_from(["none", "add", "mul", "min", "max"]),
    mode=st.sampled_from(["raise", "drop", "clip"]),
)
def test_every_cut(data, rows, seed, reduction, mode):
    rng = np.random.default_rng(seed)
    types = [dtype for dtype in NUMERIC_TYPES if dtype.kind != "c" or reduction in ("none", "add", "mul")]
    x = values(rng, (rows, *random_shape(rng, 4, int(rng.integers(0, 3)))), types[rng.integers(len(types))])
    coordinates = int(rng.integers(0, x.ndim + 1))
    outer = random_shape(rng, 12, int(rng.integers(0, 3)))
    index_type = INDEX_TYPES[rng.integers(4)]
    sizes = np.array(x.shape[:coordinates], np.int64)
    beyond = 0 if mode == "raise" else 2
    low = -sizes - beyond if index_type.kind == "i" else 0 * sizes
    indices = rng.integers(low, sizes + beyond, (*outer, coordinates)).astype(index_type)
    updates = values(rng, outer + x.shape[coordinates:], x.dtype)
    sources = {"x": Watched(x), "indices": Watched(indices), "updates": Watched(updates)}
    arguments = {**sources, "reduction": reduction, "mode": mode}
    expected = reference.scatter_nd(x, indices, updates, reduction=reduction, mode=mode)
    call, _ = blocks._checked(arguments)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK", data.draw(st.sampled_from([16, 256, 1 << 20])))
        cuts = list(blocks._cuts(call))
        cut = cuts[data.draw(st.integers(0, len(cuts) - 1))]
        patch.setattr(blocks, "_cuts", lambda _: iter([cut]))
        found = in_blocks("scatter_nd", arguments)
    assert_same_bits(found, (expected,))
    assert sources["x"].read_bytes == x.nbytes  # each element once


@pytest.mark.parametrize(("rows", "memory"), [(50, None), (500, 1 << 13), (500, 1 << 20)])
def test_the_last_update_of_a_place_wins_though_blocks_part_them(rows, memory, small_blocks):
    """Blocks of one row and one update, of several, and of the updates alone."""
    x = np.zeros((rows, 3), np.float32)
    indices = np.array([[rows - 1], [0], [rows - 1], [0], [-1]] * (rows // 5))
    updates = np.arange(3 * rows, dtype=np.float32).reshape(rows, 3)
    sources = {"x": Watched(x), "indices": Watched(indices), "updates": Watched(updates)}
    found = in_blocks("scatter_nd", sources, memory)
    assert_same_bits(found, (reference.scatter_nd(x, indices, updates),))


def test_updates_are_read_once_if_there_is_memory(small_blocks):
    x = np.zeros((500, 30), np.float32)
    updates = Watched(np.ones((3, 30), np.float32))
    source = Watched(x)
    in_blocks("scatter_nd", {"x": source, "indices": [[3], [450], [3]], "updates": updates, "mode": "drop"}, 1 << 20)
    assert source.reads > 50
    assert updates.reads == 1


def test_shapes_and_types_are_told_without_reading():
    x, updates = Unreadable(np.zeros((5, 6), np.float16)), Unreadable(np.zeros((2, 6), np.float16))
    arguments = {"x": x, "indices": [[1], [4]], "updates": updates}
    assert blocks.estimate(**arguments).results == {"y": Tensor((5, 6), np.dtype("float16"))}
    assert blocks.estimate(**arguments).memory >= 2 * 60 + 16 + 24
    assert blocks.estimate(**arguments).kernel == "apply"
    large = {"x": Unreadable(np.broadcast_to(np.float32(0), 1 << 28)), "mode": "drop"}
    large["indices"] = Unreadable(np.broadcast_to(np.int64(0), (1 << 21, 1)))
    large["updates"] = Unreadable(np.broadcast_to(np.float32(0), 1 << 21))
    assert blocks.estimate(**large).kernel == "apply_buckets"


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        (
            {"indices": np.array([[[0, 5]], [[4, 2]]])},
            IndexOutOfRangeError,
            r"indices\[0, 0, 1\] is 5; allowed: -5 to 4",
        ),
        ({"indices": np.array([[[0, 4]], [[-6, 2]]], np.int8)}, IndexOutOfRangeError, r"indices\[1, 0, 0\] is -6"),
        ({"indices": np.array([[[0, 4]], [[9, 2]]], np.uint64)}, IndexOutOfRangeError, r"\[1, 0, 0\] is 9; allowed: 0"),
        ({"indices": np.array([[[0.0, 4]], [[9, 2]]])}, UnsupportedError, "indices.dtype"),
        ({"indices": np.array([[0, 4], [0, 2]])}, BindingError, "updates.shape"),
        ({"mode": "wrap"}, DmlError, "mode is 'wrap'"),
        ({"reduction": "sub"}, DmlError, "reduction is 'sub'"),
        ({"updates": np.zeros((2, 1), np.float64)}, BindingError, "updates.dtype"),
    ],
)
def test_what_the_function_refuses_is_refused(changed, error, message, small_blocks):
    given_as = {
        "x": np.zeros((5, 5), np.float32),
        "indices": np.array([[[0, 4]], [[1, 2]]]),
        "updates": np.zeros((2, 1), np.float32),
        **changed,
    }
    assert_refused_alike("scatter_nd", given_as, error, message)


def test_the_first_bad_index_of_many_is_named(small_blocks):
    indices = np.zeros((40, 50, 2), np.int32)
    indices[30, 7, 1] = indices[31, 0, 0] = 9
    arguments = {"x": np.zeros((5, 5)), "indices": Watched(indices), "updates": np.zeros((40, 50))}
    with pytest.raises(IndexOutOfRangeError, match=r"indices\[30, 7, 1\] is 9"):
        blocks.run(arguments, {}, 1 << 20, lambda: False)


def test_to_clip_into_nothing_is_refused():
    arguments = {"x": np.zeros((0, 5)), "indices": [[0]], "updates": np.zeros((1, 5)), "mode": "clip"}
    with pytest.raises(IndexOutOfRangeError, match="clipped into an empty dimension"):
        blocks.estimate(**arguments)


def test_an_array_that_is_given_is_left_as_it_is():
    x = np.zeros((4, 2), np.float32)
    found = in_blocks("scatter_nd", {"x": x, "indices": [[1]], "updates": [[1.0, 2.0]]})
    assert found[0][1].tolist() == [1, 2]
    assert not x.any()
