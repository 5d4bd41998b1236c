"""Time dmlcpu and other libraries in alternating runs, print Markdown tables, and save the samples.

    python asv_bench/compare.py
    python asv_bench/compare.py top_k top_k_types --cases 1000x10000 --turns 25
    python asv_bench/compare.py threads --regime steady paused crowded busy
    python asv_bench/compare.py top_k at --regime oversubscribed --first 2
    python asv_bench/compare.py --save      # also write a file for each cell to comparisons/
    python asv_bench/compare.py --render    # write the figures of these files into the documentation, and draw charts
    python asv_bench/compare.py --check     # fail if a figure in the documentation differs from theirs

Machines are shared and noisy: quote only ratios of one process, in which contenders alternate. --turns is the number of
runs of each contender, and a figure is their median. The regime is the activity before and during a run
(benchmarks/conditions.py). If threads compete for cores, a few calls take much longer than the others: then each call
is timed, and the figures are the median, the mean and the 99th percentile.
"""

import argparse
import itertools
import json
import sys
from pathlib import Path

import cells
import figures
import saving
from benchmarks import THREADS, common, conditions, peers, turns

TABLES = common.TABLES


def main(arguments=None):
    args = parse_arguments(arguments)
    if args.render or args.check:
        return figures.main(check=args.check)
    results = {}
    for regime in args.regime:
        with conditions.surroundings(regime):
            results[regime] = {}
            for table in args.tables:
                cases = {name: case for name, case in TABLES[table].items() if args.cases in name}
                cases = dict(itertools.islice(cases.items(), args.first))
                results[regime] |= compare(table, cases, args, regime)
    if args.json:
        args.json.write_text(json.dumps(results, indent=1), "utf-8")
    return 0


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tables", nargs="*", default=list(TABLES), metavar="TABLE", help=f"any of {', '.join(TABLES)}")
    parser.add_argument("--cases", default="", metavar="TEXT", help="only cases whose name contains this")
    parser.add_argument("--first", type=int, metavar="N", help="only the first N of them in each table")
    parser.add_argument("--turns", type=int, default=15, metavar="N", help="default: %(default)s")
    parser.add_argument(
        "--implementations", nargs="+", choices=peers.CONTENDERS, metavar="NAME", help="default: those of the table"
    )
    regimes = "; ".join(f"{name}: {meaning}" for name, meaning in conditions.REGIMES.items())
    parser.add_argument(
        "--regime", nargs="+", choices=conditions.REGIMES, default=["steady"], metavar="REGIME", help=regimes
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures, in seconds, to a file")
    parser.add_argument("--save", action="store_true", help="write the samples of each cell to asv_bench/comparisons")
    parser.add_argument("--render", action="store_true", help="write saved figures into the documentation")
    parser.add_argument("--check", action="store_true", help="check that the documentation has the saved figures")
    args = parser.parse_args(arguments)
    if unknown := set(args.tables) - set(TABLES):
        parser.error(f"no table {', '.join(unknown)}; allowed: {', '.join(TABLES)}")
    return args


def compare(table, cases, args, regime):
    """Print the results of a table in a regime, and return the figures of each case."""
    implementations = args.implementations or peers.contenders_of(table, regime)
    paused = regime == "paused" and "dmlcpu" in implementations
    columns = [*implementations, *([turns.STEADY, "paused / steady"] if paused else [])]
    print(f"## {table}, {regime}: {conditions.REGIMES[regime]}\n")
    uneven = regime in turns.UNEVEN
    figure = f"median, mean and 99th percentile of up to {turns.CALLS} calls in each" if uneven else "median"
    runs = f"{figure} of {args.turns} alternating runs"
    print(f"Milliseconds, {runs}, {THREADS} threads; in brackets: the ratio to dmlcpu.\n")
    print(f"| case | {' | '.join(columns)} |")
    print("|---" * (1 + len(columns)) + "|")
    results = {}
    for name, case in cases.items():
        contenders, refused = turns.enter(case, implementations, regime)
        for each, reason in refused.items():
            print(f"{case}: no {each}: {reason}", file=sys.stderr)
        if args.save:
            cell = saving.measured(table, name, case, regime, contenders, refused, args.turns)
            cell.save(cells.FOLDER)
            samples = cell.samples
        else:
            samples = turns.take(contenders, args.turns)
        found = results[name] = turns.figures_of(samples, regime)
        row = [shown(found, each) for each in implementations]
        if paused:
            row += [shown(found, turns.STEADY)]
            row += [f"{found['dmlcpu'] / found[turns.STEADY]:.2f}" if turns.STEADY in found else "-"]
        print(f"| {name} | {' | '.join(row)} |", flush=True)
    print()
    return results


def shown(found, name):
    """Return the figures of an implementation in milliseconds, and their ratios to dmlcpu's."""
    kinds = [kind for kind in ("", *(f" {each}" for each in turns.SPREAD)) if name + kind in found]
    if not kinds:
        return "-"
    text = ", ".join(f"{found[name + kind] * 1000:.3g}" for kind in kinds)
    if name == "dmlcpu" or "dmlcpu" not in found:
        return text
    ratios = [f"{found[name + kind] / found['dmlcpu' + kind]:.2f}x" for kind in kinds]
    return f"{text} ({', '.join(ratios)})"


if __name__ == "__main__":
    sys.exit(main())
