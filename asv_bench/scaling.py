"""Count what plans do on 1 to 256 threads, and compute how long calls would take from parts that are timed alone.

    python -m asv_bench.scaling            # print what the plans do: nothing large runs
    python -m asv_bench.scaling --save     # time parts and whole calls here, and save the figures (minutes)
    python -m asv_bench.scaling --render   # write the saved figures into docs/scaling.rst, and draw the chart
    python -m asv_bench.scaling --check    # fail if the page or the chart differs from the saved figures

The figures are in asv_bench/estimates/MACHINE.json. scaling_items.py has the calls, scaling_plans.py counts,
scaling_model.py has the model, and scaling_page.py writes the page.
"""

import argparse
import datetime
import json
import sys
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).parent))  # modules in this folder, as for scripts

import machine
import saving
import scaling_model as model
import scaling_page as page
import scaling_plans as plans
from benchmarks import conditions, turns
from benchmarks.turns import Contender
from scaling_items import ITEMS, NOTHING, UNIFORM, quantize

from dmlcpu.runtime import memory, threads
from dmlcpu.runtime.records import CELL
from dmlcpu.runtime.threads import Budget

FOLDER = Path(__file__).parent / "estimates"
THREADS = [1 << power for power in range(9)]
REPEATS = 4  # of pieces
TURNS, SECONDS = (3, 40), 1.5  # of real calls: the least and the greatest number, and their seconds


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", default="", metavar="TEXT", help="only calls whose name contains this")
    parser.add_argument("--save", action="store_true", help="measure here, and save the figures")
    parser.add_argument("--render", action="store_true", help="write the page and draw the chart")
    parser.add_argument("--check", action="store_true", help="only check that both are made from the saved figures")
    args = parser.parse_args(arguments)
    if args.check or args.render:
        return page.main(FOLDER, check=args.check)
    for name, item in ITEMS.items():
        if args.calls in name and not args.save:
            print(name)
            call = item.call()
            for count in THREADS:
                print(f"{count:5}", plans.counts(call, call.plan(Budget(count))), flush=True)
    if args.save:
        save(args.calls)
    return 0


def save(text):
    """Measure the calls whose name contains the text, and save the figures; those of other calls do not change."""
    path = FOLDER / f"{machine.name()}.json"
    kept = json.loads(path.read_text("utf-8"))["calls"] if path.is_file() else {}
    waking = waking_here()
    for name, kind, item in entries():
        if text in name:
            print(name, flush=True)
            kept[name] = figures_of(item, kind, waking)
    found = {
        "machine": saving.this_machine(),
        "versions": saving.versions(),
        "commit": saving.commit(),
        "date": datetime.date.today().isoformat(),
        "calls": {name: kept[name] for name, *_ in entries() if name in kept},
    }
    FOLDER.mkdir(exist_ok=True)
    path.write_text(json.dumps(found, indent=1) + "\n", "utf-8")


def entries():
    """Yield each call with its data, which are part of the name if they matter."""
    for name, item in ITEMS.items():
        for kind in item.kinds:
            yield f"{name}, {kind}" if len(item.kinds) > 1 else name, kind if item.is_run else NOTHING, item


def waking_here():
    """Return the nanoseconds that a sleeping helper takes to wake on this machine."""
    call = quantize(4_096, 4_096).call(UNIFORM)
    run = call.runner(call.plan(Budget(2)))
    for _ in range(30):
        conditions.ready(run, "paused")()
    return threads.layer().waking()


def grain_asleep(waking):
    """Return the least work that is worth waking a thread for, as budgets compute it."""
    return -(-threads._WAKINGS * (threads.GRAIN + waking) // threads._STEP) * threads._STEP


def figures_of(item, kind, waking):
    """Return a call's figures for each number of threads, and its measured times on this machine's cores."""
    call = item.call(kind)
    rows, checks = [], []
    for count in THREADS:
        awake, paused = call.plan(Budget(count)), call.plan(Budget(count, grain_asleep(waking)))
        asleep = plans.counts(call, paused)
        row = {"of": count, **plans.counts(call, awake), **{name: asleep[name] for name in ("woken", "depth")}}
        if item.is_run:
            if item.operator == "scatter_nd":
                row["imbalance"] = plans.imbalance(model.updates_of_shares(call, call.runner(awake), awake))
            with mock.patch.object(memory, "_MOST_KEPT", (32 + count << 20) // CELL):  # as with more processors
                runs = model.fastest(call.runner(awake), awake, REPEATS)
                of_paused = runs if alike(awake, paused) else model.fastest(call.runner(paused), paused, REPEATS)
            row["serial"] = runs.rest
            row["awake"] = model.estimate(runs, plans.moved(call, awake))
            row["paused"] = model.estimate(of_paused, plans.moved(call, paused), waking)
            if count <= machine.cores():
                checks.append({"of": count, **measured(call, awake, paused)})
        rows.append(row)
    return {"waking": waking, "rows": rows, "measured": checks}


def alike(one, other):
    """Whether two plans cut their work into the same pieces."""
    return plans.stages_of(one) == plans.stages_of(other)


def measured(call, awake, paused):
    """Return the least seconds of real calls in a row and after pauses: the least, as for the pieces."""
    contenders = {
        "awake": Contender(call.runner(awake), "dmlcpu", "steady"),
        "paused": Contender(call.runner(paused), "dmlcpu", "paused"),
    }
    least, most = TURNS
    count = max(least, min(most, int(SECONDS / turns.seconds(contenders["awake"].call, 1))))
    return {name: min(samples) for name, samples in turns.take(contenders, count).items()}


if __name__ == "__main__":
    sys.exit(main())
