"""quantized_matmul beside its peers, and its kernels beside one another."""

from .cases.quantized_matmul import PARAMETERS, SHAPES
from .kernels import KernelComparison, alternatives
from .peers import IMPLEMENTATIONS, Comparison


class Shapes(Comparison):
    params = (IMPLEMENTATIONS, list(SHAPES))
    cases = SHAPES

    def time_call(self, implementation, case):
        return self.call()


class Parameters(Shapes):
    """All combinations of signs, with parameters per tensor, and per row and column."""

    params = (IMPLEMENTATIONS, list(PARAMETERS))
    cases = PARAMETERS


class Kernels(KernelComparison):
    """Every product kernel of the registry on every shape it takes; nothing is packed before the call."""

    params = (
        alternatives("quantized_matmul", "dot"),
        [name for name, case in SHAPES.items() if not case.constant_b],
    )
    cases = SHAPES

    def time_call(self, kernel, case):
        return self.call()
