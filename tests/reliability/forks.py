"""Call operators from many threads while others fork, and in pools of processes.

python tests/reliability/forks.py --seconds 60
"""

import argparse
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).parents[1]))

from samples import assert_same_bits, modules_of_calls

from dmlcpu.runtime.threads import use_budget

CALLERS, FORKERS, TASKS = 4, 1, 2
METHODS = multiprocessing.get_all_start_methods()
MOST_SECONDS = 60  # then a process is taken to hang, and is ended
PAUSE = 0.05  # seconds between two calls of a thread, in which processes start
_RNG = np.random.default_rng(5)
CALLS = [module.parallel_call(_RNG) for module in modules_of_calls().values()]
EXPECTED = [call.expected() for call in CALLS]


def check() -> int:
    """Compare a call of each operator with the reference; return how many that were."""
    for call, right in zip(CALLS, EXPECTED, strict=True):
        assert_same_bits(call.run(), right)
    return len(CALLS)


def check_in_pool(_task: int) -> None:
    signal.alarm(MOST_SECONDS)
    with use_budget(2, grain=1):
        check()
    signal.alarm(0)


def use_pools(methods: list[str]) -> int:
    """Let a process of each start method call; return how many tasks that were."""
    for method in methods:
        with ProcessPoolExecutor(1, multiprocessing.get_context(method)) as pool:
            list(pool.map(check_in_pool, range(TASKS)))
    return TASKS * len(methods)


def fork_and_check() -> int:
    child = os.fork()
    if child == 0:
        signal.alarm(MOST_SECONDS)
        try:
            check()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status == 0, f"the status of a child is {status}"
    return 1


def call_and_fork(seconds: float, methods: list[str]) -> tuple[dict[str, int], list[str]]:
    """Return how much was done, and what failed."""
    check()
    over, failed = threading.Event(), []
    counts = {"calls": 0, "forks": 0, "tasks": 0}
    counting = threading.Lock()

    def repeat(what: str, work: Callable[[], int]) -> None:
        try:
            while not over.wait(PAUSE):
                done = work()
                with counting:
                    counts[what] += done
        except Exception:
            failed.append(traceback.format_exc())

    threads = [threading.Thread(target=repeat, args=("calls", check)) for _ in range(CALLERS)]
    threads += [threading.Thread(target=repeat, args=("forks", fork_and_check)) for _ in range(FORKERS)]
    for thread in threads:
        thread.start()
    try:
        end = time.monotonic() + seconds
        counts["tasks"] += use_pools(methods)
        while time.monotonic() < end and not failed:
            counts["tasks"] += use_pools(methods)
    except Exception:
        failed.append(traceback.format_exc())
    over.set()
    for thread in threads:
        thread.join()
    return counts, failed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--methods", nargs="+", default=METHODS, choices=METHODS, help="how processes of pools start")
    options = parser.parse_args()
    warnings.simplefilter("ignore", DeprecationWarning)  # Python's, that a process with threads forks
    with use_budget(2, grain=1):
        counts, failed = call_and_fork(options.seconds, options.methods)
    print("\n".join(failed), file=sys.stderr)
    print(f"{counts['calls']:,} calls beside {counts['forks']:,} forks and {counts['tasks']:,} tasks of pools")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
