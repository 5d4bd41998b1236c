"""What the benchmarks of kernels that are alternatives share: each does each case that it is for."""

import dmlcpu
from dmlcpu.kernels import registry
from dmlcpu.runtime.threads import limits

from .conditions import ready
from .peers import BUILDERS, Comparison


def alternatives(operator, stage):
    """Return the names of an operator's kernels for a stage, whether or not this machine can run them."""
    return [row.name for row in registry.rows(operator) if row.stage == stage]


class KernelComparison(Comparison):
    """Calls like those of "dmlcpu out", whichever kernel the plan would choose."""

    param_names = ("kernel", "case")

    def setup(self, kernel, case):
        case = self.cases[case]
        call, threads = BUILDERS[type(case)]["dmlcpu out"](case), dmlcpu.get_num_threads()

        def forced():
            with limits(threads, kernel=kernel):
                return call()

        try:
            self.call = ready(forced)
        except LookupError as error:
            raise NotImplementedError(str(error)) from None
