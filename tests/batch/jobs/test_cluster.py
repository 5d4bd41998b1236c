import os
import signal
import subprocess
import sys
import threading
from functools import partial

import pytest
import serving
from processes_of_jobs import HERE, begun, ended, eventually, start

from dmlcpu.batch.jobs import cluster
from dmlcpu.batch.jobs.cluster import on_cluster
from dmlcpu.batch.jobs.workers import Lost, WorkerError
from dmlcpu.common.extras import MissingExtraError

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")

POSIX = pytest.mark.skipif(sys.platform == "win32", reason="of POSIX")


@pytest.fixture(autouse=True)
def _modules_of_tests(monkeypatch):
    """Let workers import `serving`."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]))


@pytest.fixture
def elsewhere():
    """Return the address of a cluster that this run did not start, of two workers of two threads."""
    with distributed.LocalCluster(
        n_workers=2,
        threads_per_worker=2,
        processes=False,
        dashboard_address=None,
        scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},
    ) as running:
        yield running.scheduler_address


def served(serve, items, address="local", workers=2, retries=1, stopping=lambda: False):
    return on_cluster(serve, items, address=address, workers=workers, retries=retries, stopping=stopping)


@pytest.mark.parametrize("count", [0, 1, 500])
def test_each_item_once(elsewhere, count):
    results = list(served(serving.doubled, range(count), elsewhere))
    assert sorted(results) == [(position, 2 * position) for position in range(count)]


def test_items_that_take_long_after_short_ones(elsewhere, monkeypatch):
    """A task gives back what it has no time for."""
    monkeypatch.setattr(cluster, "_LONGEST", 0.05)
    serving.calls.clear()
    items = [*[0.0] * 100, *[0.03] * 20, *[0.0] * 100]
    results = list(served(serving.sleeping, items, elsewhere))
    assert sorted(results) == list(enumerate(items))
    assert 10 <= len(serving.calls) <= 60


def test_a_local_cluster():
    """Its workers are processes that are heard of on this machine only."""
    results = dict(served(serving.addresses, range(4)))
    assert sorted(results) == [0, 1, 2, 3]
    assert {address for addresses in results.values() for address in addresses} == {"127.0.0.1"}


@POSIX
@pytest.mark.parametrize("retries", [0, 1])
def test_items_that_kill_are_lost_and_no_others(tmp_path, retries, capfd):
    items = [-value if value in (1, 20, 21) else value for value in range(40)]
    results = dict(served(partial(serving.dying, tmp_path, 99, signal.SIGKILL), items, retries=retries))
    lost = {position: result for position, result in results.items() if isinstance(result, Lost)}
    assert sorted(lost) == [1, 20, 21]
    for position in lost:
        assert len((tmp_path / str(position)).read_text()) <= retries + 2
        assert lost[position].reason == "worker of the cluster died"
    assert {position: results[position] for position in results if position not in lost} == {
        position: 2 * item for position, item in enumerate(items) if item >= 0
    }
    assert capfd.readouterr() == ("", "")


@POSIX
def test_a_worker_killed_midway():
    results, killed = {}, None
    for position, (value, process) in served(partial(serving.pausing, 0.01), range(100)):
        assert position not in results
        results[position] = value
        if killed is None and len(results) >= 20:
            killed = process
            os.kill(killed, signal.SIGKILL)
    assert killed is not None
    assert results == dict(enumerate(range(100)))


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
def test_a_fault_of_the_function_ends_the_run(elsewhere, serve, message):
    with pytest.raises(WorkerError, match=message):
        list(served(serve, range(10), elsewhere))


def test_stopping_finishes_what_has_begun(tmp_path):
    """Tasks that wait in the workers are not begun."""

    def stopping():
        if len(begun(tmp_path)) < 2:
            return False
        threading.Timer(1.0, (tmp_path / "go").touch).start()
        return True

    results = list(served(partial(serving.slow, tmp_path), range(50), stopping=stopping))
    assert len(results) == 2
    assert all(position == result for position, result in results)


def test_no_scheduler():
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "200ms"}),
        pytest.raises(WorkerError, match=r"no scheduler at tcp://127\.0\.0\.1:9: "),
    ):
        list(served(serving.doubled, range(3), "tcp://127.0.0.1:9"))
    with pytest.raises(WorkerError, match="no scheduler at nonsense://x: "):
        list(served(serving.doubled, range(3), "nonsense://x"))


def test_names_the_missing_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(MissingExtraError, match=r"needs the package distributed: pip install 'dmlcpu\[cluster\]'"):
        cluster.check("local")
    with pytest.raises(MissingExtraError):
        list(served(serving.doubled, range(3)))


RUNS_FOR_LONG = """
    import signal
    from functools import partial
    import serving
    from dmlcpu.batch.jobs.cluster import on_cluster

    if __name__ == "__main__":
        asked = []
        signal.signal(signal.SIGINT, lambda *_: asked.append(1))
        serve = partial(serving.slow, sys.argv[1])
        results = on_cluster(
            serve, range(9), address="local", workers=2, retries=0, stopping=lambda: bool(asked)
        )
        print(len(list(results)), len(asked))
"""


@POSIX
def test_workers_end_when_the_coordinator_is_killed(tmp_path):
    coordinator = start(RUNS_FOR_LONG, tmp_path)
    eventually(lambda: len(begun(tmp_path)) == 2)
    coordinator.kill()
    eventually(lambda: all(map(ended, begun(tmp_path))))
    coordinator.communicate(timeout=30)


@POSIX
def test_ctrl_c_reaches_the_workers_too(tmp_path):
    coordinator = start(RUNS_FOR_LONG, tmp_path, process_group=0)
    eventually(lambda: len(begun(tmp_path)) == 2)
    os.killpg(coordinator.pid, signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        coordinator.communicate(timeout=1.0)
    (tmp_path / "go").touch()
    output, errors = coordinator.communicate(timeout=30)
    assert errors == ""
    assert output == "2 1\n"


def test_a_script_needs_a_guard(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import serving\n"
        "from dmlcpu.batch.jobs.cluster import on_cluster\n"
        "list(on_cluster(serving.doubled, [1], address='local', workers=1, retries=0, stopping=lambda: False))\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(HERE), *sys.path]))}
    process = subprocess.run(
        [sys.executable, str(script)], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert process.returncode == 1
    assert 'start it under `if __name__ == "__main__":`' in process.stderr
