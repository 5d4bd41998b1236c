"""How long a plan takes on many threads: its pieces, timed alone here, and a model of waking and of memory.

The model, in nanoseconds. A caller posts its launch for one helper after the other, POST each. A helper that is awake
begins START later. If helpers sleep, the caller wakes the first one, and each helper wakes WOKEN more before it begins:
WAKE for each (three system calls at most), and the woken one rises as long after as was measured here. The next piece
is taken by the thread that is free first. No call is faster than memory: BANDWIDTH for all bytes that it moves.
"""

import time
from functools import partial
from typing import NamedTuple
from unittest import mock

from scaling_plans import PRODUCTS, Stage, counter_of, ends, tasks_of

from dmlcpu.runtime.boxes import WOKEN
from dmlcpu.runtime.kernel import Kernel

POST, START, WAKE = 200, 1_000, 6_400
BANDWIDTH = 380e9  # bytes a second, of a machine of 64 cores or more


class Runs(NamedTuple):
    """The stages of a call, each piece timed alone, and the seconds of all that is not cut into pieces."""

    stages: list[Stage]
    rest: float


def run_alone(run, plan, probe=time.thread_time):
    """Run a plan's pieces one after the other on this thread; return what the probe gains by each, and the rest.

    Times are those for which the thread had a core: other programs may want it, too.
    """
    stages, within = [], []

    def each(kernel, parts, *args, most=None):
        begin = time.thread_time()
        stages.append(Stage(kernel.name, parts, min(most or parts, parts), gains_of(plan, kernel, parts, args, probe)))
        within.append(time.thread_time() - begin)

    with mock.patch.object(Kernel, "__call__", each):
        begin = time.thread_time()
        run()
        return Runs(stages, time.thread_time() - begin - sum(within))


def gains_of(plan, kernel, parts, args, probe):
    """Do the pieces of a launch; return the probe's gain for each piece. Pieces of one call share its gain evenly."""
    gains = []
    for call, pieces in calls_of(plan, kernel, parts, args):
        before = probe()
        call()
        gains += [float(probe() - before) / pieces] * pieces
    return gains


def calls_of(plan, kernel, parts, args):
    """Return the calls that do the pieces of a launch, and how many each does.

    A thread of a product takes several pieces, for which it packs A once: these are one call.
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
    """Let a share begin with the run of tasks of a number, and end with it."""
    scratch[cell] = number
    stop()
    call()


def fastest(run, plan, repeats):
    """Return the runs with the least time of each piece, and of the rest. The first run may compile."""
    run_alone(run, plan)
    found = [run_alone(run, plan) for _ in range(repeats)]
    stages = [
        same[0]._replace(pieces=[min(times) for times in zip(*[stage.pieces for stage in same], strict=True)])
        for same in zip(*[each.stages for each in found], strict=True)
    ]
    rests = [each.rest for each in found]
    if plan.operator != "scatter_nd":  # whose stages need one another's results
        rests += [rest_alone(run) for _ in range(20 * repeats)]
    return Runs(stages, min(rests))


def rest_alone(run):
    """Return the seconds of all that is not cut, without the pieces: these would empty the caller's caches.

    Where many threads share the pieces, the caller does few of them.
    """

    def skip(*_, **__):
        pass

    with mock.patch.object(Kernel, "__call__", skip):
        begin = time.perf_counter()
        run()
        return time.perf_counter() - begin


def rises(helpers, waking):
    """Return after how many nanoseconds each helper begins that sleeps when a call begins."""
    woken = []  # when each is risen, in the order in which they are taken
    for number in range(helpers):
        if number == 0:
            before, turn = helpers * POST, 1
        else:
            before, turn = woken[(number - 1) // WOKEN], 1 + (number - 1) % WOKEN
        woken.append(before + turn * WAKE + waking)
    wakes = [min(WOKEN, max(0, helpers - 1 - number * WOKEN)) for number in range(helpers)]
    return [time + WAKE * count for time, count in zip(woken, wakes, strict=True)]


def estimate(runs, moved, waking=None):
    """Return the seconds of a call whose pieces and bytes are known; waking: nanoseconds, if its threads sleep."""
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
    """Return the plan's stage that applies updates, with how many each share applies.

    All updates are 1, and x is 0, so the output tells. Where one thread applies all updates, it has the work of those
    that found the bad indices with it.
    """
    x = call.requested[1][0]
    out = run.outputs[0].reshape(len(x), -1)[:, 0]
    out[...] = 0
    applied = [stage for stage in run_alone(run, plan, out.sum).stages if sum(stage.pieces)]
    if not applied:
        return Stage("apply", 1, plan.parts, [1.0])
    return applied[0]._replace(pieces=[piece for turn in applied for piece in turn.pieces])
