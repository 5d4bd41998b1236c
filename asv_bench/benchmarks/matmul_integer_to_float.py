"""matmul_integer_to_float beside its peers."""

from .cases.matmul_integer_to_float import SHAPES
from .peers import IMPLEMENTATIONS, Comparison


class Shapes(Comparison):
    params = (IMPLEMENTATIONS, list(SHAPES))
    cases = SHAPES

    def time_call(self, implementation, case):
        return self.call()
