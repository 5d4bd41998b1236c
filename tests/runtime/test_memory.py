import gc
import subprocess
import threading
import weakref

import numpy as np
import pytest
from hypothesis import given, strategies as st
from samples import LAYOUTS, misaligned, swapped

from dmlcpu.runtime import memory
from dmlcpu.runtime.memory import Workspace

WORD = np.dtype(np.uint32)


@pytest.fixture(autouse=True)
def _no_workspace_yet(monkeypatch):
    monkeypatch.setattr(memory, "_kept", [])


def address_of_workspace(cells=1000):
    workspace = Workspace(cells)
    block = workspace.take()
    workspace.give_back(block)
    return block.ctypes.data


@pytest.mark.parametrize("cells", [0, 1, 511, 513, 100_000])
def test_a_workspace_is_aligned_and_large_enough(cells):
    for block in (Workspace(cells).take(), Workspace(cells).make()):
        assert block.dtype == np.int64
        assert block.size >= cells
        assert block.ctypes.data % 64 == 0
        assert block.flags.c_contiguous
        assert block.flags.writeable


def test_a_workspace_is_used_again_and_not_by_two_threads_at_a_time():
    mine = address_of_workspace()
    assert address_of_workspace() == mine
    others = []
    workspace = Workspace(1000)
    block = workspace.take()
    thread = threading.Thread(target=lambda: others.append(address_of_workspace()))
    thread.start()
    thread.join()
    workspace.give_back(block)
    assert others != [mine]
    assert len(memory._kept) == 2
    thread = threading.Thread(target=lambda: others.append(address_of_workspace()))
    thread.start()
    thread.join()
    assert others[1] == mine  # threads share what is kept


def test_a_nested_call_allocates_a_block():
    address_of_workspace()  # the thread has a block now
    shared = Workspace(1000)  # one serves calls at the same time, too
    outer, inner = shared.take(), shared.take()
    assert outer.ctypes.data != inner.ctypes.data
    addresses = {address_of_workspace() for _ in range(3)}
    assert not addresses & {outer.ctypes.data, inner.ctypes.data}
    shared.give_back(inner)
    shared.give_back(outer)
    assert address_of_workspace() == outer.ctypes.data


def test_a_block_that_is_not_given_back_is_freed():
    block = weakref.ref(Workspace(1000).take())
    gc.collect()
    assert block() is None


def test_a_larger_workspace_replaces_the_kept_block():
    address_of_workspace()
    large = address_of_workspace(5000)  # which may be where the small one was
    assert [block.size >= 5000 for block in memory._kept] == [True]
    assert address_of_workspace() == large


@pytest.mark.parametrize(("cells", "is_kept"), [(1 << 10, True), (1 << 14, False)])
def test_a_large_workspace_is_not_kept(monkeypatch, cells, is_kept):
    monkeypatch.setattr(memory, "_MOST_KEPT", 1 << 13)
    workspace = Workspace(cells)
    block = workspace.take()
    memory_of_it = weakref.ref(block)
    workspace.give_back(block)
    del block
    gc.collect()
    assert (memory_of_it() is not None) == is_kept


def test_all_kept_workspaces_together_have_a_limit(monkeypatch):
    monkeypatch.setattr(memory, "_MOST_KEPT", 4000)
    workspace = Workspace(1000)
    blocks = [workspace.take() for _ in range(6)]
    for block in blocks:
        workspace.give_back(block)
    assert len(memory._kept) == 4


def test_the_limit_holds_when_threads_give_back_at_the_same_time(monkeypatch):
    monkeypatch.setattr(memory, "_MOST_KEPT", 4000)
    workspace = Workspace(1000)
    mine, *others = [workspace.take() for _ in range(8)]
    memory._kept.extend(others)  # each found room for its own block, and has yet to look again
    workspace.give_back(mine)
    assert len(memory._kept) == 4


@pytest.mark.parametrize("shape", [(), (5,), (2, 3, 4), (2, 1, 3), (0, 4)])
def test_packed_strides_are_those_of_numpy(shape):
    if 0 not in shape:
        assert memory.packed_strides(shape, 8) == np.empty(shape).strides
    assert len(memory.packed_strides(shape)) == len(shape)


@pytest.mark.parametrize("make", [m for m in LAYOUTS.values() if m not in (misaligned, swapped)])
def test_words_and_strides_find_every_element(make):
    x = make(np.arange(24, dtype=np.uint32).reshape(2, 3, 4))
    flat = memory.words(x, WORD)
    strides = memory.word_strides(x.strides, 4)
    start = memory.first_word(x.shape, strides)
    assert flat.flags.c_contiguous
    assert flat.flags.writeable
    assert flat.dtype == np.uint32
    for where in np.ndindex(x.shape):
        assert flat[start + sum(i * s for i, s in zip(where, strides, strict=True))] == x[where]


def test_words_are_no_copy_and_keep_the_memory_alive():
    flat = memory.words(np.arange(6, dtype=np.float32)[::-1], WORD)
    assert flat.view(np.float32).tolist() == [0, 1, 2, 3, 4, 5]
    assert memory.first_word((6,), (-1,)) == 5
    x = np.zeros((2, 2), np.uint16)
    memory.words(x.T, np.dtype(np.uint16))[1] = 9
    assert x.tolist() == [[0, 9], [0, 0]]


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
def test_words_of_a_matrix_are_flat():
    assert memory.words(np.asmatrix(np.zeros((3, 2), np.uint8)), np.dtype(np.uint8)).shape == (6,)


