"""Time dmlcpu beside its peers, interleaved, and print a Markdown table.

    python asv_bench/compare.py
    python asv_bench/compare.py top_k top_k_types --cases 1000x10000 --turns 25

Machines are shared and noisy: only ratios measured in one run, turn and turn about, are worth quoting. A turn is a
rest, an untimed call and a timed one, as in the asv benchmarks; a figure is the median of a contender's turns.
"""

import argparse
import statistics
import sys
import time

from benchmarks import THREADS, common, peers

TABLES = {
    "top_k": common.TOP_K,
    "top_k_types": common.TOP_K_TYPES,
    "top_k_data": common.TOP_K_DATA,
    "scatter_nd": common.SCATTER_ND,
    "scatter_nd_types": common.SCATTER_ND_TYPES,
    "scatter_nd_grid": common.SCATTER_ND_GRID,
    "quantized_matmul": common.QUANTIZED_MATMUL,
    "quantized_matmul_parameters": common.QUANTIZED_MATMUL_PARAMETERS,
    "tiny": {f"{name}: {case}": case for name, case in common.TINY.items()},
}
SHORTEST = 1e-3  # a timed turn repeats its call until it should take a millisecond


def main(arguments=None):
    args = parse_arguments(arguments)
    cases = {name: case for table in args.tables for name, case in TABLES[table].items() if args.cases in name}
    print(f"Milliseconds, medians of {args.turns} turns, {THREADS} threads; in brackets: times as long as dmlcpu.\n")
    print(f"| case | {' | '.join(args.implementations)} |")
    print("|---" * (1 + len(args.implementations)) + "|")
    for name, case in cases.items():
        medians = measure(case, args.implementations, args.turns)
        print(f"| {name} | {' | '.join(cell(medians, i) for i in args.implementations)} |", flush=True)


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tables", nargs="*", default=list(TABLES), metavar="TABLE", help=f"of {', '.join(TABLES)}")
    parser.add_argument("--cases", default="", metavar="TEXT", help="only cases whose name has this in it")
    parser.add_argument("--turns", type=int, default=15, metavar="N", help="default: %(default)s")
    parser.add_argument(
        "--implementations", nargs="+", choices=peers.IMPLEMENTATIONS, default=peers.IMPLEMENTATIONS, metavar="NAME"
    )
    args = parser.parse_args(arguments)
    if unknown := set(args.tables) - set(TABLES):
        parser.error(f"no table {', '.join(unknown)}; there are {', '.join(TABLES)}")
    return args


def measure(case, implementations, turns):
    """Return the median time of each implementation that can do the case, in seconds."""
    calls = {}
    for name in implementations:
        try:
            calls[name] = peers.BUILDERS[type(case)][name](case)
        except NotImplementedError as error:
            print(f"{case}: no {name}: {error}", file=sys.stderr)
    repeats = {name: repeats_of(call) for name, call in calls.items()}
    times = {name: [] for name in calls}
    for _ in range(turns):
        for name, call in calls.items():
            common.ready(call)
            start = time.perf_counter()
            for _ in range(repeats[name]):
                call()
            times[name].append((time.perf_counter() - start) / repeats[name])
    return {name: statistics.median(samples) for name, samples in times.items()}


def repeats_of(call):
    """Return how many calls take about a millisecond. The first call, which may compile, does not count."""
    common.ready(call)
    start = time.perf_counter()
    call()
    return max(1, int(SHORTEST / (time.perf_counter() - start)))


def cell(medians, name):
    if name not in medians:
        return "-"
    text = f"{medians[name] * 1000:.3g}"
    if name == "dmlcpu" or "dmlcpu" not in medians:
        return text
    return f"{text} ({medians[name] / medians['dmlcpu']:.2f}x)"


if __name__ == "__main__":
    main()
