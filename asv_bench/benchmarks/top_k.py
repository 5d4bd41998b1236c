"""top_k beside its peers, and its kernels beside one another."""

from .common import TOP_K, TOP_K_DATA, TOP_K_TYPES
from .kernels import KernelComparison, alternatives
from .peers import IMPLEMENTATIONS, Comparison


class Shapes(Comparison):
    params = (IMPLEMENTATIONS, list(TOP_K))
    cases = TOP_K

    def time_call(self, implementation, case):
        return self.call()


class Types(Shapes):
    params = (IMPLEMENTATIONS, list(TOP_K_TYPES))
    cases = TOP_K_TYPES


class Data(Shapes):
    params = (IMPLEMENTATIONS, list(TOP_K_DATA))
    cases = TOP_K_DATA


class Memory(Comparison):
    """The peak of the whole process: imports, inputs, outputs and scratch."""

    params = (IMPLEMENTATIONS, [name for name, case in TOP_K.items() if case.k in (100, 1_000)])
    cases = TOP_K

    def peakmem_call(self, implementation, case):
        return self.call()


class Kernels(KernelComparison):
    """Every kernel of the registry on every shape it supports."""

    params = (alternatives("top_k", "select"), list(TOP_K))
    cases = TOP_K

    def time_call(self, kernel, case):
        return self.call()
