"""The dispatcher over processes of loky's, a Dask cluster and a pool of threads."""

import contextlib
import multiprocessing
import os
import pickle
import random
import signal
import sys
import threading
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial

import pytest
import serving
from processes_of_jobs import HERE, begun

from dmlcpu.jobs import dispatch as dispatch_module
from dmlcpu.jobs.dispatch import Dispatcher, Lost, WorkerError, Workers
from dmlcpu.jobs.executors import Cluster, Processes

POSIX = pytest.mark.skipif(sys.platform == "win32", reason="of POSIX")
EVERYWHERE = pytest.mark.parametrize("kind", ["loky", "dask", "threads"])


@contextlib.contextmanager
def started(kind, count=2):
    """Start workers: "dask" is a Dask cluster of threads, "dask's" one of processes."""
    with contextlib.ExitStack() as stack:
        if kind == "threads":
            workers = Workers(stack.enter_context(ThreadPoolExecutor(count)), count)
        elif kind == "loky":
            workers = Processes(count, {}, begin=serving.begin_without_numba)
        else:
            pytest.importorskip("distributed")
            from clusters import local_cluster

            cluster = local_cluster(count, processes=kind == "dask's")
            workers = Cluster(stack.enter_context(cluster).scheduler_address)
        yield stack.enter_context(workers)


