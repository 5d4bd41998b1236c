"""matmul_top_k beside its peers."""

from .cases.matmul_top_k import SHAPES
from .peers import IMPLEMENTATIONS, Comparison


class Shapes(Comparison):
    params = (IMPLEMENTATIONS, list(SHAPES))
    cases = SHAPES

    def time_call(self, implementation, case):
        return self.call()
