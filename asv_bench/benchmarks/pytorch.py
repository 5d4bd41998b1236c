"""PyTorch's own calls, with their operators on dmlcpu's kernels and without."""

from .common import TORCH
from .peers import OVERRIDDEN, Comparison, cells, parts, settings_of


class Calls(Comparison):
    cases = TORCH
    params = cells(TORCH, ["torch", OVERRIDDEN], everywhere=True)  # asv takes an empty list for no parameter

    def setup(self, cell):
        self.settings = settings_of(parts(cell)[0])
        self.settings.__enter__()
        super().setup(cell)

    def teardown(self, cell):
        self.settings.__exit__(None, None, None)

    def time_call(self, cell):
        return self.call()
