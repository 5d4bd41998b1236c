"""Small and medium calls of several operators, made by many Python threads together and by one.

NUMBA_THREADING_LAYER chooses the threading layer.
"""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

from . import conditions
from .common import MIXED
from .peers import build

CALLS = 4_800
MANY = 16


class Team:
    """Python threads that share the calls of `MIXED`."""

    def __init__(self, python_threads):
        self.calls = [build(case, "dmlcpu") for case in MIXED]
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
