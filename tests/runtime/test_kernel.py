import concurrent.futures
import threading

import numpy as np
import pytest

from dmlcpu.runtime import kernel as kernels, threads
from dmlcpu.runtime.kernel import Kernel, kernel


@kernel
def bump_all(part, parts, x):
    for i in range(part * x.size // parts, (part + 1) * x.size // parts):
        x[i] += 3


@pytest.fixture
def launched(monkeypatch):
    """Note what is launched, instead of launching it; `able` says whether that can be done."""

    class Launched(list):
        able = True

        def launch(self, address, parts, args, helpers):
            self.append((address, parts, args, helpers))
            return self.able

    launched = Launched()
    monkeypatch.setattr(threads, "launch", launched.launch)
    return launched


@pytest.mark.parametrize("parts", [1, 2, 5])
@pytest.mark.parametrize("dtype", [np.int64, np.uint8])
def test_a_kernel_does_all_shares(parts, dtype):
    x = np.arange(11, dtype=dtype)
    bump_all(parts, x)
    assert x.tolist() == list(range(3, 14))


def test_a_kernel_launches_several_parts_and_calls_one(launched):
    x = np.zeros(9, int)
    for parts in (1, 2, 5):
        bump_all(parts, x)
    address = bump_all.address((x,))
    assert [(where, parts, helpers) for where, parts, _, helpers in launched] == [(address, 2, 1), (address, 5, 4)]
    assert all(args[0] is x for _, _, args, _ in launched)
    assert x.tolist() == [3] * 9  # by the one part


def test_machine_code_is_not_shared_by_records_of_different_fields():
    """They have one `dtype.num`; the code for one would read the other's fields at wrong places."""

    @kernel
    def read_first(part, parts, x, found):
        found[part] = x[0].first

    found, addresses = np.zeros(1, int), []
    for names in (("first", "second"), ("second", "first")):
        x = np.zeros(1, [(name, int) for name in names])
        addresses.append(read_first.address((x, found)))
        assert read_first.address((x, found)) == addresses[-1]
    assert len(set(addresses)) == 2


def test_machine_code_is_not_shared_by_arrays_of_different_layouts():
    x = np.zeros((4, 4), int)
    assert bump_all.address((x[0],)) != bump_all.address((x[:, 0],))


def test_a_kernel_does_all_shares_itself_if_the_launch_returns_false(launched):
    launched.able = False
    x = np.zeros(9, int)
    bump_all(4, x)
    assert len(launched) == 1
    assert x.tolist() == [3] * 9


def test_for_parts_calls_the_compiled_function_directly_for_one_part(launched):
    one = bump_all.for_parts(1)
    assert (one.func, one.args) == (bump_all.share, (0, 1))
    bump_all.for_parts(2)(np.zeros(9, int))
    bump_all.for_parts(8, 3)(np.zeros(9, int))
    assert [(parts, helpers) for _, parts, _, helpers in launched] == [(2, 1), (8, 2)]


def test_threads_that_come_first_together_get_one_compiled_function(monkeypatch):
    all_here = threading.Barrier(4, timeout=10)  # nor does one thread wait for another here

    def make(function):
        all_here.wait()
        return object()

    monkeypatch.setattr(kernels, "compile_kernel", make)
    fresh = Kernel(bump_all.function)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        shares = set(pool.map(lambda _: fresh.share, range(4)))
    assert shares == {fresh.share}
