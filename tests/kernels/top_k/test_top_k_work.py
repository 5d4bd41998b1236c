"""The work record of the top_k kernels, their workspace, and the writing of winners."""

import numpy as np
import pytest
from numba import njit

from dmlcpu.kernels.top_k import column_blocks, keys, work as top_k_work
from dmlcpu.kernels.top_k.work import WORK
from dmlcpu.kernels.walk import merge, walk_of
from dmlcpu.runtime.kernel import kernel
from dmlcpu.runtime.records import record_at, record_of

WIDTHS = ["uint8", "uint16", "uint32", "uint64"]


@njit
def key_map_of(x, works):
    return keys.key_map_of(x, record_at(works, 0, WORK).key_map)


@kernel
def fill_workspace(part, parts, x, works, scratch, sizes):
    space = top_k_work.workspace_of(part, parts, x, record_at(works, 0, WORK), scratch)
    sizes[part, 0], sizes[part, 1] = space.keys.size, space.positions.size
    for i in range(space.keys.size):
        space.keys[i] = part + 1
    for i in range(space.positions.size):
        space.positions[i] = part + 1


@njit
def starts_of(works, row):
    work = record_at(works, 0, WORK)
    x = top_k_work.start_of(work, work.x, row)
    return x, top_k_work.start_of(work, work.values, row), top_k_work.start_of(work, work.indices, row)


@njit
def write_winners(x, start, works, row, positions, values, indices):
    top_k_work.write_winners(x, start, record_at(works, 0, WORK), row, positions, values, indices)


@njit
def block_count(works, most):
    return column_blocks.block_count(record_at(works, 0, WORK), most)


@njit
def block_at(works, most, number):
    return column_blocks.block_at(record_at(works, 0, WORK), most, number)


def make_work(sizes=(1,), strides=((0,), (0,), (0,)), steps=(1, 1, 1), **fields):
    """Return a work record. strides, steps: of x, values and indices, which start at 100, 200 and 300."""
    walk, *by_tensor = merge(sizes, *strides)
    tensors = {
        name: {"start": start, "step": step, "strides": merged}
        for name, start, step, merged in zip(("x", "values", "indices"), (100, 200, 300), steps, by_tensor, strict=True)
    }
    usual = {
        "n": 9,
        "k": 2,
        "rows": int(np.prod(sizes)),
        "columns": 1,
        "is_packed": False,
        "is_sorted": True,
        "index_words": 1,
        "key_map": keys.make_key_map(keys.UNSIGNED, 1, 0, True, False)._asdict(),
        "workspace": {"keys": 5, "positions": 3},
    }
    return record_of(WORK, walk=walk_of(walk), **tensors, **{**usual, **fields})


@pytest.mark.parametrize("dtype", WIDTHS)
def test_a_key_map_is_as_wide_as_the_words(dtype):
    works = make_work(key_map={"mask": 1, "infinity": 2, "flip": 3, "nan": 2**64 - 1})
    assert key_map_of(np.zeros(1, dtype), works) == keys.KeyMap(1, 2, 3, np.iinfo(dtype).max)


@pytest.mark.parametrize("dtype", WIDTHS)
def test_shares_have_workspaces_of_their_own(dtype):
    works, scratch, sizes = make_work(), np.zeros(100, np.int64), np.zeros((2, 2), int)
    fill_workspace(2, np.zeros(1, dtype), works, scratch, sizes)
    assert sizes.tolist() == [[5, 3]] * 2
    assert scratch[:6].tolist() == [1] * 3 + [2] * 3  # positions first
    assert scratch[6:].view(dtype)[:10].tolist() == [1] * 5 + [2] * 5
    assert not scratch[6:].view(dtype)[10:].any()


def test_each_tensor_has_its_own_start_and_strides():
    works = make_work((2, 3), ((30, 5), (3, 1), (1, -2)))
    found = [starts_of(works, row) for row in range(6)]
    assert [x for x, _, _ in found] == [100, 105, 110, 130, 135, 140]
    assert [values for _, values, _ in found] == [200, 201, 202, 203, 204, 205]
    assert [indices for _, _, indices in found] == [300, 298, 296, 301, 299, 297]


@pytest.mark.parametrize("index_words", [1, 2])
def test_winners_are_written_to_the_places_of_their_sequence(index_words):
    x, values, indices = np.arange(200, dtype=np.uint16), np.zeros(300, np.uint16), np.full(400, 7, np.uint32)
    works = make_work((4,), ((10,), (20,), (30,)), (3, 5, 6), index_words=index_words)
    write_winners(x, 120, works, 2, np.array([4, 1, 8]), values, indices)
    assert np.flatnonzero(values).tolist() == [240, 245]
    assert values[[240, 245]].tolist() == [120 + 4 * 3, 120 + 1 * 3]
    high = 0 if index_words == 2 else 7
    assert indices[[360, 361, 366, 367]].tolist() == [4, high, 1, high]
    assert np.count_nonzero(indices != 7) == 2 * index_words


def test_the_high_words_of_positions_are_written():
    x, values, indices = np.zeros(101, np.uint8), np.zeros(300, np.uint8), np.zeros(400, np.uint32)
    works = make_work(steps=(0, 1, 2), index_words=2)
    write_winners(x, 100, works, 0, np.array([5 << 32 | 9, 2**32 - 1]), values, indices)
    assert indices[300:304].tolist() == [9, 5, 2**32 - 1, 0]


@pytest.mark.parametrize(("outer", "columns"), [(1, 1), (3, 7), (2, 8), (4, 9), (1, 100)])
def test_blocks_are_every_sequence_once_and_within_a_line(outer, columns):
    works = make_work((outer, columns), ((1000, 1), (0, 0), (0, 0)), columns=columns)
    found = []
    for number in range(block_count(works, 8)):
        row, width = block_at(works, 8, number)
        assert 1 <= width <= 8
        assert row // columns == (row + width - 1) // columns
        found += range(row, row + width)
    assert found == list(range(outer * columns))
