import concurrent.futures
import contextlib
import os
import threading

import pytest
from processes import forks_of

import dmlcpu
from dmlcpu.runtime import pool, threads
from dmlcpu.runtime.layers import NumbaLayer


@pytest.fixture(autouse=True)
def _restored():
    with threads.use_budget(2):
        yield


@pytest.mark.parametrize(("n", "error"), [(0, ValueError), (-2, ValueError), (1.5, TypeError), (True, TypeError)])
def test_set_num_threads_refuses_other_than_positive_integers(n, error):
    before = dmlcpu.get_num_threads()
    with pytest.raises(error) as caught:
        dmlcpu.set_num_threads(n)
    assert str(caught.value) == f"set_num_threads: n is {n!r}; allowed: an integer of at least 1"
    assert dmlcpu.get_num_threads() == before


@pytest.fixture(scope="module")
def fresh():
    """Run code in a process that has not yet looked for its number of threads."""
    start = """
    import os
    import numba
    import dmlcpu
    from dmlcpu.runtime import threads
    """
    with forks_of(start, NUMBA_THREADING_LAYER="default") as run:
        yield run


@pytest.mark.parametrize("text", ["0", "-1", "many", "2.0"])
def test_a_bad_environment_is_refused(fresh, text):
    code = """
    try:
        dmlcpu.get_num_threads()
    except ValueError as error:
        print(error)
    """
    expected = f"DMLCPU_NUM_THREADS is '{text}'; allowed: an integer of at least 1"
    assert fresh(code, DMLCPU_NUM_THREADS=text).strip() == expected


@pytest.fixture
def found(fresh):
    """Return a function that finds the number of threads on a machine: Numba's number, the allowed cores, the quota."""

    def find(numba_says, cores, quota, then="", **environment):
        code = f"""
        numba.config.NUMBA_NUM_THREADS = {numba_says}
        os.sched_getaffinity = lambda _: set(range({cores}))
        threads.cpu_quota = lambda: {quota}
        {then}
        print(dmlcpu.get_num_threads(), threads.budget().threads, threads.layer().most + 1)
        """
        numbers = fresh(
            code, **{"DMLCPU_NUM_THREADS": "", "NUMBA_NUM_THREADS": "", "OMP_NUM_THREADS": "", **environment}
        ).split()
        asked, used, there_are = map(int, numbers)
        assert there_are == (cores if pool.AVAILABLE and not then.startswith("del") else numba_says)
        assert used == min(asked, there_are)
        return asked

    return find


@pytest.mark.parametrize(
    ("numba_says", "cores", "quota", "n"),
    [
        (64, 64, None, 64),
        (64, 64, 2.0, 2),
        (64, 64, 1.5, 2),
        (64, 64, 0.5, 1),
        (64, 3, None, 3),
        (64, 3, 8.0, 3),
        (5, 64, 8.0, 5),
    ],
)
def test_the_default_is_the_least_of_cores_and_quota(found, numba_says, cores, quota, n):
    assert found(numba_says, cores, quota) == n


def test_numbas_variable_may_exceed_cores_and_quota(found):
    assert found(64, 3, 2.0, NUMBA_NUM_THREADS="64") == 64


def test_the_environment_and_the_program_may_exceed_the_quota(found):
    assert found(64, 64, 2.0, DMLCPU_NUM_THREADS="7") == 7
    assert found(64, 64, 2.0, then="dmlcpu.get_num_threads(); dmlcpu.set_num_threads(9)", DMLCPU_NUM_THREADS="7") == 9


@pytest.mark.parametrize(
    ("text", "n"), [("1", 1), (" +03 ", 3), ("2,4", 2), ("64", 5), ("0", 5), ("many", 5), ("", 5), ("3x", 5)]
)
def test_the_default_is_no_more_than_openmps_number(found, text, n):
    assert found(64, 5, None, OMP_NUM_THREADS=text) == n


def test_numbas_number_comes_before_openmps(found):
    assert found(64, 5, None, OMP_NUM_THREADS="1", NUMBA_NUM_THREADS="64") == 64


def test_the_default_is_numbas_where_the_system_does_not_tell_the_cores(found):
    assert found(4, 1, None, then="del os.sched_getaffinity; threads.AVAILABLE = False") == 4


def test_a_number_set_while_the_default_is_found_stays(found):
    assert found(8, 8, None, then="threads.cpu_quota = lambda: dmlcpu.set_num_threads(3)") == 3


@pytest.mark.parametrize(
    ("n", "work", "most", "parts"),
    [
        (4, 10**9, 100, 4),
        (4, 10**9, 3, 3),
        (4, 59_999, 100, 1),
        (2, 60_000, 100, 2),
        (4, 0, 0, 1),
        # A thread more costs a fortieth of the least share: sqrt(40 * 2), and shares of the least size from 40 on.
        (64, 60_000, 100, 8),
        (64, 120_000, 100, 12),
        (64, 1_500_000, 100, 50),
        (128, 3_000_000, 200, 100),
    ],
)
def test_parts_are_bounded_by_threads_pieces_and_grain(n, work, most, parts):
    assert threads.Budget(n, 30_000).parts(work, most) == parts


