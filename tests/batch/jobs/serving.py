"""Functions that serve items, for worker processes: these import this module by its name."""

import os
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path


def doubled(items, stopping):
    for item in items:
        yield [2 * item]


def process_ids(items, stopping):
    for _ in items:
        yield [os.getpid()]


def two_ahead(items, stopping):
    """Finish an item only once the next was taken, unless there is none."""
    with ThreadPoolExecutor(1) as reader:
        coming = reader.submit(next, items, None)
        while (item := coming.result()) is not None:
            coming = reader.submit(next, items, None)
            # Only at the end may there be nothing to take.
            if not item["last"]:
                coming.result(timeout=30)
            yield [item["value"]]


def dying(folder, times, how, items, stopping):
    """Die of negative items, each so many times; note each try."""
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
    if how == "fork":  # what is left holds the pipe
        if os.fork() == 0:
            time.sleep(20)
            os._exit(0)
        os._exit(3)
    os.kill(os.getpid(), how)
    time.sleep(60)


def raising(items, stopping):
    for item in items:
        if item == 3:
            raise ValueError("item three")
        yield [item]


def ending(items, stopping):
    yield [next(items)]


def locking(items, stopping):
    for _ in items:
        yield [threading.Lock()]  # cannot be pickled


def printing(items, stopping):
    for item in items:
        print("printed", flush=True)
        yield [sys.stdin.read() + str(item)]


def slow(folder, items, stopping):
    """Note that an item has begun, and finish it once the file "go" is there."""
    for item in items:
        if stopping():
            return
        Path(folder, f"begun-{os.getpid()}").touch()
        while not Path(folder, "go").exists():
            time.sleep(0.01)
        yield [item]


def terminated(folder, items, stopping):
    """Send the process SIGTERM while it is at an item, the first time that there is one."""
    for item in items:
        if stopping():
            return
        first = Path(folder, "first")
        if not first.exists():
            first.touch()
            os.kill(os.getpid(), signal.SIGTERM)
        yield [item]


def waiting(folder, items, stopping):
    """Wait in the second item until the result of the first is told."""
    for item in items:
        end = time.monotonic() + 20
        while item == 1 and not Path(folder, "told").exists():
            assert time.monotonic() < end
            time.sleep(0.01)
        yield [item]


def pausing(seconds, items, stopping):
    for item in items:
        if stopping():
            return
        time.sleep(seconds)
        yield [(item, os.getpid())]


class NoLoading:
    """Can be pickled, but not loaded."""

    def __reduce__(self):
        return int, ("no number",)

    def __call__(self, items, stopping):
        yield [*items]


def addresses(items, stopping):
    """Return where this process, and the one that started it, listen."""
    import psutil

    for _ in items:
        processes = psutil.Process(), psutil.Process().parent()
        found = [each for process in processes for each in process.net_connections()]
        yield [[each.laddr.ip for each in found if each.status == "LISTEN"]]


calls = []


def sleeping(items, stopping):
    calls.append(1)
    for item in items:
        if stopping():
            return
        time.sleep(item)
        yield [item]


def nothing(items, stopping):
    yield from ()


class LoadsOnce:
    """Is loaded by the first process that tries; others wait for ever."""

    def __init__(self, folder):
        self.folder = folder

    def __reduce__(self):
        return load_once, (self.folder,)


def load_once(folder):
    try:
        Path(folder, "loaded").touch(exist_ok=False)
    except FileExistsError:
        time.sleep(3600)
    return doubled
