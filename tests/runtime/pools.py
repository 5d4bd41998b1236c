"""Kernels whose parts wait for one another, and how a pool runs them."""

import time

import numpy as np

from dmlcpu.runtime import boxes
from dmlcpu.runtime.atomics import exchange, load, nanoseconds
from dmlcpu.runtime.kernel import kernel

SECOND = 1_000_000_000


@kernel
def count(part, parts, done):
    done[part] += 1


@kernel
def meet(part, parts, met, patience):
    """Wait until all parts are under way at once; met[part] is 1 then, and 2 if that took too long."""
    exchange(met, part, 1)
    end = nanoseconds() + patience
    for other in range(parts):
        while load(met, other) == 0:
            if nanoseconds() > end:
                met[part] = 2
                return


@kernel
def linger(part, parts, done, nanoseconds_each):
    """Take longer for later parts."""
    end = nanoseconds() + part * nanoseconds_each
    while nanoseconds() < end:
        pass
    done[part] = 1


@kernel
def meet_after_first(part, parts, met, patience):
    """Let the first part end when met[0] is set; the others meet."""
    if part > 0:
        exchange(met, part, 1)
    end = nanoseconds() + patience
    for other in range(parts if part else 1):
        while load(met, other) == 0:
            if nanoseconds() > end:
                met[part] = 2
                return


def run(pool, kernel, parts, *args):
    assert pool.launch(kernel.address(args), parts, args, parts - 1)


def cells(n):
    return np.zeros(n, np.int64)


def wait_for_sleep(pool):
    """Wait until all helpers sleep."""
    for _ in range(2000):
        if not pool.awake() and (pool._boxes["state"] == boxes.ASLEEP).all():
            return
        time.sleep(0.001)
    raise AssertionError("the helper does not fall asleep")
