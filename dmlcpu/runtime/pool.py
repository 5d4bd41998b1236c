"""dmlcpu's own threads, on Linux: helpers that wait for work awake, then asleep. No call waits for one that is late.

Each helper has a box through which it is handed launches (boxes.py). A helper whose core is busy costs nothing but its
help, and callers in several threads do not wait for one another.

Measured on two virtual cores of Zen 4 (Linux 6.18), int8 product 100 x 768 x 2304, ms: called in a row / after 30 ms of
sleep / next to a process that computes on one core. One thread 0.90 / 1.23 / 0.91; these threads 0.54 / 1.06 / 0.89;
TBB 0.80 / 1.36 / 0.99; GNU OpenMP 0.54 / 5.8 / 8.0, with GOMP_SPINCOUNT=1000 1.02 / 1.37 / 1.03.
"""

import functools
import logging
import math
import os
import threading
import time
from typing import Any

from numba import int64, intp

from dmlcpu.runtime import boxes
from dmlcpu.runtime.atomics import FUTEX
from dmlcpu.runtime.boxes import ASLEEP, BOX, CELLS, FIRST, FIRST_WAKING, FREE, HEAD
from dmlcpu.runtime.claims import Claims
from dmlcpu.runtime.jit import PYTHON_ONLY, compile_lazily
from dmlcpu.runtime.launches import compile_lead, compiled_launch
from dmlcpu.runtime.memory import aligned_empty
from dmlcpu.runtime.quota import cpu_quota
from dmlcpu.runtime.uninterrupted import uninterrupted

_log = logging.getLogger("dmlcpu")

AVAILABLE = bool(FUTEX)
# In nanoseconds. How long a helper stays awake after its last work: of 0.06 to 1.4 ms, 0.6 was best for calls in a row.
AWAKE = 600_000
_FALLING_ASLEEP = 20  # ms, at most, at the end of the process


@functools.cache
def _lead() -> tuple[Any, int]:
    """Return the compiled function that does launches, and where its machine code is."""
    lead: tuple[Any, int] = uninterrupted(compile_lead, boxes.lead, {"_nrt": False})
    return lead


@functools.cache
def _serve() -> Any:
    """Return the compiled function that helpers run."""
    return compile_lazily(boxes.serve, **PYTHON_ONLY)


def _processors() -> int:
    """Return how many processors the process has the time of."""
    allowed = len(os.sched_getaffinity(0)) if AVAILABLE else 1
    return min(allowed, math.ceil(cpu_quota() or allowed))


class Pool:
    """At most `most` helpers, each started when it is first wanted. They wait awake for `awake` nanoseconds.

    They end with the process.
    """

    def __init__(self, most: int, awake: int = AWAKE) -> None:
        self._cells = aligned_empty(FIRST + max(most, 1) * CELLS, "int64")
        self._cells[...] = 0
        self._head, self._boxes = self._cells[:FIRST].view(HEAD), self._cells[FIRST:].view(BOX)
        self._head["most"], self._head["confines"] = most, most == 1
        self._head["spare"] = _processors() - 1
        self._boxes["state"] = ASLEEP  # boxes without a helper are marked asleep
        self._boxes["waking"] = FIRST_WAKING
        self._awake = memoryview(self._head["awake"][0])  # read in half the time
        self.most, self._patience = most, awake
        self._count(0)
        self._known: set[int] = set()  # the addresses of kernels for whose arguments `launch` is compiled
        self._preparing = Claims()

    def launch(self, address: int, parts: int, args: tuple[Any, ...], helpers: int) -> bool:
        """Call the kernel at an address for every part; return False, and do nothing, while another thread prepares.

        The first launch of a kernel prepares: it compiles, and may start helpers. A finalizer or a signal handler that
        launches meanwhile gets False as well.
        """
        wanted = min(helpers, self.most)
        if address in self._known and self._helpers >= wanted:
            compiled_launch()(address, parts, wanted, args, self._started, _lead()[1])
            return True
        lock = threading.Lock()
        with lock:
            if not self._preparing.grant(lock):
                return False
            self._start(wanted)
            compiled_launch()(address, parts, wanted, args, self._started, _lead()[1])
            self._known.add(address)
        return True

    def compiled(self) -> list[Any]:
        """Return the compiled functions that this uses."""
        return [compiled_launch(), _serve(), _lead()[0]]

    def awake(self) -> int:
        """Return how many helpers are awake."""
        return self._awake[0]

    def waking(self) -> int:
        """Return what waking the first helper takes, in nanoseconds: a moving average of what was measured."""
        return int(self._boxes["waking"].item(0))

    def describe(self) -> dict[str, str | None]:
        """Return what `dmlcpu info` shows of threads."""
        waits = f"awake for {self._patience / 1e6:g} ms after a call, then asleep"
        return {
            "layer": f"dmlcpu's own ({self._helpers} of at most {self.most} helpers started)",
            "layer_from": "dmlcpu's default on Linux",
            "waiting": f"{waits} (OMP_WAIT_POLICY=passive)" if self._patience == 0 else waits,
            "advice": None,
        }

    def close(self) -> None:
        """Hand nothing to helpers any more; wait a moment until all are asleep, from which nothing wakes them."""
        states, self.most = self._boxes["state"][: self._helpers], 0
        self._count(0)
        for _ in range(_FALLING_ASLEEP):
            if (states == ASLEEP).all():
                break
            time.sleep(1e-3)

    def _start(self, wanted: int) -> None:
        if wanted <= self._helpers:
            return
        _serve().compile((int64[::1], intp, intp))  # once, and not in each thread
        for number in range(self._helpers, wanted):
            thread = threading.Thread(
                target=self._help, args=(number, threading.get_native_id()), name=f"dmlcpu-{number + 1}", daemon=True
            )
            self._boxes["state"][number] = FREE
            self._count(number + 1)  # first, or after an interrupt in `start` the box would get a second helper
            try:
                thread.start()
            except RuntimeError as error:  # the system has no more, or the interpreter is about to end
                self._give_up(number, str(error))
            if self.most <= number:
                break

    def _help(self, number: int, starter: int) -> None:
        if threading.get_native_id() == starter:
            self._give_up(number, "threads are greenlets here")  # of gevent: this would never return
            return
        self._boxes["thread"][number] = threading.get_native_id()
        _serve()(self._cells, FIRST + number * CELLS, self._patience)

    def _count(self, helpers: int) -> None:
        self._helpers, self._started = helpers, self._cells[: FIRST + helpers * CELLS]

    def _give_up(self, number: int, reason: str) -> None:
        _log.debug("no thread could be started (%s); there are %d", reason, number)
        self._boxes["state"][number] = ASLEEP
        self.most = number
        self._count(number)
