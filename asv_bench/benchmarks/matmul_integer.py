"""matmul_integer beside its peers."""

from .common import MATMUL_INTEGER
from .peers import IMPLEMENTATIONS, Comparison


class Shapes(Comparison):
    params = (IMPLEMENTATIONS, list(MATMUL_INTEGER))
    cases = MATMUL_INTEGER

    def time_call(self, implementation, case):
        return self.call()
