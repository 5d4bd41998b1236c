"""1,000 tiny calls from a function that Numba compiles: milliseconds are microseconds a call."""

import numba

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


class Loops:
    params = (list(LOOPS),)
    param_names = ("operator",)
    number, warmup_time, repeat, version = 1, 0, (3, 10, 5.0), "1"

    def setup(self, operator):
        case = TINY[operator]
        inputs = (case.inputs(), case.k) if operator == "top_k" else case.inputs()
        loop = LOOPS[operator]
        self.call = ready(lambda: loop(CALLS, *inputs))

    def time_1000_calls(self, operator):
        return self.call()
