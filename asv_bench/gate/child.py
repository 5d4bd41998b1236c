"""A process that times calls in the environment of a commit.

It reads a request a line and answers a line, both JSON, until its input ends. An environment's Python runs it in
isolated mode, so neither PYTHONPATH nor the current folder can bring in another dmlcpu.
"""

import gc
import importlib.metadata
import json
import os
import platform
import sys
import time
from pathlib import Path

# In isolated mode the folder of a script is not on the path.
sys.path.insert(0, str(Path(__file__).parents[1]))

# Before NumPy: the benchmarks set the environment of its threads.
from benchmarks import common, conditions, peers  # isort: skip
import numpy as np

import dmlcpu

# No other library is called here, and dmlcpu's threads sleep 0.6 ms after a call: a shorter rest than that of the
# comparisons with peers is enough, and the turns of the sides are closer together.
REST = 0.01  # seconds

PAGE = 4096


def controls():
    """Return the calls of the controls.

    They use one block that begins with a page and fits in the first cache: elsewhere, a copy's time depends on where
    the process happens to have its memory.
    """
    memory = np.empty(6 * PAGE, np.uint8)
    start = -memory.ctypes.data % PAGE
    x, work = (memory[start + at :][: 2 * PAGE].view(np.float64) for at in (0, 2 * PAGE + PAGE // 2))
    x[:] = np.random.default_rng(0).random(x.size)

    def sort():
        np.copyto(work, x)
        work.sort()

    def copyto():
        np.copyto(work, x)

    return {"np.sort": sort, "np.copyto": copyto}


class Child:
    """What a request may ask for: the public methods."""

    def __init__(self):
        self.call = None

    def hello(self):
        """Return what runs here."""
        return {
            "dmlcpu": str(Path(dmlcpu.__file__).parent),
            "threads": dmlcpu.get_num_threads(),
            "versions": {
                "Python": platform.python_version(),
                **{name: importlib.metadata.version(name) for name in ("numba", "llvmlite", "numpy")},
            },
        }

    def tables(self):
        """Return the names of the cases of each table."""
        return {table: list(cases) for table, cases in common.TABLES.items()}

    def build(self, table, case, implementation):
        """Make a cell's call ready, and return its seconds, or why this commit cannot do it."""
        self.call = None  # frees the arrays of the cell before
        peers.build.cache_clear()
        gc.collect()
        try:
            if table == "control":
                self.call = controls()[case]
            else:
                self.call = peers.build(common.TABLES[table][case], implementation)
            self.call()
        except Exception as error:  # an operator, an argument or a type that this commit does not have
            missing = "is not in the table" if isinstance(error, KeyError) else str(error)
            return {"missing": f"{type(error).__name__}: {missing}".splitlines()[0]}
        return {"seconds": min(self._sample(1) for _ in range(2))}

    def turn(self, samples, calls):
        """Return the seconds of a call: the least of some samples. A sample is the mean of `calls` calls in a row.

        Calls that the system interrupts take longer, and never shorter: the least sample has the fewest of them.
        """
        conditions.ready(self.call)
        return {"seconds": min(self._sample(calls) for _ in range(samples))}

    def _sample(self, calls):
        start = time.perf_counter()
        for _ in range(calls):
            self.call()
        return (time.perf_counter() - start) / calls


def main():
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what anything prints goes to the log, not between the answers
    conditions.REST = REST
    gc.disable()  # a collection during one side's turn would count for it alone
    serve(sys.stdin, answers)


def serve(requests, answers):
    """Answer each request."""
    child = Child()
    for line in requests:
        request = json.loads(line)
        answer = getattr(child, request.pop("do"))(**request)
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
