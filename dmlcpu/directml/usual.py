"""The tensors of most calls of a compiled operator, which are checked all at once."""

from collections.abc import Callable
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

import numpy as np

from dmlcpu.common.arguments import Array
from dmlcpu.directml.base import Bound, Run
from dmlcpu.directml.binding import Slot
from dmlcpu.runtime.memory import ALIGNED, C_CONTIGUOUS, F_CONTIGUOUS, OWNS_DATA, WRITEABLE, frombuffer

_LOOKS: Any = attrgetter("__class__", "dtype", "shape", "flags.num")  # what decides whether an array fits as it is


class Usual(NamedTuple):
    """The tensors of most calls: all of them are given, packed, as different arrays that own their data."""

    in_order: Callable[[Bound], tuple[Any, ...]]
    looks: list[Any]
    words: tuple[np.dtype[Any], ...]
    alike: list[tuple[str, str]]
    run: Callable[[Bound, list[Array]], Any]

    @classmethod
    def of(cls, slots: list[Slot], alike: list[tuple[str, str]], run: Run) -> "Usual":
        """Return it for the tensors in the kernels' order."""
        first, *others = [slot.name for slot in slots]
        in_order = itemgetter(first, *others) if others else lambda tensors: (tensors[first],)
        looks = [(np.ndarray, slot.dtype, slot.shape, _flags_of(slot.shape)) for slot in slots]
        assert run.packed is not None
        return cls(in_order, looks, tuple(run.words.values()), alike, run.packed)

    def words_of(self, tensors: Bound) -> list[Array] | None:
        """Return the words of the tensors, or None if they are others; to compare all at once takes the least time."""
        try:
            arrays = self.in_order(tensors)
        except KeyError:
            return None
        if list(map(_LOOKS, arrays)) != self.looks:
            return None
        for one, other in self.alike:
            if tensors[one] is tensors[other]:
                return None
        return list(map(frombuffer, arrays, self.words))


def _flags_of(shape: tuple[int, ...]) -> int:
    """Return the flags of a new array; one with a single dimension above 1 is in Fortran's order, too."""
    own = C_CONTIGUOUS | ALIGNED | OWNS_DATA | WRITEABLE
    return own | (F_CONTIGUOUS if sum(n > 1 for n in shape) <= 1 else 0)
