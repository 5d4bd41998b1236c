"""Cases of NumPy's ufunc.at and of assignment, in place, which the other libraries do not have."""

import math
from dataclasses import dataclass, replace

import numpy as np

import dmlcpu

from .case import Case, by, table

# Of dmlcpu by name, because past versions, whose history is drawn, have not all of them.
_FUNCTIONS = {
    "add": ("add_at", np.add.at),
    "max": ("maximum_at", np.maximum.at),
    "none": ("put_at", lambda x, indices, updates: x.__setitem__(indices, updates)),
}


@dataclass(frozen=True)
class AtCase(Case):
    shape: tuple[int, ...]
    updates: int
    coordinates: int = 1
    reduction: str = "add"  # "none" assigns
    dtype: str = "float32"
    number: int | None = None  # the update of all indices, instead of an array

    def __str__(self):
        slices = "" if self.coordinates == len(self.shape) else f" of {by(self.shape[self.coordinates :])}"
        how = {"add": "add.at", "max": "maximum.at", "none": "assign"}[self.reduction]
        what = "" if self.number is None else f" by the number {self.number}"
        return f"{how} {self.updates}{slices} into {by(self.shape)} {self.dtype}{what}"

    def shrunk(self):
        # No two cases become the same one, whose call would be built once.
        shape = tuple(min(n, 10 + len(str(n))) for n in self.shape)
        return replace(self, shape=shape, updates=8 + len(str(self.updates)))

    def inputs(self):
        """Return x, indices, updates."""
        rng = np.random.default_rng(0)
        indices = tuple(rng.integers(0, n, self.updates) for n in self.shape[: self.coordinates])
        updates = rng.random((self.updates, *self.shape[self.coordinates :]), np.float32).astype(self.dtype)
        updates = updates if self.number is None else self.number
        return np.zeros(self.shape, self.dtype), indices if len(indices) > 1 else indices[0], updates

    def work(self, results):
        """In place, updates and indices are read, and what they meet is read and written."""
        x, indices, _ = self.inputs()
        index_bytes = sum(each.nbytes for each in (indices if isinstance(indices, tuple) else (indices,)))
        update_bytes = math.prod((self.updates, *self.shape[self.coordinates :])) * x.itemsize
        read = update_bytes if self.number is None else 0
        return index_bytes + read + 2 * min(update_bytes, x.nbytes), "bytes"

    def expected(self, calls):
        call = self.numpy()
        return ([call() for _ in range(calls)][-1],)

    def dmlcpu(self):
        return self._call(getattr(dmlcpu, _FUNCTIONS[self.reduction][0]))

    def numpy(self):
        return self._call(_FUNCTIONS[self.reduction][1])

    def _call(self, function):
        x, indices, updates = self.inputs()

        def call():
            function(x, indices, updates)
            return x

        return call


SHAPES = table(
    AtCase((10_000, 64), 100_000),
    AtCase((50_257, 768), 16_384),
    AtCase((1_000_000,), 1_000_000),
    AtCase((1_000_000,), 1_000_000, dtype="float64"),
    AtCase((1_000_000,), 1_000_000, dtype="int64"),
    *(
        AtCase((size,), updates, reduction=reduction, dtype=dtype)
        for updates, size in ((250_000, 1_000), (250_000, 10_000), (1_000_000, 10_000), (8_000_000, 900))
        for reduction, dtype in (("add", "float32"), ("add", "float64"), ("add", "int64"), ("max", "float32"))
    ),
    AtCase((1_000, 1_000), 1_000_000, coordinates=2),
    AtCase((10_000, 64), 100_000, reduction="max"),
    AtCase((1_000_000,), 1_000_000, reduction="max"),
    AtCase((10_000, 64), 100_000, reduction="none"),
    AtCase((1_000_000,), 1_000_000, reduction="none"),
    AtCase((10_000, 64), 10),
    AtCase((1_000,), 10),
    AtCase((10_000,), 3_000, dtype="int32", number=1),
    AtCase((1_000_000,), 1_000_000, dtype="int32", number=1),
)
TABLES = {"at": SHAPES}