@pytest.fixture
def seven_helpers(monkeypatch):
    """Let there be as many, whatever processors there are; none is started."""
    monkeypatch.setattr(threads, "_layer", pool.Pool(7))


def test_limit_threads_holds_for_one_thread_only(seven_helpers):
    dmlcpu.set_num_threads(8)
    with threads.limit_threads(4):
        with threads.limit_threads(2):
            assert threads.budget().threads == 2
            with concurrent.futures.ThreadPoolExecutor(1) as other:
                assert other.submit(threads.budget).result().threads == 8
        with threads.limit_threads(6):
            assert threads.budget().threads == 4
        dmlcpu.set_num_threads(3)
        assert threads.budget().threads == 3
    assert threads.budget().threads == 3


def test_use_budget_puts_the_budget_back_after_an_error():
    dmlcpu.set_num_threads(3)
    with contextlib.suppress(ZeroDivisionError), threads.use_budget(5, grain=1):
        assert threads.budget() == threads.Budget(5, 1)
        1 / 0  # noqa: B018
    assert dmlcpu.get_num_threads() == 3


@pytest.mark.parametrize("setting", [(8,), (8, 1, "some_kernel")])
def test_without_compilation_there_is_one_budget(monkeypatch, setting):
    with threads.use_budget(*setting), threads.limit_threads(2):
        assert threads.REFERENCE not in (threads.most(), threads.most_of_thread(), threads.budget(), threads.budget(1))
        monkeypatch.setattr("numba.config.DISABLE_JIT", 1)
        found = {threads.most(), threads.most_of_thread(), threads.budget(), threads.budget(1)}
        assert found == {threads.REFERENCE}
        assert dmlcpu.get_num_threads() == 8


@pytest.mark.parametrize(
    ("policy", "awake"), [("", pool.AWAKE), ("ACTIVE", pool.AWAKE), ("passive", 0), ("PASSIVE", 0)]
)
@pytest.mark.skipif(not pool.AVAILABLE, reason="this system has only Numba's threads")
def test_helpers_wait_as_openmp_is_told_to(monkeypatch, policy, awake):
    monkeypatch.setenv("OMP_WAIT_POLICY", policy)
    monkeypatch.setattr(threads, "asked_for", lambda: None)
    assert threads._make_layer()._patience == awake


@pytest.mark.parametrize(("available", "asked"), [(False, None), (True, "tbb"), (False, "omp")])
def test_numbas_layer_is_used_where_the_pool_is_not_available_or_if_it_is_asked_for(monkeypatch, available, asked):
    monkeypatch.setattr(threads, "AVAILABLE", available)
    monkeypatch.setattr(threads, "asked_for", lambda: asked)
    assert isinstance(threads._make_layer(), NumbaLayer)


@pytest.mark.skipif(not pool.AVAILABLE, reason="this system has only Numba's threads")
def test_there_are_no_more_helpers_than_other_processors(monkeypatch):
    monkeypatch.setattr(threads, "asked_for", lambda: None)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 3, 5})
    assert "of at most 2 helpers" in threads._make_layer().describe()["layer"]


@pytest.mark.skipif(not pool.AVAILABLE, reason="this system has only Numba's threads")
def test_a_forked_child_gets_a_pool_of_its_own(fresh):
    code = """
    before = threads.layer()
    child = os.fork()
    if child == 0:
        os._exit(threads.layer() is before)
    print(os.waitpid(child, 0)[1], threads.layer() is before)
    """
    assert fresh(code).split() == ["0", "True"]


@pytest.mark.skipif(not pool.AVAILABLE, reason="this system has only Numba's threads")
def test_at_the_end_of_the_process_the_pool_is_closed(fresh):
    code = """
    from dmlcpu.runtime.pool import Pool
    closed = []
    Pool.close = lambda self: closed.append(self)
    mine = threads.layer()
    threads._close()
    print(len(closed), closed[0] is mine)
    """
    assert fresh(code).split() == ["1", "True"]


def test_limit_threads_in_two_threads_at_a_time_puts_each_limit_back(seven_helpers):
    dmlcpu.set_num_threads(3)
    inside, leave = threading.Event(), threading.Event()
    seen = []

    def work():
        with threads.limit_threads(1), threads.limit_threads(1):
            inside.set()
            leave.wait(30)
            seen.append(threads.budget().threads)
        seen.append(threads.budget().threads)

    other = threading.Thread(target=work)
    other.start()
    assert inside.wait(30)
    assert threads.budget().threads == dmlcpu.get_num_threads() == 3
    with contextlib.suppress(KeyError), threads.limit_threads(1):
        leave.set()  # both leave at about the same time
        assert threads.budget().threads == 1
        raise KeyError
    other.join()
    assert seen == [1, 3]
    assert threads.budget().threads == 3


@pytest.mark.parametrize(
    ("n", "most", "parts"), [(1, 9, 1), (2, 1000, 2), (61, 1000, 500), (64, 64, 64), (64, 65, 65), (3, 10**6, 25)]
)
def test_from_three_threads_on_there_are_several_parts_of_equally_many_pieces(n, most, parts):
    assert threads.parts_for(n, most) == parts
