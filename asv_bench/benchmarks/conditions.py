"""The regimes of timed calls: the activity of the program before a call, and of other processes beside it."""

import contextlib
import functools
import os
import subprocess
import sys
import time
from unittest import mock

from dmlcpu.runtime import pool, threads

REST = 0.06  # seconds: a thread of ONNX Runtime 1.32 spins for 40 ms after its last call
WARM = 0.008
BUSY_CORES = max(1, (os.cpu_count() or 1) // 2)
REGIMES = {
    "steady": "calls follow one another",
    "paused": "each call after a pause",
    "crowded": "each call right after calls of other libraries, whose threads still spin",
    "oversubscribed": "calls follow one another, on more threads than there are processors",
    "busy": f"calls follow one another while other processes compute (as many as {BUSY_CORES})",
}
# The child prints a line when it has begun. It ends when its standard input does, also if its parent was killed.
_BUSY = """
import os, threading

def end_with_the_parent():
    os.read(0, 1)
    os._exit(0)

threading.Thread(target=end_with_the_parent).start()
print(flush=True)
while True:
    pass
"""


def ready(call, regime="steady", others=()):
    """Return the call, ready to be timed in a regime. others: calls of other libraries to make before it, if crowded.

    Thread pools spin for a while after their last call and take the cores from the next contender: a rest lets them
    sleep. Untimed calls then wake the contender's own threads and fill the caches, for long enough that the scheduler
    of a virtual machine, which packs woken threads onto one core, spreads them. A paused call has only the rest, a
    crowded one neither.
    """
    if regime == "crowded":
        for other in others:
            other()
        return call
    time.sleep(REST)
    if regime == "paused":
        return call
    end = time.perf_counter() + WARM
    call()
    while time.perf_counter() < end:
        call()
    return call


@contextlib.contextmanager
def surroundings(regime):
    """Occupy cores for as long as the context lasts, if the regime is busy."""
    with contextlib.ExitStack() as stack:
        for _ in range(BUSY_CORES if regime == "busy" else 0):
            child = subprocess.Popen(
                [sys.executable, "-c", _BUSY],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,  # Ctrl-C is for the parent, which then kills
            )
            stack.enter_context(child)
            stack.callback(child.kill)
            child.stdout.readline()
        yield


@contextlib.contextmanager
def team(count):
    """Let calls use a number of threads within a ``with``, however many processors there are."""
    if not pool.AVAILABLE:
        raise NotImplementedError("only dmlcpu's own threads may be more than processors")
    with mock.patch.object(threads, "_layer", _helpers(count - 1)), threads.use_budget(count):
        yield


@functools.cache
def _helpers(count):
    return pool.Pool(count)
