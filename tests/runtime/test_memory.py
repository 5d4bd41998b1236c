import threading

import numpy as np
import pytest
from samples import LAYOUTS, misaligned, swapped

from dmlcpu.runtime import memory


def test_scratch_is_aligned_apart_and_of_the_right_types():
    with memory.scratch((3, np.uint8), (0, np.int16), (5, np.int64), (7, np.float32)) as parts:
        assert [part.dtype for part in parts] == [np.uint8, np.int16, np.int64, np.float32]
        assert [part.size for part in parts] == [3, 0, 5, 7]
        assert all(part.ctypes.data % 64 == 0 for part in parts if part.size)
        for number, part in enumerate(parts):
            part[...] = number
        assert [set(part.tolist()) for part in parts] == [{0}, set(), {2}, {3}]


def scratch_address():
    with memory.scratch((1000, np.uint8)) as (part,):
        return part.ctypes.data


def test_scratch_is_used_again_by_the_same_thread_and_not_by_another():
    mine = scratch_address()
    assert scratch_address() == mine
    others = []
    with memory.scratch((1000, np.uint8)):
        thread = threading.Thread(target=lambda: others.append(scratch_address()))
        thread.start()
        thread.join()
    assert others != [mine]


def test_a_call_in_between_gets_scratch_of_its_own():
    with memory.scratch((1000, np.uint8)) as (outer,):
        assert scratch_address() != outer.ctypes.data


def test_large_scratch_is_not_kept(monkeypatch):
    monkeypatch.setattr(memory, "_local", threading.local())
    monkeypatch.setattr(memory, "_KEPT_BYTES", 1 << 16)
    with memory.scratch((1 << 17, np.uint8)):
        pass
    assert not hasattr(memory._local, "block")
    with memory.scratch((1 << 10, np.uint8)):
        pass
    assert memory._local.block.nbytes <= 1 << 16


@pytest.mark.parametrize("make", [m for m in LAYOUTS.values() if m not in (misaligned, swapped)])
def test_words_and_strides_find_every_element(make):
    x = make(np.arange(24, dtype=np.uint32).reshape(2, 3, 4))
    flat, start = memory.words(x, 4)
    strides = memory.word_strides(x, 4)
    assert flat.flags.c_contiguous
    assert flat.flags.writeable
    assert flat.dtype == np.uint32
    for where in np.ndindex(x.shape):
        assert flat[start + sum(i * s for i, s in zip(where, strides, strict=True))] == x[where]


def test_words_are_no_copy_and_keep_the_memory_alive():
    flat, start = memory.words(np.arange(6, dtype=np.float32)[::-1], 4)
    assert flat.view(np.float32).tolist() == [0, 1, 2, 3, 4, 5]
    assert start == 5
    x = np.zeros((2, 2), np.uint16)
    memory.words(x.T, 2)[0][1] = 9
    assert x.tolist() == [[0, 9], [0, 0]]


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
def test_words_of_a_matrix_are_flat():
    assert memory.words(np.asmatrix(np.zeros((3, 2), np.uint8)), 1)[0].shape == (6,)


def test_words_may_be_narrower_than_elements():
    flat, start = memory.words(np.array([1 + 2j, 3 + 4j])[::-1], 8)
    assert flat.view(np.float64).tolist() == [1, 2, 3, 4]
    assert start == 2


def test_overlap():
    x = np.zeros((4, 4))
    assert memory.overlap(x, x[1:2])
    assert not memory.overlap(x[:, ::2], x[:, 1::2])
    assert not memory.overlap(x, x.copy())


def test_what_is_too_hard_to_decide_overlaps(monkeypatch):
    def too_hard(a, b, max_work):
        raise np.exceptions.TooHardError

    monkeypatch.setattr(np, "shares_memory", too_hard)
    x = np.zeros((4, 4))
    assert memory.overlap(x[:, ::2], x[:, 1::2])
