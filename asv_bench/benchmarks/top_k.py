"""top_k beside its peers, and its kernels beside one another."""

from dmlcpu.kernels import registry
from dmlcpu.operators.top_k import allocate, check, execute

from .common import TOP_K, TOP_K_DATA, TOP_K_TYPES
from .conditions import ready
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


class Kernels(Comparison):
    """Every kernel of the registry on every shape it supports, whether the plan would choose it or not."""

    params = ([entry.name for entry in registry.KERNELS if entry.stage == "select"], list(TOP_K))
    param_names = ("kernel", "case")
    cases = TOP_K

    def setup(self, kernel, case):
        if kernel not in [entry.name for entry in registry.available("top_k", "select")]:
            raise NotImplementedError(f"this machine cannot run {kernel}")
        case = self.cases[case]
        x, k, axis, largest, index_type = check(case.inputs(), case.k, case.axis, True, "int64")
        self.out = allocate(x, k, axis, index_type, None)
        try:
            self.call = ready(lambda: execute(x, k, axis, largest, *self.out, kernel=kernel))
        except LookupError as error:
            raise NotImplementedError(str(error)) from None

    def time_call(self, kernel, case):
        self.call()
        return self.out
