"""scatter_nd beside its peers."""

from .common import SCATTER_ND, SCATTER_ND_GRID, SCATTER_ND_TYPES
from .peers import IMPLEMENTATIONS, Comparison


class Shapes(Comparison):
    params = (IMPLEMENTATIONS, list(SCATTER_ND))
    cases = SCATTER_ND

    def time_call(self, implementation, case):
        return self.call()


class Types(Shapes):
    params = (IMPLEMENTATIONS, list(SCATTER_ND_TYPES))
    cases = SCATTER_ND_TYPES


class Grid(Shapes):
    """Slice length, density, repeated places and index type, all with one another."""

    params = (IMPLEMENTATIONS, list(SCATTER_ND_GRID))
    cases = SCATTER_ND_GRID


class Memory(Comparison):
    """The peak of the whole process: imports, inputs, outputs and scratch."""

    params = (IMPLEMENTATIONS, [name for name, case in SCATTER_ND.items() if case.updates >= 4_000_000])
    cases = SCATTER_ND

    def peakmem_call(self, implementation, case):
        return self.call()
