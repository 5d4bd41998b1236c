"""Time exact search among byte or float vectors, alternating with other libraries.

    python asv_bench/exact_search.py
    python asv_bench/exact_search.py --floats
    python asv_bench/exact_search.py --vectors "100000x384 k 10" --queries 1 32 --turns 9

--turns is the number of alternating runs, and a figure is their median in milliseconds. A run of one query repeats the
call for a while. The last column is the fastest of the others, divided by dmlcpu.
"""

import argparse
import statistics
import time

import saving
from benchmarks import conditions, float_search, search

LONGEST = 3  # seconds of a call: contenders that take longer are skipped
_TURN = 0.03  # seconds of calls in a run, at least


def measure(call, seconds=_TURN):
    """Return the milliseconds of a call: the median of the calls in a run, after a rest and an untimed call."""
    time.sleep(conditions.REST)
    call()
    times, end = [], time.perf_counter() + seconds
    while not times or time.perf_counter() < end:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1000


def contenders(module, names, *given):
    """Return the search of each contender of a benchmark that is installed."""
    found = {}
    for name in names:
        try:
            found[name] = module.CONTENDERS[name](*given)
        except NotImplementedError as error:
            print(f"({error})")
    return found


def row(searches, queries, k, turns):
    """Return the samples of each contender in milliseconds, and the reasons why others have none."""
    calls, refused = {}, {}
    for name, each in searches.items():
        start = time.perf_counter()
        each(queries, k)
        if name == "dmlcpu" or time.perf_counter() - start < LONGEST:
            calls[name] = lambda each=each: each(queries, k)
        else:
            refused[name] = f"takes more than {LONGEST} seconds"
    times = {name: [] for name in calls}
    for _ in range(turns):
        for name, call in calls.items():
            times[name].append(measure(call))
    return times, refused


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--floats", action="store_true", help="search among floats, of usual and of hostile data")
    parser.add_argument("--vectors", nargs="+", metavar="CASE", help="(default: all)")
    parser.add_argument("--queries", type=int, nargs="+", default=search.QUERIES, metavar="N")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="contenders (default: all)")
    parser.add_argument("--turns", type=int, default=5, metavar="N", help="default: %(default)s")
    parser.add_argument("--scale", type=int, default=1, metavar="N", help="divide the number of vectors by N")
    parser.add_argument("--save", action="store_true", help="write the samples to asv_bench/comparisons")
    args = parser.parse_args(arguments)
    module, table = (float_search, "float_search") if args.floats else (search, "search")
    for name in args.vectors or module.SIZES:
        *kind, count, depth, k = module.SIZES[name][:4] if args.floats else module.SIZES[name]
        metric = module.SIZES[name][4:] if args.floats else ()
        vectors, queries = module.data(*kind, count // args.scale, depth, *metric)
        searches = contenders(module, args.only or module.CONTENDERS, vectors, *metric)
        for rows in args.queries:
            times, refused = row(searches, queries[:rows], k, args.turns)
            medians = {who: statistics.median(each) for who, each in times.items()}
            ours = medians.pop("dmlcpu")
            others = ", ".join(f"{who} {ms:.3g}" for who, ms in medians.items())
            ratio = f"; best / dmlcpu {min(medians.values()) / ours:.2f}" if medians else ""
            print(f"{name}, {rows} queries: dmlcpu {ours:.3g}, {others}{ratio}", flush=True)
            if args.save:
                samples = {who: [ms / 1000 for ms in each] for who, each in times.items()}
                cell = saving.cell(table, f"{name}, {rows} queries", samples, args.turns)
                cell.refused = refused
                cell.save()


if __name__ == "__main__":
    main()
