"""Calls of the operators from functions that Numba compiles, and what such functions did before."""

import numba
import numpy as np

import dmlcpu

from .common import TINY
from .conditions import ready
from .overhead import CALLS


@numba.njit(cache=True)
def top_k(calls, x, k):
    for _ in range(calls):
        result = dmlcpu.top_k(x, k)
    return result


@numba.njit(cache=True)
def scatter_nd(calls, x, indices, updates):
    for _ in range(calls):
        result = dmlcpu.scatter_nd(x, indices, updates)
    return result


@numba.njit(cache=True)
def quantized_matmul(calls, a, a_scale, a_zero_point, b, b_scale, b_zero_point, y_scale, y_zero_point):
    for _ in range(calls):
        result = dmlcpu.quantized_matmul(a, a_scale, a_zero_point, b, b_scale, b_zero_point, y_scale, y_zero_point)
    return result


LOOPS = {"top_k": top_k, "scatter_nd": scatter_nd, "quantized_matmul": quantized_matmul}


def arguments(operator):
    """Return the arguments of an operator's tiny case as compiled code takes them: scales have one dimension."""
    case = TINY[operator]
    if operator == "top_k":
        return case.inputs(), case.k
    if operator == "quantized_matmul":
        return [
            each.ravel() if "_" in name and each is not None else each for name, each in case.inputs()._asdict().items()
        ]
    return case.inputs()


class Loops:
    """1,000 tiny calls a sample: milliseconds are microseconds a call."""

    params = (list(LOOPS),)
    param_names = ("operator",)
    number, warmup_time, repeat, version = 1, 0, (3, 10, 5.0), "1"

    def setup(self, operator):
        inputs, loop = arguments(operator), LOOPS[operator]
        self.call = ready(lambda: loop(CALLS, *inputs))

    def time_1000_calls(self, operator):
        return self.call()


@numba.njit(cache=True)
def rows_by_argsort(x, k):
    found = np.empty((len(x), k), np.int64)
    for i in range(len(x)):
        found[i] = np.argsort(x[i])[: -k - 1 : -1]
    return found


@numba.njit(cache=True)
def rows_by_argpartition(x, k):
    found = np.empty((len(x), k), np.int64)
    for i in range(len(x)):
        best = np.argpartition(x[i], x.shape[1] - k)[-k:]
        found[i] = best[np.argsort(x[i][best])[::-1]]
    return found


@numba.njit(cache=True)
def rows_by_top_k(x, k):
    found = np.empty((len(x), k), np.int64)
    for i in range(len(x)):
        found[i] = dmlcpu.top_k(x[i], k).indices
    return found


ROWS = {"dmlcpu": rows_by_top_k, "np.argsort": rows_by_argsort, "np.argpartition": rows_by_argpartition}
COUNT = 100
SIZES = {"10 of 1000": (1_000, 10), "100 of 1000": (1_000, 100), "10 of 10000": (10_000, 10)}


class Rows:
    """The k largest of each of 100 rows, in a loop on one thread."""

    params = (list(ROWS), list(SIZES))
    param_names = ("implementation", "case")
    number, warmup_time, repeat, version = 1, 0, (3, 10, 5.0), "1"

    def setup(self, implementation, case):
        length, k = SIZES[case]
        x, loop = np.random.default_rng(0).standard_normal((COUNT, length), np.float32), ROWS[implementation]
        self.threads = dmlcpu.get_num_threads()
        dmlcpu.set_num_threads(1)
        self.call = ready(lambda: loop(x, k))

    def teardown(self, implementation, case):
        dmlcpu.set_num_threads(self.threads)

    def time_call(self, implementation, case):
        return self.call()
