"""quantized_matmul beside its peers, and its kernels beside one another."""

from .common import QUANTIZED_MATMUL, QUANTIZED_MATMUL_PARAMETERS
from .kernels import KernelComparison, alternatives
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


class Kernels(KernelComparison):
    """Every product kernel of the registry on every shape it takes; nothing is packed before the call."""

    params = (
        alternatives("quantized_matmul", "dot"),
        [name for name, case in QUANTIZED_MATMUL.items() if not case.constant_b],
    )
    cases = QUANTIZED_MATMUL

    def time_call(self, kernel, case):
        return self.call()