def test_words_may_be_narrower_than_elements():
    x = np.array([1 + 2j, 3 + 4j])[::-1]
    assert memory.words(x, np.dtype(np.uint64)).view(np.float64).tolist() == [1, 2, 3, 4]
    assert memory.first_word(x.shape, memory.word_strides(x.strides, 8)) == 2


@pytest.mark.parametrize("shape", [(), (0, 3), (5,), (2, 3)])
@pytest.mark.parametrize("is_writeable", [True, False])
def test_flat_elements(shape, is_writeable):
    x = np.arange(np.prod(shape)).reshape(shape)
    for each in (x, x.T, x[..., ::-1] if shape else x, np.broadcast_to(x, (2, *shape))):
        view = each.view()
        view.flags.writeable &= is_writeable
        found = memory.flat(view)
        assert found.tolist() == each.ravel().tolist()
        assert found.flags.writeable
        assert np.may_share_memory(found, x) == (each.flags.c_contiguous and bool(found.size))


def test_overlap():
    x = np.zeros((4, 4))
    assert memory.overlap(x, x[1:2])
    assert not memory.overlap(x[:, ::2], x[:, 1::2])
    assert not memory.overlap(x, x.copy())
    assert memory.overlap(x, x)


def test_spans_meet_without_a_shared_element():
    x = np.zeros((4, 4))
    assert memory.spans_meet(x[:, ::2], x[:, 1::2])
    assert not memory.spans_meet(x[:2], x[2:])
    assert not memory.spans_meet(x, x.copy())
    assert memory.spans_meet(x, x)
    assert memory.spans_meet(x, np.frombuffer(x))  # which does not own its memory


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(-12, 12)), min_size=1, max_size=3), st.integers(1, 5))
def test_elements_overlap_if_they_have_a_byte_in_common(dimensions, width):
    sizes, strides = zip(*dimensions, strict=True)
    starts = [sum(i * s for i, s in zip(where, strides, strict=True)) for where in np.ndindex(*sizes)]
    taken = [start + byte for start in starts for byte in range(width)]
    assert memory.elements_overlap(sizes, strides, width) == (len(set(taken)) < len(taken))


def test_what_is_too_hard_to_decide_overlaps(monkeypatch):
    def too_hard(a, b, max_work):
        raise np.exceptions.TooHardError

    monkeypatch.setattr(np, "shares_memory", too_hard)
    x = np.zeros((4, 4))
    assert memory.overlap(x[:, ::2], x[:, 1::2])


@pytest.mark.parametrize(
    ("told", "size"),
    [("2048K", 2 << 20), ("512K", 512 << 10), ("", 1 << 20), ("0K", 1 << 20), ("much", 1 << 20)],
)
def test_second_level_cache(monkeypatch, tmp_path, told, size):
    for number, (level, text) in enumerate([("1", "48K"), ("1", "32K"), ("2", told), ("3", "99999K")]):
        (tmp_path / f"index{number}").mkdir()
        (tmp_path / f"index{number}" / "level").write_text(f"{level}\n")
        (tmp_path / f"index{number}" / "size").write_text(f"{text}\n")
    monkeypatch.setattr(memory, "_CACHES", tmp_path)
    assert memory.second_level_cache.__wrapped__() == size
    monkeypatch.setattr(memory, "_CACHES", tmp_path / "nosuch")
    assert memory.second_level_cache.__wrapped__() == 1 << 20


@pytest.mark.parametrize(
    ("told", "mine", "threads", "part"),
    [
        ("0-1", 4, 2, 1),  # two caches, for two processors each
        ("0-1", 4, 3, 2),
        ("0,4", 8, 4, 1),
        ("0,4", 8, 8, 2),
        ("0-1", 1, 8, 1),  # the process may use one of them
        ("0", 2, 8, 1),
        ("", 2, 8, 1),
        ("what", 2, 8, 1),
    ],
)
def test_threads_that_share_a_second_level_cache_have_a_part_of_it(monkeypatch, tmp_path, told, mine, threads, part):
    (tmp_path / "index2").mkdir()
    for name, text in {"level": "2", "size": "1024K", "shared_cpu_list": told}.items():
        (tmp_path / "index2" / name).write_text(f"{text}\n")
    monkeypatch.setattr(memory, "_CACHES", tmp_path)
    monkeypatch.setattr(memory.os, "sched_getaffinity", lambda _: set(range(mine)), raising=False)
    caches = memory.second_level_cache, memory._sharers
    for each in caches:
        each.cache_clear()
    try:
        assert memory.cache_of_thread(threads) == (1 << 20) // part
    finally:
        for each in caches:
            each.cache_clear()


def test_second_level_cache_is_what_this_machine_has():
    """The other test replaces the source; this one compares with a second source."""
    try:
        told = subprocess.run(["getconf", "LEVEL2_CACHE_SIZE"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no getconf that knows caches")
    if not told.strip().isdigit() or told.strip() == "0" or not memory._CACHES.exists():
        pytest.skip("the system does not tell")
    assert memory.second_level_cache() == int(told)