@pytest.fixture(autouse=True)
def _modules_of_tests(monkeypatch):
    """Let workers import `serving`."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]))


def served(workers, serve, items, retries=1, stopping=lambda: False):
    return Dispatcher(serve, items, workers, retries=retries, stopping=stopping).results()


@EVERYWHERE
def test_each_item_is_served_once(kind):
    with started(kind) as workers:
        for count in (0, 1, 500):
            results = list(served(workers, serving.doubled, range(count)))
            assert sorted(results) == [(position, 2 * position) for position in range(count)]


@EVERYWHERE
def test_a_chunk_returns_the_items_that_it_has_no_time_for(kind, monkeypatch):
    if kind == "loky":
        pytest.skip("its processes count their calls themselves")
    monkeypatch.setattr(dispatch_module, "_LONGEST", 0.05)
    serving.calls.clear()
    items = [*[0.0] * 100, *[0.03] * 20, *[0.0] * 100]
    with started(kind) as workers:
        results = list(served(workers, serving.sleeping, items))
    assert sorted(results) == list(enumerate(items))
    assert 10 <= len(serving.calls) <= 60


def test_all_workers_work_until_the_end():
    """The last items are shared evenly."""
    with started("loky") as workers:
        results = list(served(workers, partial(serving.pausing, 0.05), range(40)))
    per_worker = [process for _, (_, process) in results]
    assert sorted(map(per_worker.count, set(per_worker)))[0] >= 14


@EVERYWHERE
@pytest.mark.parametrize(
    ("serve", "message"),
    [
        (serving.raising, r'(?s)Traceback.*in raising\n.*raise ValueError\("item three"\)\nValueError: item three'),
        (serving.locking, "(?s)Traceback.*pickle"),
        (serving.NoLoading(), "(?s)Traceback.*ValueError: invalid literal for int"),
        (serving.nothing, "ended before its items"),
    ],
    ids=["raises", "result", "loading", "ends"],
)
def test_a_fault_of_the_function_ends_the_run(kind, serve, message):
    with started(kind) as workers, pytest.raises(WorkerError, match=message):
        list(served(workers, serve, range(10)))


@EVERYWHERE
def test_stopping_finishes_the_items_that_have_begun_and_no_others(kind, tmp_path):
    looks = []

    def stopping():
        if len(begun(tmp_path)) < 2:
            return False
        looks.append(None)
        if len(looks) == 3:  # twice no: not only at once
            threading.Timer(0.7, (tmp_path / "go").touch).start()
        return len(looks) >= 3

    with started(kind) as workers:
        results = list(served(workers, partial(serving.slow, tmp_path), range(50), stopping=stopping))
    assert len(results) == 2
    assert all(position == result for position, result in results)


def test_stopping_before_anything_begins_serves_no_item():
    with started("threads") as workers:
        assert list(served(workers, serving.doubled, range(5), stopping=lambda: True)) == []


@POSIX
@pytest.mark.slow
@pytest.mark.parametrize(("kind", "retries"), [("loky", 0), ("loky", 2), ("dask's", 1)])
def test_items_that_kill_their_worker_are_lost_and_no_others(kind, tmp_path, retries, capfd):
    items = [-value if value in (1, 21) else value for value in range(40)]
    serve = partial(serving.dying, tmp_path, 99, signal.SIGKILL)
    with started(kind) as workers:
        results = dict(served(workers, serve, items, retries))
    lost = {position: result for position, result in results.items() if isinstance(result, Lost)}
    assert sorted(lost) == [1, 21]
    for position in lost:
        # One that has died with others in flight, or in a chunk with others, may not be the one to blame. One that was
        # in flight but had not begun counts as tried.
        assert max(retries, 1) <= len((tmp_path / str(position)).read_text()) <= max(retries + 1, 3)
        assert (
            lost[position].reason == {"loky": "worker killed by SIGKILL", "dask's": "worker of the cluster died"}[kind]
        )
    assert {position: results[position] for position in results if position not in lost} == {
        position: 2 * item for position, item in enumerate(items) if item >= 0
    }
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("count", [1, 2])
def test_items_that_are_late_are_lost_at_once_and_no_others(tmp_path, count):
    items = [0.0] * 20
    items[3] = items[11] = 60.0
    with started("loky", count) as workers:
        serve = partial(serving.noted, tmp_path)
        found = dict(Dispatcher(serve, items, workers, 2, lambda: False, timeout=0.5).results())
    late = Lost("took longer than 0.5 s", 0.5)
    assert found == dict(enumerate(items)) | {3: late, 11: late}
    # None is tried again, unless it was in hand when another one was late.
    assert 2 <= len([*tmp_path.iterdir()]) <= 1 + count


@POSIX
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSEGV, "exit"])
def test_an_item_that_kills_once_is_tried_again(tmp_path, how):
    items = [*range(20), -20, *range(21, 40)]
    with started("loky") as workers:
        results = dict(served(workers, partial(serving.dying, tmp_path, 1, how), items))
    assert results == {position: 2 * item for position, item in enumerate(items)}
    assert (tmp_path / "20").read_text() == "xx"


@POSIX
def test_the_reason_tells_how_a_worker_died(tmp_path):
    with started("loky", 1) as workers:
        ((_, lost),) = served(workers, partial(serving.dying, tmp_path, 99, "exit"), [-1], retries=1)
        assert lost.reason == "worker exited with code 3"
        how = signal.SIGRTMIN + 1
        ((_, lost),) = served(workers, partial(serving.dying, tmp_path, 99, how), [-1], retries=0)
        assert lost.reason == f"worker killed by signal {signal.SIGRTMIN + 1}"


@POSIX
@pytest.mark.parametrize(("kind", "kills"), [("loky", 6), pytest.param("dask's", 1, marks=pytest.mark.slow)])
def test_workers_killed_at_random_lose_no_item(kind, kills):
    chance = random.Random(17)
    results, killed = {}, set()
    with started(kind) as workers:
        for position, (value, process) in served(workers, partial(serving.pausing, 0.005), range(300), retries=30):
            assert position not in results
            results[position] = value
            if len(killed) < kills and process not in killed and chance.random() < 0.1:
                with contextlib.suppress(ProcessLookupError):  # loky has ended it, as another one died
                    os.kill(process, signal.SIGKILL)
                    killed.add(process)
    assert len(killed) == kills
    assert results == dict(enumerate(range(300)))


class Dying(Workers):
    """Workers that die of each chunk with an item that is not spared."""

    def __init__(self, spared):
        super().__init__(self, 1)
        self.spared = spared
        self.deaths = 0

    def submit(self, function, run, pickled, *others):
        future = Future()
        _, items = pickle.loads(pickled)
        if self.spared.issuperset(items):
            future.set_result(function(run, pickled, *others))
        else:
            future.set_exception(BrokenExecutor("The exit codes of the workers are {SIGKILL(-9)}"))
        return future

    def renew(self, reason):
        self.deaths += 1


@pytest.mark.parametrize("retries", [0, 2])
def test_workers_that_die_of_everything_end_the_run(retries):
    """Memory for no job is left, for example."""
    lost = []
    with Dying(set()) as workers, pytest.raises(WorkerError) as caught:
        lost.extend(served(workers, serving.doubled, range(100), retries=retries))
    assert workers.deaths < 5 * (retries + 2)
    assert str(caught.value) == (
        f"workers died {5 * (retries + 2)} times in a row (worker killed by SIGKILL), and no job was finished "
        "meanwhile; allowed: more memory, or fewer workers"
    )


def test_workers_that_die_of_some_items_do_not():
    spared = set(range(0, 100, 4))
    with Dying(spared) as workers:
        results = dict(served(workers, serving.doubled, range(100), retries=2))
    assert {position for position, result in results.items() if not isinstance(result, Lost)} == spared


class Forgetful(ThreadPoolExecutor):
    """An executor whose first result is lost as Dask loses one: a worker dies before its status is looked at."""

    has_lost = False

    def submit(self, *arguments):
        future = super().submit(*arguments)
        if self.has_lost:
            return future
        self.has_lost, failed = True, Future()
        try:
            _, exc, tb = future.result()
            raise exc.with_traceback(tb)
        except AttributeError as error:
            failed.set_exception(error)
        return failed


def test_a_result_that_dask_loses_is_computed_again():
    with Forgetful(1) as executor, Workers(executor, 1) as workers:
        assert dict(served(workers, serving.doubled, range(20))) == {number: 2 * number for number in range(20)}
    assert executor.has_lost


def test_an_executor_that_was_shut_down_is_an_error():
    workers = Workers(ThreadPoolExecutor(1), 1)
    workers.executor.shutdown()
    with workers, pytest.raises(WorkerError, match="the executor is broken: cannot schedule new futures"):
        list(served(workers, serving.doubled, [1]))


@POSIX
def test_a_broken_executor_of_the_program_ends_the_run(tmp_path):
    context = multiprocessing.get_context("spawn")
    serve = partial(serving.dying, tmp_path, 99, "exit")
    with (
        ProcessPoolExecutor(2, context) as executor,
        Workers(executor, 2) as workers,
        pytest.raises(WorkerError, match="the executor is broken: worker died"),
    ):
        list(served(workers, serve, [1, -2, 3]))
