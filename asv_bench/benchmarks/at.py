"""add_at, put_at and maximum_at beside NumPy's own."""

from .cases.at import SHAPES
from .peers import Comparison


class Shapes(Comparison):
    params = (["dmlcpu", "numpy"], list(SHAPES))
    cases = SHAPES

    def time_call(self, implementation, case):
        return self.call()
