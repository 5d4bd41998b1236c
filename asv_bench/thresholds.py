"""Time every top_k kernel for many lengths and k, to find the fastest for each.

    python asv_bench/thresholds.py [--type float32] [--axis 0]

The thresholds of dmlcpu/kernels/top_k/choose.py come from these tables. Each cell is the fastest of six runs on one
thread, in nanoseconds an element. A star marks the kernel that the plan chooses.
"""

import argparse
import time

import numpy as np

import dmlcpu
from dmlcpu.common.forms import Form
from dmlcpu.kernels import registry
from dmlcpu.operators.top_k.call import Call
from dmlcpu.operators.top_k.plan import plan
from dmlcpu.runtime.threads import Budget, use_budget

ELEMENTS = 1 << 20
LENGTHS = (8, 16, 32, 64, 128, 256, 512, 1_000, 4_000, 16_000, 64_000)
KS = (1, 2, 4, 8, 16, 32, 64, 128, 512)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--type", default="float32")
    parser.add_argument("--axis", type=int, default=-1, choices=(-1, 0))
    args = parser.parse_args()
    names = [entry.name for entry in registry.available("top_k", "select")]
    names.remove("split")  # needs several threads
    print(f"| n | k | {' | '.join(names)} |")
    print("|---" * (len(names) + 2) + "|")
    for n in LENGTHS:
        for k in (k for k in KS if k <= n):
            print(f"| {n} | {k} | {' | '.join(row(names, n, k, args))} |", flush=True)


def row(names, n, k, args):
    rng = np.random.default_rng(0)
    shape = (ELEMENTS // n, n) if args.axis else (n, ELEMENTS // n)
    x = (rng.standard_normal(shape) * 50).astype(args.type)
    axis = args.axis % 2
    out_shape = [*shape]
    out_shape[axis] = k
    out = np.empty(out_shape, x.dtype), np.empty(out_shape, np.int64)
    call = Call(Form(shape, x.dtype), k, axis, np.dtype(np.int64), largest=True)
    chosen = plan(call, (None, None), Budget(1)).kernel
    for name in names:
        try:
            with use_budget(1, kernel=name):
                best = min(timed(x, k, axis, out) for _ in range(6)) / x.size * 1e9
        except LookupError:
            yield "-"
        else:
            yield f"{best:.2f}{' *' if name == chosen else ''}"


def timed(x, k, axis, out):
    start = time.perf_counter()
    dmlcpu.top_k(x, k, axis=axis, out=out)
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
