import os
import random
import signal
import subprocess
import sys
import threading
import time
from functools import partial

import pytest
import serving
from processes_of_jobs import HERE, begun, children, ended, eventually, gone, start

from dmlcpu.batch.jobs import workers
from dmlcpu.batch.jobs.workers import Lost, WorkerError, in_processes

POSIX = pytest.mark.skipif(sys.platform == "win32", reason="of POSIX")


def never():
    return False


def served(serve, items, workers=2, retries=1, stopping=never, **options):
    return in_processes(serve, items, workers=workers, retries=retries, stopping=stopping, **options)


@pytest.mark.parametrize("window", [1, 8])
@pytest.mark.parametrize(("count", "processes"), [(0, 2), (1, 3), (5, 1), (200, 3)])
def test_each_item_once(count, processes, window):
    results = list(served(serving.doubled, range(count), processes, window=window))
    assert sorted(results) == [(position, 2 * position) for position in range(count)]


def test_no_more_workers_than_items_and_all_end():
    ids = {process for _, process in served(serving.process_ids, range(2), 5)}
    assert len(ids) <= 2
    assert all(map(gone, ids))
    assert os.getpid() not in ids


def test_nobody_waits_for_a_worker_that_is_not_needed(tmp_path):
    results = list(served(serving.LoadsOnce(tmp_path), range(10), 2))
    assert sorted(results) == [(position, 2 * position) for position in range(10)]


def test_items_are_taken_ahead():
    items = [{"value": value, "last": value == 9} for value in range(10)]
    assert list(served(serving.two_ahead, items, 1)) == [(value, value) for value in range(10)]


def test_a_result_is_told_while_the_next_item_takes_long(tmp_path):
    for position, _ in served(partial(serving.waiting, tmp_path), range(3), 1):
        if position == 0:
            (tmp_path / "told").touch()


def test_all_workers_work():
    results = list(served(partial(serving.pausing, 0.01), range(40), 3))
    assert len({process for _, (_, process) in results}) == 3


def test_a_slow_worker_holds_up_two_items_at_most():
    """Items that take long are not handed out in advance, but for one."""
    done = list(served(partial(serving.pausing, 0.1), range(12), 2))
    per_worker = [process for _, (_, process) in done]
    assert sorted(map(per_worker.count, set(per_worker)))[0] >= 4


@POSIX
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSEGV, "exit", "fork"])
def test_items_of_a_dead_worker_are_tried_again(tmp_path, how):
    items = [*range(20), -20, *range(21, 40)]
    results = dict(served(partial(serving.dying, tmp_path, 1, how), items))
    assert results == {position: 2 * item for position, item in enumerate(items)}
    assert (tmp_path / "20").read_text() == "xx"


@POSIX
@pytest.mark.parametrize("window", [1, 8])
@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("retries", [0, 2])
def test_items_that_kill_are_lost_and_no_others(tmp_path, retries, processes, window):
    items = [-value if value in (7, 8, 30) else value for value in range(40)]
    serve = partial(serving.dying, tmp_path, 99, signal.SIGKILL)
    results = dict(served(serve, items, processes, retries, window=window))
    lost = {position: result for position, result in results.items() if isinstance(result, Lost)}
    assert sorted(lost) == [7, 8, 30]
    for position in lost:
        tried = len((tmp_path / str(position)).read_text())
        # With no retries an item has a second try if it is not sure that the first was the end of the worker.
        assert tried <= max(retries + 1, 2)
        assert lost[position].reason == "worker killed by SIGKILL"
        assert retries < lost[position].tries <= retries + 2
    assert {position: results[position] for position in results if position not in lost} == {
        position: 2 * item for position, item in enumerate(items) if item >= 0
    }


@POSIX
def test_how_a_worker_died(tmp_path):
    ((_, lost),) = served(partial(serving.dying, tmp_path, 99, "exit"), [-1], retries=1)
    assert lost == Lost("worker exited with code 3", 2)
    ((_, lost),) = served(partial(serving.dying, tmp_path, 99, signal.SIGRTMIN + 1), [-1], retries=0)
    assert lost == Lost(f"worker killed by signal {signal.SIGRTMIN + 1}", 1)


@POSIX
def test_workers_killed_at_random():
    chance = random.Random(17)
    kills, results = 0, {}
    for position, (value, process) in served(partial(serving.pausing, 0.003), range(300), 3, retries=30):
        assert position not in results
        results[position] = value
        if chance.random() < 0.1:
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:  # killed before
                continue
            kills += 1
    assert kills >= 10
    assert results == dict(enumerate(range(300)))


@POSIX
def test_a_terminated_worker_leaves_its_items_to_others(tmp_path):
    results = list(served(partial(serving.terminated, tmp_path), range(50), 2, retries=0))
    assert sorted(results) == [(position, position) for position in range(50)]
    assert (tmp_path / "first").exists()


