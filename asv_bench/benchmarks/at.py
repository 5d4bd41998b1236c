"""add_at and its like beside NumPy's own."""

from .common import AT
from .peers import Comparison


class Shapes(Comparison):
    params = (["dmlcpu", "numpy"], list(AT))
    cases = AT

    def time_call(self, implementation, case):
        return self.call()
