"""Programs in which several threads use what threads share: caches, plans, workspaces, bound operators, indices.

python tests/reliability/free_threaded.py --seconds 60

Any interpreter runs them. Without a GIL (python3.14t -X gil=0) the steps of several threads really run side by side.
With one, threads take turns as often as Python allows.
"""

import argparse
import faulthandler
import functools
import json
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).parents[1]))

from desc_builders import OWNED, ROWS, check_top_k, tensor, top_k1_desc
from samples import Sample, as_tuple, assert_same_bits, modules_of_calls

import dmlcpu
from dmlcpu import MatrixMultiplyIntegerOperatorDesc, compile_operator, reference
from dmlcpu.operators import OPERATORS
from dmlcpu.runtime import memory, results
from dmlcpu.runtime.claims import Claims
from dmlcpu.runtime.kept_calls import kept_call
from dmlcpu.runtime.kernel import Kernel
from dmlcpu.runtime.memory import Workspace
from dmlcpu.runtime.results import empty_result
from dmlcpu.runtime.threads import use_budget
from dmlcpu.search import FloatIndex, Int8Index

THREADS = 6
MOST_SECONDS = 600  # beyond those that were asked for; then threads are taken to wait for one another
_RNG = np.random.default_rng(5)
CALLS = [module.parallel_call(_RNG) for module in modules_of_calls().values()]
EXPECTED = [call.expected() for call in CALLS]


