"""Contenders that take turns: how a case is timed beside its peers in one process."""

import statistics
import time
from typing import Any, NamedTuple

from . import conditions, peers

SHORTEST = 1e-3  # seconds of a turn: shorter calls are repeated, except in the regime paused
UNEVEN = ("crowded", "oversubscribed", "busy")  # regimes in which each call is timed
CALLS = 50  # of a turn in these, at most
LONGEST = 0.25  # seconds of a turn in these, after which it has enough calls
FEWEST = 5
SPREAD = {"mean": statistics.fmean, "p99": lambda samples: sorted(samples)[-1 - len(samples) // 100]}
STEADY = "dmlcpu steady"  # a column beside the paused one


class Contender(NamedTuple):
    """A contender's call, in a regime."""

    call: Any
    implementation: str
    regime: str
    crowd: Any = ()

    def turn(self, calls):
        """Return the seconds a call, over one turn; of each call where they are uneven."""
        with peers.settings_of(self.implementation):
            if self.regime == "crowded":
                return [seconds(conditions.ready(self.call, "crowded", self.crowd), 1) for _ in range(calls)]
            call = conditions.ready(self.call, self.regime)
            return [seconds(call, 1) for _ in range(calls)] if self.regime in UNEVEN else [seconds(call, calls)]

    def calls(self):
        """Return the number of calls in a turn: about a millisecond of them where they are timed together."""
        if self.regime in UNEVEN:
            start = time.perf_counter()
            self.turn(1)
            return max(FEWEST, min(CALLS, int(LONGEST / (time.perf_counter() - start))))
        return 1 if self.regime == "paused" else max(1, int(SHORTEST / self.turn(1)[0]))


def seconds(call, repeats):
    """Return the seconds that a call takes, on average."""
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - start) / repeats


def enter(case, implementations, regime):
    """Return the contenders of a case by the names of their columns, and the reasons of those left out."""
    peers.build.cache_clear()  # drops the arrays of the case before
    contenders, refusals = {}, {}
    for name in implementations:
        try:
            call = peers.build(case, name)
            crowd = peers.crowd_around(case, name) if regime == "crowded" else ()
        except NotImplementedError as error:
            refusals[name] = str(error)
        else:
            contenders[name] = Contender(call, name, regime, crowd)
    if regime == "paused" and "dmlcpu" in contenders:
        contenders[STEADY] = contenders["dmlcpu"]._replace(regime="steady")
    return contenders, refusals


def take(contenders, turns):
    """Let contenders take turns; return the samples of each, in seconds: one a turn, or where uneven one a call."""
    calls = {name: contender.calls() for name, contender in contenders.items()}
    samples = {name: [] for name in contenders}
    for _ in range(turns):
        for name, contender in contenders.items():
            samples[name] += contender.turn(calls[name])
    return samples


def figures_of(samples, regime):
    """Return the median of each contender's samples, in seconds; where uneven, their mean and p99 too."""
    figures = {name: statistics.median(each) for name, each in samples.items()}
    if regime in UNEVEN:
        figures |= {f"{name} {kind}": of(samples[name]) for name in samples for kind, of in SPREAD.items()}
    return figures
