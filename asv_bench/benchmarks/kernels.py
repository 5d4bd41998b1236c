"""Every kernel of the registry on a few cases of its operator, beside the plan's choice."""

import dmlcpu
from dmlcpu.kernels import registry
from dmlcpu.runtime.threads import use_budget

from .cases import quantized_matmul, top_k
from .conditions import ready
from .peers import Comparison, parts

PLAN = "the plan's choice"


def alternatives(operator, stage, cases):
    """Return the pairs of a kernel that this machine can run, and a case."""
    names = [PLAN, *(row.name for row in registry.available(operator, stage))]
    return [f"{name}: {case}" for case in cases for name in names]


class KernelComparison(Comparison):
    """The calls of "dmlcpu out", by each kernel."""

    def setup(self, cell):
        kernel, case = parts(cell)
        call, threads = self.cases[case].dmlcpu_out(), dmlcpu.get_num_threads()

        def forced():
            with use_budget(threads, kernel=None if kernel == PLAN else kernel):
                return call()

        try:
            self.call = ready(forced)
        except LookupError as error:  # it is for other shapes
            raise NotImplementedError(str(error)) from None


class TopK(KernelComparison):
    cases = {name: case for name, case in top_k.SHAPES.items() if case.shape[0] in (1_000, 10_000, 100_000)}
    params = alternatives("top_k", "select", cases)

    def time_call(self, cell):
        return self.call()


class QuantizedMatmul(KernelComparison):
    """Nothing is packed before the call."""

    cases = {name: case for name, case in quantized_matmul.SHAPES.items() if not case.constant_b and case.m in (1, 128)}
    params = alternatives("quantized_matmul", "dot", cases)

    def time_call(self, cell):
        return self.call()
