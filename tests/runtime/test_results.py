import errno
import gc
import mmap
import threading
from collections import deque

import numpy as np
import processes
import pytest
from samples import as_tuple, modules_of_calls

from dmlcpu.operators import OPERATORS
from dmlcpu.runtime import results
from dmlcpu.runtime.results import LEAST_BYTES, MOST_BYTES, empty_result, maker_of

LARGE = (LEAST_BYTES >> 2,)
WORD = np.dtype(np.uint32)

keeps = pytest.mark.skipif(not hasattr(mmap, "MADV_FREE"), reason="the system does not take memory back by itself")


@pytest.fixture(autouse=True)
def kept():
    gc.collect()
    results._kept.clear()
    yield results._kept
    results._kept.clear()


def address(array):
    return array.ctypes.data


@pytest.mark.parametrize("shape", [(), (0,), (3, 4), LARGE, (2, LEAST_BYTES >> 3), (LEAST_BYTES, 0, 9)])
@pytest.mark.parametrize("dtype", ["u1", "f8", "c16"])
@pytest.mark.parametrize("make", [empty_result, lambda *of_result: maker_of(*of_result)()])
def test_a_result_can_be_used_as_any_new_array(shape, dtype, make):
    result = make(shape, np.dtype(dtype))
    assert type(result) is np.ndarray
    assert result.shape == shape
    assert result.dtype == dtype
    assert result.flags.c_contiguous
    assert result.flags.writeable
    assert result.flags.aligned
    result[...] = 7
    assert (result == 7).all()


@pytest.mark.parametrize("shape", [(), (3, 4), LARGE])
def test_a_maker_makes_a_new_array_each_time(shape):
    make = maker_of(shape, WORD)
    first, second = make(), make()
    assert not np.may_share_memory(first, second)


@keeps
@pytest.mark.parametrize(("length", "owns"), [(LARGE[0] - 1, True), (LARGE[0], False)])
def test_a_maker_of_large_results_keeps_their_memory(kept, length, owns, monkeypatch):
    make = maker_of((length,), WORD)
    assert make().flags.owndata is owns
    assert len(kept) == (not owns)
    monkeypatch.setenv("DMLCPU_KEEP_RESULTS", "0")  # from now on
    assert make().flags.owndata


