"""What the benchmarks of kernels that are alternatives share: each does each case that it is for."""

import dmlcpu
from dmlcpu.kernels import registry
from dmlcpu.runtime.threads import use_budget

from .conditions import ready
from .peers import BUILDERS, Comparison


def alternatives(operator, stage):
    """Return the names of an operator's kernels for a stage, whether or not this machine can run them."""
    return [entry.name for entry in registry.KERNELS if (entry.operator, entry.stage) == (operator, stage)]


class KernelComparison(Comparison):
    """Calls like those of "dmlcpu out", whichever kernel the plan would choose."""

    param_names = ("kernel", "case")

    def setup(self, kernel, case):
        case = self.cases[case]
        call, threads = BUILDERS[type(case)]["dmlcpu out"](case), dmlcpu.get_num_threads()

        def forced():
            with use_budget(threads, kernel=kernel):
                return call()

        try:
            self.call = ready(forced)
        except LookupError as error:
            raise NotImplementedError(str(error)) from None
