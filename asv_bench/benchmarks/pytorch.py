"""PyTorch's own calls, with their operators on dmlcpu's kernels and without."""

from .common import TORCH
from .peers import OVERRIDDEN, Comparison, settings_of


class Calls(Comparison):
    params = (["torch", OVERRIDDEN], list(TORCH))
    cases = TORCH

    def setup(self, implementation, case):
        self.settings = settings_of(implementation)
        self.settings.__enter__()
        super().setup(implementation, case)

    def teardown(self, implementation, case):
        self.settings.__exit__(None, None, None)

    def time_call(self, implementation, case):
        return self.call()
