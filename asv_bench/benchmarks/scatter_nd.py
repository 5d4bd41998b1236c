"""scatter_nd beside its peers."""

from .cases.scatter_nd import GRID, SHAPES, TYPES
from .peers import IMPLEMENTATIONS, Comparison


class Shapes(Comparison):
    params = (IMPLEMENTATIONS, list(SHAPES))
    cases = SHAPES

    def time_call(self, implementation, case):
        return self.call()


class Types(Shapes):
    params = (IMPLEMENTATIONS, list(TYPES))
    cases = TYPES


class Grid(Shapes):
    """Slice length, density, repeated places and index type, all with one another."""

    params = (IMPLEMENTATIONS, list(GRID))
    cases = GRID


class Memory(Comparison):
    """The peak of the whole process: imports, inputs, outputs and scratch."""

    params = (IMPLEMENTATIONS, [name for name, case in SHAPES.items() if case.updates >= 4_000_000])
    cases = SHAPES

    def peakmem_call(self, implementation, case):
        return self.call()
