"""Compute how long a plan takes on many threads, from its pieces timed alone and a model of waking and of memory.

The model, in nanoseconds: A caller posts its launch for one helper after the other, POST each. A helper that is awake
begins START later. If helpers sleep, the caller wakes the first one, and each helper wakes WOKEN more before it begins,
WAKE for each (three system calls at most). The woken helper begins after the time that was measured here. The thread
that is free first takes the next piece. No call is faster than memory, which moves BANDWIDTH bytes a second.
"""

import time
from functools import partial
from typing import NamedTuple
from unittest import mock

import numpy as np
from scaling_plans import PRODUCTS, Stage, counter_of, ends, tasks_of

from dmlcpu.runtime.boxes import WOKEN
from dmlcpu.runtime.kernel import Kernel

POST, START, WAKE = 200, 1_000, 6_400
BANDWIDTH = 380e9  # bytes a second, on a machine with 64 cores or more


class Runs(NamedTuple):
    """The stages of a call with each piece timed alone, and the seconds of all work that is not cut into pieces."""

    stages: list[Stage]
    rest: float


def run_alone(run, plan, probe_of=lambda args: time.thread_time):
    """Run a plan's pieces one after the other on this thread. Return a probe's gain for each, and the rest.

    Times are those of the thread on a core, because other programs may use the core as well.
    """
    stages, within = [], []

    def each(kernel, parts, *args, most=None):
        begin = time.thread_time()
        gains = gains_of(plan, kernel, parts, args, probe_of(args))
        stages.append(Stage(kernel.name, parts, min(most or parts, parts), gains))
        within.append(time.thread_time() - begin)

    with mock.patch.object(Kernel, "__call__", each):
        begin = time.thread_time()
        run()
        return Runs(stages, time.thread_time() - begin - sum(within))


def gains_of(plan, kernel, parts, args, probe):
    """Run the pieces of a launch. Return the probe's gain for each; pieces of one call share its gain evenly."""
    gains, calls = [], calls_of(plan, kernel, parts, args)
    before = probe()
    for call, pieces in calls:
        call()
        after = probe()
        gains += [float(after - before) / pieces] * pieces
        before = after
    return gains


def calls_of(plan, kernel, parts, args):
    """Return the calls that run the pieces of a launch, and the number of pieces that each runs.

    In a product, a thread packs A once for several pieces: these are one call.
    """
    counter = counter_of(plan, kernel.name)
    if counter is None:
        return [(partial(kernel.share, part, parts, *args), 1) for part in range(parts)]
    *others, work, scratch = args
    tasks, calls = tasks_of(plan, counter, scratch), []
    runs = -(-tasks // counter.run)
    together = max(1, runs // parts) if plan.operator in PRODUCTS else 1
    for number in range(0, runs, together):
        mine, pieces = work.copy(), min(together, runs - number)
        stop = partial(counter.stop, mine, scratch, min((number + pieces) * counter.run, tasks))
        call = partial(kernel.share, number // together % parts, parts, *others, mine, scratch)
        calls.append((partial(_from, number, counter.cell, scratch, stop, call), pieces))
    return calls


def _from(number, cell, scratch, stop, call):
    """Run a share on the run of tasks with a number alone."""
    scratch[cell] = number
    stop()
    call()


def fastest(run, plan, repeats):
    """Return the runs with the least time of each piece and of the rest. A first run may compile; it is not counted."""
    run_alone(run, plan)
    found = [run_alone(run, plan) for _ in range(repeats)]
    stages = [
        same[0]._replace(pieces=[min(times) for times in zip(*[stage.pieces for stage in same], strict=True)])
        for same in zip(*[each.stages for each in found], strict=True)
    ]
    rests = [each.rest for each in found]
    if plan.operator != "scatter_nd":  # its stages need one another's results
        rests += [rest_alone(run) for _ in range(20 * repeats)]
    return Runs(stages, min(rests))


def rest_alone(run):
    """Return the seconds of all work that is not cut, without the pieces, which would empty the caller's caches.

    If many threads share the pieces, the caller runs few of them.
    """

    def skip(*_, **__):
        pass

    with mock.patch.object(Kernel, "__call__", skip):
        begin = time.perf_counter()
        run()
        return time.perf_counter() - begin


def rises(helpers, waking):
    """Return after how many nanoseconds each helper begins, if all sleep when a call begins."""
    woken = []  # when each is awake, in the order in which they are woken
    for number in range(helpers):
        if number == 0:
            before, turn = helpers * POST, 1
        else:
            before, turn = woken[(number - 1) // WOKEN], 1 + (number - 1) % WOKEN
        woken.append(before + turn * WAKE + waking)
    wakes = [min(WOKEN, max(0, helpers - 1 - number * WOKEN)) for number in range(helpers)]
    return [time + WAKE * count for time, count in zip(woken, wakes, strict=True)]


def estimate(runs, moved, waking=None):
    """Return the seconds of a call from its pieces and bytes. waking: nanoseconds, if its threads sleep."""
    clock = begin = runs.rest
    asleep: list[float] = []
    for stage in runs.stages:
        helpers = stage.threads - 1
        posted = clock + helpers * POST * 1e-9
        if waking is not None and len(asleep) < helpers:
            asleep = [begin + each * 1e-9 for each in rises(helpers, waking)]
            posted += WAKE * 1e-9
        late = asleep[:helpers] or [0.0] * helpers
        free = [max(posted + START * 1e-9, each) for each in late]
        clock = max(ends(stage.pieces, [posted, *free]), default=posted)
    return max(clock, begin + moved / BANDWIDTH)


def updates_of_shares(call, run, plan):
    """Return the plan's stage that applies updates, with the number of updates in each share.

    All updates are 1 and x is 0, so the output counts them. If one thread applies all updates, its share includes the
    work of the threads that checked the indices.
    """
    x = call.requested[1][0]
    out = run.outputs[0].reshape(len(x), -1)[:, 0]
    out[...] = 0

    def probe_of(args):
        """Count what is in the output, which is large, only where a kernel may write it."""
        writes = any(isinstance(each, np.ndarray) and np.may_share_memory(each, out) for each in args)
        return out.sum if writes else lambda: 0

    applied = [stage for stage in run_alone(run, plan, probe_of).stages if sum(stage.pieces)]
    if not applied:
        return Stage("apply", 1, plan.parts, [1.0])
    return applied[0]._replace(pieces=[piece for turn in applied for piece in turn.pieces])
