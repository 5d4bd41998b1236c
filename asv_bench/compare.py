"""Time dmlcpu beside its peers, interleaved, and print Markdown tables.

    python asv_bench/compare.py
    python asv_bench/compare.py top_k top_k_types --cases 1000x10000 --turns 25
    python asv_bench/compare.py threads --regime steady paused crowded busy

Machines are shared and noisy: quote only ratios of one run, in which contenders take turns. A figure is the median of a
contender's turns. The regime is the activity before and during a turn (benchmarks/conditions.py).
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
SHORTEST = 1e-3  # seconds of a turn: shorter calls are repeated, except in the regimes paused and crowded
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
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the medians, in seconds, to a file, too")
    args = parser.parse_args(arguments)
    if unknown := set(args.tables) - set(TABLES):
        parser.error(f"no table {', '.join(unknown)}; there are {', '.join(TABLES)}")
    return args


def compare(cases, implementations, turns, regime):
    """Print the table of a regime, and return the medians of each case."""
    paused = regime == "paused" and "dmlcpu" in implementations
    columns = [*implementations, *([STEADY, "paused / steady"] if paused else [])]
    print(f"## {regime}: {conditions.REGIMES[regime]}\n")
    print(f"Milliseconds, medians of {turns} turns, {THREADS} threads; in brackets: times as long as dmlcpu.\n")
    print(f"| case | {' | '.join(columns)} |")
    print("|---" * (1 + len(columns)) + "|")
    results = {}
    for name, case in cases.items():
        medians = results[name] = measure(case, implementations, turns, regime)
        cells = [cell(medians, i) for i in implementations]
        if paused:
            cells += [cell(medians, STEADY), f"{medians['dmlcpu'] / medians[STEADY]:.2f}" if STEADY in medians else "-"]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
    print()
    return results


class Contender(NamedTuple):
    call: Any
    implementation: str
    regime: str
    crowd: Any = ()

    def turn(self, repeats):
        """Return the seconds a call, over one turn."""
        with peers.settings_of(self.implementation):
            call = conditions.ready(self.call, self.regime, self.crowd)
            start = time.perf_counter()
            for _ in range(repeats):
                call()
            return (time.perf_counter() - start) / repeats

    def repeats(self):
        """Return the number of calls in a turn: about a millisecond of them where calls follow one another."""
        if self.regime in ("paused", "crowded"):
            return 1
        return max(1, int(SHORTEST / self.turn(1)))


def measure(case, implementations, turns, regime):
    """Return the median time of each implementation that can do the case, in seconds."""
    contenders = enter(case, implementations, regime)
    repeats = {name: contender.repeats() for name, contender in contenders.items()}
    times = {name: [] for name in contenders}
    for _ in range(turns):
        for name, contender in contenders.items():
            times[name].append(contender.turn(repeats[name]))
    return {name: statistics.median(samples) for name, samples in times.items()}


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


def cell(medians, name):
    if name not in medians:
        return "-"
    text = f"{medians[name] * 1000:.3g}"
    if name == "dmlcpu" or "dmlcpu" not in medians:
        return text
    return f"{text} ({medians[name] / medians['dmlcpu']:.2f}x)"


if __name__ == "__main__":
    main()
