"""Compare calls of many Python threads with the same calls of one, or with other libraries' calls.

    python asv_bench/python_threads.py
    NUMBA_THREADING_LAYER=tbb python asv_bench/python_threads.py
    python asv_bench/python_threads.py --callers 2 8 32
    python asv_bench/python_threads.py --callers 2 8 32 --save   # also write the times of calls to comparisons/

Teams, or contenders, run alternately, each after a rest. --turns is the number of runs of each. A figure is the median
of a team's runs, or with --callers of all calls.
"""

import argparse
import statistics
import time

import cells
import saving
from benchmarks import THREADS, conditions, peers
from benchmarks.python_threads import CALLERS, CALLS, MANY, OF_CALLERS, Team
from benchmarks.turns import SPREAD
from selections import CALLERS as REGIME

from dmlcpu.config import config

SHARED = 640  # calls of all callers in a run


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=5, metavar="N", help="default: %(default)s")
    parser.add_argument(
        "--callers",
        type=int,
        nargs="+",
        metavar="N",
        help="numbers of calling Python threads",
    )
    parser.add_argument("--save", action="store_true", help="write the times of calls to asv_bench/comparisons")
    args = parser.parse_args(arguments)
    if args.callers:
        compare(args)
        return
    times = measure(args.turns)
    runs = f"median of {args.turns} alternating runs"
    print(f"Milliseconds for {CALLS:,} calls, {runs}, {THREADS} threads for each call.\n")
    print(f"| threading layer | {MANY} Python threads | 1 Python thread | {MANY} / 1 |")
    print("|---|---|---|---|")
    many, one = times[MANY], times[1]
    print(f"| {config()['threads']['layer']} | {many * 1000:.4g} | {one * 1000:.4g} | {many / one:.2f} |")


def measure(turns):
    """Return the median time of each team in seconds."""
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


def compare(args):
    """Print how many calls contenders make in a second, and the 99th percentile of their times."""
    print(f"Calls a second, and the 99th percentile in milliseconds, {THREADS} threads for each call.\n")
    print(f"| Python threads and their calls | {' | '.join(CALLERS)} |")
    print("|---" * (1 + len(CALLERS)) + "|")
    for what, cases in OF_CALLERS.items():
        for count in args.callers:
            samples = latencies(count, cases, args.turns)
            shown = [
                f"{count / statistics.fmean(samples[name]):,.0f}, {SPREAD['p99'](samples[name]) * 1e3:.3g}"
                if name in samples
                else "-"
                for name in CALLERS
            ]
            case = f"{count} Python threads: {what}"
            print(f"| {case} | {' | '.join(shown)} |", flush=True)
            if args.save:
                saving.cell(REGIME, case, samples, args.turns, REGIME).save(cells.FOLDER)


def latencies(count, cases, turns):
    """Return the seconds of each call, by contender. Contenders that cannot do all cases are skipped."""
    teams, samples = {}, {}
    for name in CALLERS:
        if all(case.refusal(peers.METHODS[name]) is None for case in cases):
            with peers.settings_of(name):
                teams[name] = Team(count, [peers.build(case, name) for case in cases])
    for _ in range(turns):
        for name, team in teams.items():
            with peers.settings_of(name):
                time.sleep(conditions.REST)
                team.latencies(2)
                samples.setdefault(name, []).extend(team.latencies(max(1, SHARED // count)))
    for team in teams.values():
        team.close()
    return samples


if __name__ == "__main__":
    main()