class Turns:
    """What the threads of a program do until its time is over."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds
        self._failed = threading.Event()

    def repeat(self, *works: Callable[[], Any]) -> int:
        """Repeat each work in a thread, all from the same moment on; raise what one raises. Return how often."""
        start = threading.Barrier(len(works))

        def begin(work: Callable[[], Any]) -> int:
            count = 0
            try:
                start.wait(MOST_SECONDS)
                while not count or (time.monotonic() < self._end and not self._failed.is_set()):
                    work()
                    count += 1
            except BaseException:
                self._failed.set()
                raise
            return count

        with ThreadPoolExecutor(len(works)) as pool:
            return sum([each.result() for each in [pool.submit(begin, work) for work in works]])

    def rounds(self, make: Callable[[], Callable[[], Any]]) -> int:
        """Let all threads begin the same work at once, again and again with what is made anew; return how often."""
        count = 0
        while not count or time.monotonic() < self._end:
            Turns(0).repeat(*[make()] * THREADS)
            count += 1
        return count


def check(number: int) -> None:
    """Compare a call with the reference."""
    assert_same_bits(CALLS[number].run(), EXPECTED[number])


def function_of(call: Sample) -> Callable[..., Any]:
    function: Callable[..., Any] = OPERATORS[call.operator].function
    return function


def first_calls(turns: Turns) -> int:
    """Call each operator for the first time, from all threads at once; kernels are loaded or compiled."""

    def work() -> None:
        for number in range(len(CALLS)):
            check(number)

    with use_budget(2, grain=1):
        return turns.repeat(*[work] * THREADS)


def first_kernels(turns: Turns) -> int:
    """Compile a new kernel for several types, from all threads at once, and keep calls of it."""
    types = [np.int64, np.uint8, np.float32]

    def make() -> Callable[[], None]:
        def fill(part, parts, x, y, scratch):
            for i in range(part * x.size // parts, (part + 1) * x.size // parts):
                y[i] = x[i] + 1

        new, shares, addresses = Kernel(fill), set(), set()

        def work() -> None:
            for dtype in types:
                x, y, scratch = np.arange(9, dtype=dtype), np.zeros(9, dtype), np.zeros(8, np.int64)
                kept = kept_call(new, x, y, scratch)
                for run in (*[functools.partial(new, parts, x, y, scratch) for parts in (1, 3)], kept):
                    y[...] = 0
                    run()
                    assert y.tolist() == list(range(1, 10))
                addresses.add((dtype, new.address((x, y, scratch))))
            shares.add(id(new.share))
            assert len(shares) == 1
            assert len(addresses) <= len(types)

        return work

    return turns.rounds(make)


def calls_and_settings(turns: Turns) -> int:
    """Call while another thread changes how many threads there are, and the budget."""
    before = dmlcpu.get_num_threads()

    def change() -> None:
        for number in (1, 2, 5):
            dmlcpu.set_num_threads(number)
            with use_budget(number, grain=1):
                time.sleep(1e-3)

    def work() -> None:
        for number in range(len(CALLS)):
            check(number)

    try:
        return turns.repeat(change, *[work] * (THREADS - 1))
    finally:
        dmlcpu.set_num_threads(before)


def bound_operators(turns: Turns) -> int:
    """Bind in each thread, and call what is bound once for all, while the budget changes."""
    shared = [dmlcpu.bind(function_of(call), *call.args, **call.kwargs) for call in CALLS]

    def change() -> None:
        for number in (1, 2):
            with use_budget(number, grain=1 if number > 1 else 40_000):
                time.sleep(1e-3)

    def work() -> None:
        for call, run, right in zip(CALLS, shared, EXPECTED, strict=True):
            run()
            own = dmlcpu.bind(function_of(call), *call.args, **call.kwargs)
            assert_same_bits(as_tuple(own()), right)

    count = turns.repeat(change, *[work] * (THREADS - 1))
    for run, right in zip(shared, EXPECTED, strict=True):
        assert_same_bits(as_tuple(run()), right)
    return count


def compiled_operators(turns: Turns) -> int:
    """Call compiled operators that are new to all threads, and give one another matrix meanwhile."""
    a = np.arange(6, dtype=np.uint8).reshape(2, 3)
    matrices = [np.full((3, 4), value, np.uint8) for value in (1, 7)]
    allowed = [reference.matmul_integer(a, None, b, None).tolist() for b in matrices]

    def make() -> Callable[[], None]:
        select = compile_operator(top_k1_desc())
        multiply = compile_operator(
            MatrixMultiplyIntegerOperatorDesc(
                a_tensor=tensor("UINT8", 2, 3),
                b_tensor=tensor("UINT8", 3, 4, flags=OWNED),
                output_tensor=tensor("INT32", 2, 4),
            )
        )
        multiply.initialize(b_tensor=matrices[0])

        def work() -> None:
            for b in matrices * 5:
                check_top_k(select(input_tensor=ROWS))
                assert multiply(a_tensor=a).tolist() in allowed
                multiply.initialize(b_tensor=b)
                assert multiply.bind(a_tensor=a)().tolist() in allowed

        return work

    return turns.rounds(make)


def indices(turns: Turns) -> int:
    """Search while vectors are added and removed, and move between two indices."""
    vectors = _RNG.integers(-100, 100, (64, 16)).astype(np.float32)
    places = list(range(64))
    given = [FloatIndex(vectors, "l2"), Int8Index(vectors.astype(np.int8), "l2")]
    mine, other = FloatIndex(vectors, ids=range(64)), FloatIndex(vectors[:0], ids=np.empty(0, int))

    def search() -> None:
        for index in given:
            scores, found = index.search(vectors.astype(index.reconstruct(0).dtype), 1)[:2]
            assert found.ravel().tolist() == places, found
            assert not scores.any()
            assert len(index) in (64, 128)

    def change() -> None:
        for index in given:
            more = (vectors + 1).astype(index.reconstruct(0).dtype)
            index.add(more)
            index.remove_ids(np.arange(64, 128))

    def move(to: FloatIndex, of: FloatIndex) -> None:
        to.merge_from(of)
        assert len(mine) + len(other) in (0, 64, 128)  # between the two looks all may move

    movers = [lambda: move(mine, other), lambda: move(other, mine)]
    count = turns.repeat(change, *[search] * 3, *movers)
    assert len(mine) + len(other) == 64
    found = np.concatenate([index.search(vectors[:1], len(index))[1].ravel() for index in (mine, other)])
    assert sorted(found.tolist()) == places
    return count


def workspaces(turns: Turns) -> int:
    """Take blocks and give them back: no two threads have one, and no more are kept than may be."""
    kinds, most = [Workspace(cells) for cells in (600, 3000, 9000)], memory._MOST_KEPT
    memory._MOST_KEPT = 15_000

    def work() -> None:
        mine = threading.get_ident()
        blocks = [kind.take() for kind in kinds]
        for block in blocks:
            block[...] = mine
        for block in blocks:
            assert (block == mine).all()
        for block, kind in zip(blocks, kinds, strict=True):
            kind.give_back(block)

    try:
        count = turns.repeat(*[work] * THREADS)
        assert sum(block.size for block in memory._kept) <= memory._MOST_KEPT
    finally:
        memory._MOST_KEPT = most
        memory._kept.clear()
    return count


def large_results(turns: Turns) -> int:
    """Make results whose memory is used again, and let go of them."""
    least, results.LEAST_BYTES = results.LEAST_BYTES, 1 << 16

    def work() -> None:
        mine = threading.get_ident() % 251
        result = empty_result((1 << 16,), np.dtype(np.uint8))
        result[...] = mine
        view = result[::2]
        del result
        assert (view == mine).all()

    try:
        return turns.repeat(*[work] * THREADS)
    finally:
        results.LEAST_BYTES = least
        results._kept.clear()


def claims(turns: Turns) -> int:
    """Claim what one at a time may have."""
    shared, inside, granted = Claims(), [], []

    def work() -> None:
        lock = threading.Lock()
        with lock:
            if shared.grant(lock):
                inside.append(1)
                assert len(inside) == 1
                granted.append(1)
                inside.pop()

    count = turns.repeat(*[work] * THREADS)
    assert granted
    assert not inside
    return count


PROGRAMS = [
    first_calls,
    first_kernels,
    calls_and_settings,
    bound_operators,
    compiled_operators,
    indices,
    workspaces,
    large_results,
    claims,
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60, help="for all programs together")
    parser.add_argument("--only", nargs="+", default=[each.__name__ for each in PROGRAMS], help="names of programs")
    options = parser.parse_args()
    faulthandler.dump_traceback_later(options.seconds + MOST_SECONDS, exit=True)
    sys.setswitchinterval(1e-5)
    chosen = [program for program in PROGRAMS if program.__name__ in options.only]
    counts = {program.__name__: program(Turns(options.seconds / len(chosen))) for program in chosen}
    has_gil = getattr(sys, "_is_gil_enabled", lambda: True)()
    print(json.dumps({"python": sys.version.split()[0], "gil": has_gil, "counts": counts}))


if __name__ == "__main__":
    main()