@pytest.mark.parametrize(
    ("serve", "message"),
    [
        (serving.raising, r'(?s)Traceback.*in raising\n.*raise ValueError\("item three"\)\nValueError: item three'),
        (serving.locking, "(?s)Traceback.*pickle"),
        (serving.NoLoading(), "(?s)Traceback.*ValueError: invalid literal for int"),
        (serving.ending, "ended before its items"),
    ],
    ids=["raises", "result", "loading", "ends"],
)
def test_a_fault_of_the_function_ends_the_run(serve, message):
    with pytest.raises(WorkerError, match=message):
        list(served(serve, range(10)))


def test_an_item_that_cannot_be_loaded():
    with pytest.raises(WorkerError, match="invalid literal for int"):
        list(served(serving.doubled, [serving.NoLoading()]))


@POSIX
def test_workers_that_cannot_start(monkeypatch, tmp_path):
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\necho x >> {tmp_path}/starts\nexit 7\n")
    python.chmod(0o755)
    monkeypatch.setattr(workers.sys, "executable", str(python))
    with pytest.raises(WorkerError, match="workers do not start: worker exited with code 7"):
        list(served(serving.doubled, range(10)))
    assert len((tmp_path / "starts").read_text().split()) <= 5


@pytest.mark.parametrize("processes", [1, 2])
def test_stopping_finishes_what_has_begun(tmp_path, processes):
    looks = []

    def stopping():
        if len(begun(tmp_path)) < processes:
            return False
        looks.append(None)
        if len(looks) == 3:  # twice no: not only at once
            threading.Timer(0.7, (tmp_path / "go").touch).start()
        return len(looks) >= 3

    results = list(served(partial(serving.slow, tmp_path), range(20), processes, stopping=stopping))
    assert len(results) == processes  # what was at hand
    assert all(position == result for position, result in results)


def test_stopping_before_anything_begins():
    assert list(served(serving.doubled, range(5), stopping=lambda: True)) == []


@POSIX
def test_closing_kills_workers():
    run = served(partial(serving.pausing, 0.01), range(1000), 2)
    ids = {next(run)[1][1] for _ in range(20)}
    assert not any(map(gone, ids))
    run.close()
    assert all(map(gone, ids))


RUNS_FOR_LONG = """
    import signal
    from functools import partial
    import serving
    from dmlcpu.batch.jobs.workers import in_processes

    asked = []
    signal.signal(signal.SIGINT, lambda *_: asked.append(1))
    serve = partial(serving.slow, sys.argv[1])
    results = list(in_processes(serve, range(9), workers=2, retries=0, stopping=lambda: bool(asked)))
    print(len(results), len(asked))
"""


@POSIX
def test_workers_end_when_the_coordinator_is_killed(tmp_path):
    coordinator = start(RUNS_FOR_LONG, tmp_path)
    eventually(lambda: len(begun(tmp_path)) == 2)
    coordinator.kill()
    eventually(lambda: all(map(ended, begun(tmp_path))))
    assert coordinator.communicate(timeout=30) == ("", "")


@POSIX
def test_ctrl_c_reaches_the_workers_too(tmp_path):
    coordinator = start(RUNS_FOR_LONG, tmp_path, process_group=0)
    eventually(lambda: len(begun(tmp_path)) == 2)
    os.killpg(coordinator.pid, signal.SIGINT)
    time.sleep(0.7)
    (tmp_path / "go").touch()
    output, errors = coordinator.communicate(timeout=30)
    assert errors == ""
    assert output == "2 1\n"
    assert all(map(gone, begun(tmp_path)))


@POSIX
def test_ctrl_c_while_workers_start(tmp_path):
    for pause in (0.05, 0.1, 0.15, 0.2):
        coordinator = start(
            RUNS_FOR_LONG.replace("results =", "print('up', flush=True)\n    results ="),
            tmp_path,
            process_group=0,
        )
        assert coordinator.stdout.readline() == "up\n"
        eventually(lambda pid=coordinator.pid: children(pid))
        time.sleep(pause - 0.05)
        os.killpg(coordinator.pid, signal.SIGINT)
        (tmp_path / "go").touch()
        output, errors = coordinator.communicate(timeout=30)
        assert errors == ""
        assert int(output.split()[0]) <= 9
        (tmp_path / "go").unlink()


UNGUARDED = """
import sys
sys.path.insert(0, sys.argv[1])
import serving
from dmlcpu.batch.jobs.workers import in_processes

print("the script runs", flush=True)
results = in_processes(serving.printing, range(3), workers=2, retries=0, stopping=lambda: False)
print(sorted(results), sys.stdin.read())
"""


def test_a_script_needs_no_guard(tmp_path):
    """And workers leave the standard streams alone."""
    script = tmp_path / "script.py"
    script.write_text(UNGUARDED)
    (tmp_path / "multiprocessing.py").write_text("raise SystemExit('not this one')")
    environment = {**os.environ, "PYTHONSAFEPATH": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    process = subprocess.run(
        [sys.executable, "-W", "error", str(script), str(HERE)],
        input="input",
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert process.stderr == ""
    assert process.stdout == "the script runs\n[(0, '0'), (1, '1'), (2, '2')] input\n"
