"""Time whole ONNX models in ONNX's reference evaluator, dmlcpu's backend and ONNX Runtime, in alternating runs.

    python asv_bench/onnx_backend.py
    python asv_bench/onnx_backend.py --turns 25 --models TopK

--turns is the number of runs. A figure is the median of a contender's runs, followed by the shortest run, for shared
machines. Sessions are created before the first run.
"""

import argparse
import statistics
import time

import saving
from benchmarks import conditions
from benchmarks.onnx_models import CONTENDERS, MODELS


def measure(calls, turns):
    """Return the milliseconds of each contender's runs; the reference runs once, because it takes seconds."""
    times = {name: [] for name in calls}
    for turn in range(turns):
        for name, call in calls.items():
            if name != "reference":
                conditions.ready(call)
            elif turn:
                continue
            start = time.perf_counter()
            call()
            times[name].append((time.perf_counter() - start) * 1000)
    return times


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default="", metavar="TEXT", help="only models whose name contains this")
    parser.add_argument("--turns", type=int, default=15, metavar="N", help="default: %(default)s")
    parser.add_argument("--scale", type=int, default=1, metavar="N", help="divide sizes by N")
    parser.add_argument("--save", action="store_true", help="write the samples to asv_bench/comparisons")
    args = parser.parse_args(arguments)
    for name, build in MODELS.items():
        if args.models in name:
            what, *built = build(args.scale)
            calls = {who: contender(*built) for who, contender in CONTENDERS.items()}
            found = measure(calls, args.turns)
            times = ", ".join(f"{who} {statistics.median(ms):.3g} ms ({min(ms):.3g})" for who, ms in found.items())
            print(f"{name}: {what}: {times}", flush=True)
            if args.save:
                samples = {who: [each / 1000 for each in ms] for who, ms in found.items()}
                saving.cell("onnx", f"{name}: {what}", samples, args.turns).save()


if __name__ == "__main__":
    main()
