"""top_k beside its peers, and its kernels beside one another."""

from .cases.top_k import DATA, SHAPES, TYPES
from .kernels import KernelComparison, alternatives
from .peers import IMPLEMENTATIONS, Comparison


class Shapes(Comparison):
    params = (IMPLEMENTATIONS, list(SHAPES))
    cases = SHAPES

    def time_call(self, implementation, case):
        return self.call()


class Types(Shapes):
    params = (IMPLEMENTATIONS, list(TYPES))
    cases = TYPES


class Data(Shapes):
    params = (IMPLEMENTATIONS, list(DATA))
    cases = DATA


class Memory(Comparison):
    """The peak of the whole process: imports, inputs, outputs and scratch."""

    params = (IMPLEMENTATIONS, [name for name, case in SHAPES.items() if case.k in (100, 1_000)])
    cases = SHAPES

    def peakmem_call(self, implementation, case):
        return self.call()


class Kernels(KernelComparison):
    """Every kernel of the registry on every shape it supports."""

    params = (alternatives("top_k", "select"), list(SHAPES))
    cases = SHAPES

    def time_call(self, kernel, case):
        return self.call()
