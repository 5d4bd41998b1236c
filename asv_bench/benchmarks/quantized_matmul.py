"""quantized_matmul beside its peers, and its kernels beside one another."""

import numpy as np

from dmlcpu.kernels import registry
from dmlcpu.operators.quantized_matmul import execute

from .common import QUANTIZED_MATMUL, QUANTIZED_MATMUL_PARAMETERS
from .conditions import ready
from .peers import IMPLEMENTATIONS, Comparison


class Shapes(Comparison):
    params = (IMPLEMENTATIONS, list(QUANTIZED_MATMUL))
    cases = QUANTIZED_MATMUL

    def time_call(self, implementation, case):
        return self.call()


class Parameters(Shapes):
    """All combinations of signs, with parameters per tensor, and per row and column."""

    params = (IMPLEMENTATIONS, list(QUANTIZED_MATMUL_PARAMETERS))
    cases = QUANTIZED_MATMUL_PARAMETERS


class Kernels(Comparison):
    """Every product kernel of the registry on every shape it takes; nothing is packed before the call."""

    params = (
        [entry.name for entry in registry.KERNELS if entry.stage == "dot"],
        [name for name, case in QUANTIZED_MATMUL.items() if not case.constant_b],
    )
    param_names = ("kernel", "case")
    cases = QUANTIZED_MATMUL

    def setup(self, kernel, case):
        if kernel not in [entry.name for entry in registry.available("quantized_matmul", "dot")]:
            raise NotImplementedError(f"this machine cannot run {kernel}")
        case = self.cases[case]
        arguments, self.out = case.inputs(), np.empty((*case.batch, case.m, case.n), case.types[2])
        try:
            self.call = ready(lambda: execute(*arguments, self.out, kernel=kernel))
        except LookupError as error:
            raise NotImplementedError(str(error)) from None

    def time_call(self, kernel, case):
        self.call()
        return self.out