@keeps
def test_the_memory_of_a_large_result_is_used_again_when_it_is_gone(kept):
    result = empty_result(LARGE, WORD)
    first = address(result)
    other = empty_result(LARGE, WORD)
    assert address(other) != first
    assert not kept
    del result
    assert len(kept) == 1
    assert address(empty_result((LARGE[0] // 2, 4), np.dtype(np.uint16))) == first


@keeps
def test_memory_is_not_used_again_while_any_view_is_left(kept):
    result = empty_result((2, LARGE[0]), WORD)
    result[...] = 5
    views = [result[0], memoryview(result[1, 3:]), result.view(np.uint8)[:, ::7], result.T]
    del result
    while views:
        gc.collect()
        assert not kept
        other = empty_result((2, LARGE[0]), WORD)
        other[...] = 6
        assert all((np.asarray(view) % 5 == 0).all() for view in views)
        del other
        kept.clear()
        views.pop()
    assert len(kept) == 1


@keeps
@pytest.mark.parametrize("length", [2 * LARGE[0], 9 * LARGE[0] // 2])
def test_a_kept_block_that_does_not_suit_stays_until_two_others_are_kept(kept, length):
    empty_result((3 * LARGE[0],), WORD)
    (block,) = kept
    result, other = empty_result((length,), WORD), empty_result((length,), WORD)
    assert list(kept) == [block]
    assert result.base.base.block is not block
    del result
    assert block in kept
    del other
    assert block not in kept
    assert len(kept) == 2


@keeps
def test_two_results_of_different_sizes_use_their_memory_again(kept):
    made = [empty_result(LARGE, WORD), empty_result((2 * LARGE[0],), WORD)]
    made.clear()
    blocks = list(kept)
    made = [empty_result(LARGE, WORD), empty_result((2 * LARGE[0],), WORD)]
    assert not kept
    assert {id(each.base.base.block) for each in made} == set(map(id, blocks))


@keeps
def test_kept_memory_is_freed_before_a_result_that_needs_it(kept):
    code = """
    import resource
    import numpy as np
    from dmlcpu.runtime.results import empty_result
    with open("/proc/self/status") as lines:
        (now,) = [int(line.split()[1]) << 10 for line in lines if line.startswith("VmSize")]
    resource.setrlimit(resource.RLIMIT_AS, (now + (1300 << 20),) * 2)
    for sizes in ((400, 400), (600,), (700,), (700,)):
        results = [empty_result((size << 20,), np.dtype(np.uint8)) for size in sizes]
        del results
    """
    processes.run(code)


@pytest.mark.parametrize("nbytes", [LEAST_BYTES - 1, MOST_BYTES + 1])
def test_small_and_huge_results_are_left_to_numpy(kept, nbytes):
    assert empty_result((nbytes,), np.dtype(np.uint8)).flags.owndata
    assert not kept


def test_nothing_is_kept_where_the_system_cannot_take_it_back():
    code = f"""
    import mmap
    vars(mmap).pop("MADV_FREE", None)
    import numpy as np
    from dmlcpu.runtime.results import empty_result, keeps
    print(keeps(), empty_result({LARGE}, np.dtype({WORD.str!r})).flags.owndata)
    """
    assert processes.run(code).split() == ["False", "True"]


@pytest.mark.parametrize(("setting", "owns"), [("0", True), ("1", False), ("", False)])
@keeps
def test_keeping_can_be_switched_off(monkeypatch, setting, owns):
    monkeypatch.setenv("DMLCPU_KEEP_RESULTS", setting)
    assert empty_result(LARGE, WORD).flags.owndata == owns


def test_a_wrong_setting_is_refused(monkeypatch):
    monkeypatch.setenv("DMLCPU_KEEP_RESULTS", "yes")
    with pytest.raises(ValueError, match=r"^DMLCPU_KEEP_RESULTS is 'yes'; allowed: 0, 1$"):
        empty_result(LARGE, WORD)


@keeps
@pytest.mark.parametrize(("operator", "calls"), modules_of_calls().items(), ids=list(modules_of_calls()))
def test_operator_writes_large_results_into_kept_memory(operator, calls):
    results = as_tuple(OPERATORS[operator].function(**calls.call_with_results_of(LEAST_BYTES)))
    large = [result for result in results if result.ndim]  # not a scale, which is one number
    assert [result.flags.owndata for result in large] == [False] * len(large)


@keeps
def test_nothing_is_kept_of_a_lease_whose_advice_is_refused_or_that_has_no_block(kept):
    refused = 12345
    lease = results._Lease(mmap.mmap(-1, 4096))
    lease.__del__(_free=refused)
    results._Lease.__new__(results._Lease).__del__()  # an interrupt may come before it has a block
    assert not kept


@keeps
def test_threads_do_not_share_memory():
    def work(number):
        held = deque(maxlen=2)
        for turn in range(30):
            result = empty_result(LARGE, WORD)[:: 1 << 16]
            result[...] = 100 * number + turn
            held.append((result, 100 * number + turn))
            wrong.extend(wanted for result, wanted in held if (result != wanted).any())

    wrong = deque()
    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@keeps
def test_where_there_is_no_memory_the_error_is_that_of_numpy(monkeypatch):
    def refuse(*_args, **_kwargs):
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr(mmap, "mmap", refuse)
    assert empty_result(LARGE, WORD).flags.owndata

    def refuse_too(*_args):
        raise MemoryError

    monkeypatch.setattr(np, "empty", refuse_too)
    with pytest.raises(MemoryError):
        empty_result(LARGE, WORD)


def test_a_result_that_lives_until_the_interpreter_ends_is_no_trouble():
    code = """
    import atexit, gc, os
    atexit.unregister(gc.freeze)  # all garbage is looked for
    os.dup2(1, 2)  # finalizers print their errors to stderr
    import numpy as np
    from dmlcpu.runtime.results import LEAST_BYTES, empty_result
    class Forever: pass
    a = Forever(); a.a, a.b = a, empty_result((LEAST_BYTES,), np.dtype('u1'))
    b = empty_result((LEAST_BYTES,), np.dtype('u1'))
    """
    assert processes.run(code) == ""
