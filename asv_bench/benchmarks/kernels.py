"""The base of benchmarks of alternative kernels: each kernel does each case that it supports."""

import dmlcpu
from dmlcpu.kernels import registry
from dmlcpu.runtime.threads import use_budget

from .conditions import ready
from .peers import Comparison


def alternatives(operator, stage):
    """Return the names of an operator's kernels for a stage, whether or not this machine can run them."""
    return [row.name for row in registry.rows(operator) if row.stage == stage]


class KernelComparison(Comparison):
    """The calls of "dmlcpu out", by each kernel instead of the plan's choice."""

    param_names = ("kernel", "case")

    def setup(self, kernel, case):
        case = self.cases[case]
        call, threads = case.dmlcpu_out(), dmlcpu.get_num_threads()

        def forced():
            with use_budget(threads, kernel=kernel):
                return call()

        try:
            self.call = ready(forced)
        except LookupError as error:
            raise NotImplementedError(str(error)) from None
