"""Time dmlcpu beside its peers, interleaved, and print Markdown tables.

    python asv_bench/compare.py
    python asv_bench/compare.py top_k top_k_types --cases 1000x10000 --turns 25
    python asv_bench/compare.py threads --regime steady paused crowded busy

Machines are shared and noisy: quote only ratios of one run, in which contenders take turns. A figure is the median of a
contender's turns. The regime is the activity before and during a turn (benchmarks/conditions.py). Where threads compete
for cores a few calls take much longer than the others, so there each call is timed, and the figures are the median, the
mean and the 99th percentile.
"""

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import THREADS, common, conditions, peers

TABLES = common.TABLES
SHORTEST = 1e-3  # seconds of a turn: shorter calls are repeated, except in the regime paused
UNEVEN = ("crowded", "busy")  # regimes in which each call is timed
CALLS = 50  # of a turn in these
SPREAD = {"mean": statistics.fmean, "p99": lambda samples: sorted(samples)[-1 - len(samples) // 100]}
STEADY = "dmlcpu steady"  # a column beside the paused one


def main(arguments=None):
    args = parse_arguments(arguments)
    cases = {name: case for table in args.tables for name, case in TABLES[table].items() if args.cases in name}
    results = {}
    for regime in args.regime:
        with conditions.surroundings(regime):
            results[regime] = compare(cases, args.implementations, args.turns, regime)
    if args.json:
        args.json.write_text(json.dumps(results, indent=1), "utf-8")


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tables", nargs="*", default=list(TABLES), metavar="TABLE", help=f"of {', '.join(TABLES)}")
    parser.add_argument("--cases", default="", metavar="TEXT", help="only cases whose name contains this")
    parser.add_argument("--turns", type=int, default=15, metavar="N", help="default: %(default)s")
    parser.add_argument(
        "--implementations", nargs="+", choices=peers.CONTENDERS, default=peers.CONTENDERS, metavar="NAME"
    )
    regimes = "; ".join(f"{name}: {meaning}" for name, meaning in conditions.REGIMES.items())
    parser.add_argument(
        "--regime", nargs="+", choices=conditions.REGIMES, default=["steady"], metavar="REGIME", help=regimes
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures, in seconds, to a file, too")
    args = parser.parse_args(arguments)
    if unknown := set(args.tables) - set(TABLES):
        parser.error(f"no table {', '.join(unknown)}; there are {', '.join(TABLES)}")
    return args


def compare(cases, implementations, turns, regime):
    """Print the table of a regime, and return the figures of each case."""
    paused = regime == "paused" and "dmlcpu" in implementations
    columns = [*implementations, *([STEADY, "paused / steady"] if paused else [])]
    print(f"## {regime}: {conditions.REGIMES[regime]}\n")
    figure = f"median, mean and 99th percentile of {CALLS} calls in each" if regime in UNEVEN else "medians"
    print(f"Milliseconds, {figure} of {turns} turns, {THREADS} threads; in brackets: times as long as dmlcpu.\n")
    print(f"| case | {' | '.join(columns)} |")
    print("|---" * (1 + len(columns)) + "|")
    results = {}
    for name, case in cases.items():
        figures = results[name] = measure(case, implementations, turns, regime)
        cells = [cell(figures, i) for i in implementations]
        if paused:
            cells += [cell(figures, STEADY), f"{figures['dmlcpu'] / figures[STEADY]:.2f}" if STEADY in figures else "-"]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
    print()
    return results


class Contender(NamedTuple):
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
            return CALLS
        return 1 if self.regime == "paused" else max(1, int(SHORTEST / self.turn(1)[0]))


def seconds(call, repeats):
    """Return the seconds that a call takes, on average."""
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - start) / repeats


def measure(case, implementations, turns, regime):
    """Return the median time of each implementation that can do the case, in seconds; where uneven, the spread."""
    contenders = enter(case, implementations, regime)
    calls = {name: contender.calls() for name, contender in contenders.items()}
    times = {name: [] for name in contenders}
    for _ in range(turns):
        for name, contender in contenders.items():
            times[name] += contender.turn(calls[name])
    figures = {name: statistics.median(samples) for name, samples in times.items()}
    if regime in UNEVEN:
        figures |= {f"{name} {kind}": of(times[name]) for name in times for kind, of in SPREAD.items()}
    return figures


def enter(case, implementations, regime):
    """Return the contenders of a case by the names of their columns."""
    peers.build.cache_clear()  # drops the arrays of the case before
    contenders = {}
    for name in implementations:
        try:
            call = peers.build(case, name)
            crowd = peers.crowd_around(case, name) if regime == "crowded" else ()
        except NotImplementedError as error:
            print(f"{case}: no {name}: {error}", file=sys.stderr)
        else:
            contenders[name] = Contender(call, name, regime, crowd)
    if regime == "paused" and "dmlcpu" in contenders:
        contenders[STEADY] = contenders["dmlcpu"]._replace(regime="steady")
    return contenders


def cell(figures, name):
    """Return the figures of an implementation, in milliseconds, and how many times dmlcpu's they are."""
    kinds = [kind for kind in ("", *(f" {each}" for each in SPREAD)) if name + kind in figures]
    if not kinds:
        return "-"
    text = ", ".join(f"{figures[name + kind] * 1000:.3g}" for kind in kinds)
    if name == "dmlcpu" or "dmlcpu" not in figures:
        return text
    ratios = [f"{figures[name + kind] / figures['dmlcpu' + kind]:.2f}x" for kind in kinds]
    return f"{text} ({', '.join(ratios)})"


if __name__ == "__main__":
    main()
