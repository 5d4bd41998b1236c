"""Time calls of many Python threads beside the same calls of one.

    python asv_bench/python_threads.py
    NUMBA_THREADING_LAYER=tbb python asv_bench/python_threads.py

The teams take turns, each after a rest. A figure is the median of a team's turns.
"""

import argparse
import statistics
import time

from benchmarks import THREADS, conditions
from benchmarks.python_threads import CALLS, MANY, Team

from dmlcpu.config import config


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=5, metavar="N", help="default: %(default)s")
    args = parser.parse_args(arguments)
    times = measure(args.turns)
    print(f"Milliseconds for {CALLS:,} calls, medians of {args.turns} turns, {THREADS} threads for each call.\n")
    print(f"| threading layer | {MANY} Python threads | 1 Python thread | {MANY} / 1 |")
    print("|---|---|---|---|")
    many, one = times[MANY], times[1]
    print(f"| {config()['threads']['layer']} | {many * 1000:.4g} | {one * 1000:.4g} | {many / one:.2f} |")


def measure(turns):
    """Return the median time of each team, in seconds."""
    teams = {size: Team(size) for size in (MANY, 1)}
    times = {size: [] for size in teams}
    for _ in range(turns):
        for size, team in teams.items():
            time.sleep(conditions.REST)
            start = time.perf_counter()
            team.work()
            times[size].append(time.perf_counter() - start)
    for team in teams.values():
        team.close()
    return {size: statistics.median(samples) for size, samples in times.items()}


if __name__ == "__main__":
    main()
