"""Functions that serve items, for worker processes: these import this module by its name."""

import os
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

from dmlcpu.jobs.executors import begin_worker


def begin_without_numba(*arguments):
    """Begin a process of loky's that compiles nothing; to import Numba would be most of its work."""
    nothing = SimpleNamespace(watch_process=lambda begin: SimpleNamespace(total=lambda: 0.0))
    sys.modules["dmlcpu.runtime.compilation"] = nothing
    begin_worker(*arguments)


def doubled(items, stopping):
    for item in items:
        yield [2 * item]


def dying(folder, times, how, items, stopping):
    """Die of negative items, each as often as `times` says; note each try."""
    for item in items:
        if item < 0:
            tried = Path(folder, f"{-item}")
            with tried.open("a") as file:
                file.write("x")
            if tried.stat().st_size <= times:
                die(how)
        yield [2 * item]


def die(how):
    if how == "exit":
        os._exit(3)
    os.kill(os.getpid(), how)
    time.sleep(60)


def environment(name, items, stopping):
    for _ in items:
        yield [os.environ.get(name)]


def raising(items, stopping):
    for item in items:
        if item == 3:
            raise ValueError("item three")
        yield [item]


def locking(items, stopping):
    for _ in items:
        yield [threading.Lock()]  # cannot be pickled


def printing(items, stopping):
    for item in items:
        os.write(1, b"written")
        print("printed", flush=True)
        yield [sys.stdin.read() + str(item)]


def slow(folder, items, stopping):
    """Note that an item has begun, and finish it once the file "go" is there."""
    for item in items:
        if stopping():
            return
        Path(folder, f"begun-{os.getpid()}-{threading.get_ident()}").touch()
        while not Path(folder, "go").exists():
            time.sleep(0.01)
        yield [item]


def pausing(seconds, items, stopping):
    for item in items:
        if stopping():
            return
        time.sleep(seconds)
        yield [(item, os.getpid())]


def compiling(items, stopping):
    import numba

    for item in items:
        yield [numba.njit(lambda number: number)(item)]


class NoLoading:
    """Can be pickled, but not loaded."""

    def __reduce__(self):
        return int, ("no number",)

    def __call__(self, items, stopping):
        yield [*items]


calls = []


def sleeping(items, stopping):
    calls.append(1)
    for item in items:
        if stopping():
            return
        time.sleep(item)
        yield [item]


def noted(folder, items, stopping):
    """Sleep; note the items that take long."""
    for item in items:
        if item:
            Path(folder, f"{time.monotonic_ns()}").write_text(str(item))
        time.sleep(item)
        yield [item]


def hanging(settings, tasks, stopping):
    """Serve tasks, but for one that never ends."""
    from dmlcpu.jobs.serve import serve

    for task in tasks:
        if task.id == "0001":
            time.sleep(600)
        yield from serve(settings, [task], stopping)


def nothing(items, stopping):
    yield from ()
