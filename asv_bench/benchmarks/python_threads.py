"""Small and medium calls of several operators, made by many Python threads together and by one.

NUMBA_THREADING_LAYER chooses the threading layer.
"""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

from . import conditions
from .cases.top_k import TopKCase
from .common import MIDDLE, MIXED
from .peers import ONE_THREAD, build

CALLS = 4_800
MANY = 16
# Calls of 0.1 to 2 ms, which many Python threads make at a time, and the contenders.
OF_CALLERS = {
    "top_k": (TopKCase((100, 10_000), 10), TopKCase((64, 32_000), 50)),
    "top_k, scatter_nd and products": MIDDLE,
}
CALLERS = ("dmlcpu", ONE_THREAD, "torch")


class Team:
    """Python threads that share calls: those of `MIXED`, unless others are given."""

    def __init__(self, python_threads, calls=()):
        self.calls = calls or [build(case, "dmlcpu") for case in MIXED]
        self.share = CALLS // python_threads
        self.start = threading.Barrier(python_threads)
        self.pool = ThreadPoolExecutor(python_threads)
        self.places = range(python_threads)
        self.each(1)  # starts the threads, and allocates their scratch

    def work(self):
        return self.each(self.share)

    def each(self, calls):
        """Let each thread make `calls` calls; return the result of each thread's last one."""
        return list(self.pool.map(self.one, self.places, [calls] * len(self.places)))

    def one(self, place, calls):
        """Make the calls in turns, beginning with number `place`."""
        self.start.wait()
        for number in range(place, place + calls):
            result = self.calls[number % len(self.calls)]()
        return result

    def latencies(self, calls):
        """Let each thread make `calls` calls; return the seconds of each."""
        found = self.pool.map(self.timed, self.places, [calls] * len(self.places))
        return [seconds for each in found for seconds in each]

    def timed(self, place, calls):
        """Make the calls as `one` does, and return the seconds of each."""
        self.start.wait()
        found = []
        for number in range(place, place + calls):
            begin = time.perf_counter()
            self.calls[number % len(self.calls)]()
            found.append(time.perf_counter() - begin)
        return found

    def close(self):
        self.pool.shutdown()


class PythonThreads:
    params = ([MANY, 1],)
    param_names = ("python_threads",)
    version = "1"
    number = 1
    warmup_time = 0
    repeat = (3, 10, 10.0)

    def setup(self, python_threads):
        self.team = Team(python_threads)
        time.sleep(conditions.REST)

    def teardown(self, python_threads):
        self.team.close()

    def time_4800_calls(self, python_threads):
        return self.team.work()
