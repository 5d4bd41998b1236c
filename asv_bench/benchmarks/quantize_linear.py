"""quantize_linear, dequantize_linear and dynamic_quantize_linear beside their peers."""

from .cases.quantize_linear import SHAPES
from .peers import IMPLEMENTATIONS, Comparison


class Shapes(Comparison):
    params = (IMPLEMENTATIONS, list(SHAPES))
    cases = SHAPES

    def time_call(self, implementation, case):
        return self.call()
