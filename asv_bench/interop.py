"""Time calls on Dask arrays and in functions compiled with Numba, alternating with the calls that they replace.

python asv_bench/interop.py
python asv_bench/interop.py numba --turns 9 --save
"""

import argparse
import statistics
import time

import saving
from benchmarks import conditions, dask, numba_callers

TABLES = {"dask": dask.TopK, "numba": numba_callers.Rows}


def measure(benchmark, case, turns):
    """Return the seconds of each contender's alternating runs. The benchmark's first parameter is the contender."""
    times = {name: [] for name in benchmark.params[0]}
    for turn in range(turns + 1):
        for name, samples in times.items():
            contender = benchmark()
            contender.setup(name, case)
            time.sleep(conditions.REST)
            start = time.perf_counter()
            contender.time_call(name, case)
            if turn:  # the first may compile
                samples.append(time.perf_counter() - start)
            getattr(contender, "teardown", lambda *_: None)(name, case)
    return times


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tables", nargs="*", default=list(TABLES), metavar="TABLE", help=f"any of {', '.join(TABLES)}")
    parser.add_argument("--turns", type=int, default=7, metavar="N", help="default: %(default)s")
    parser.add_argument("--save", action="store_true", help="write the samples to asv_bench/comparisons")
    args = parser.parse_args(arguments)
    if unknown := set(args.tables) - set(TABLES):
        parser.error(f"no table {', '.join(unknown)}; allowed: {', '.join(TABLES)}")
    for table in args.tables:
        for case in TABLES[table].params[1]:
            times = measure(TABLES[table], case, args.turns)
            shown = ", ".join(f"{name} {statistics.median(each) * 1000:.3g} ms" for name, each in times.items())
            print(f"{table}, {case}: {shown}", flush=True)
            if args.save:
                saving.cell(table, case, times, args.turns).save()


if __name__ == "__main__":
    main()
