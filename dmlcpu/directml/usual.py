"""Calls of a compiled operator with the tensors that most calls have, which compiled code looks at."""

import contextlib
import math
import threading
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from dmlcpu.common.arguments import Array
from dmlcpu.directml.base import Bound, Packed
from dmlcpu.directml.binding import Slot
from dmlcpu.runtime import threads
from dmlcpu.runtime.array_objects import Rows
from dmlcpu.runtime.compilation import can_compile
from dmlcpu.runtime.memory import frombuffer
from dmlcpu.runtime.threads import Budget

# The first calls take the long way: all of them take less time than to load the compiled code of this one. After a call
# whose tensors do not fit, the next calls take the long way, too: their tensors probably do not fit either.
_FIRST, _NEXT = 50, 16
_MOST_KEPT = 1 << 18  # the bytes of all tensors, up to which a kept call pays: longer calls hide what it saves


class _Ready(NamedTuple):
    """How to run within a budget: what tensors must be, and a kept call, with the outputs that are copied from it."""

    budget: Budget
    free: threading.Lock  # taken while the rows and the kept call are in use
    rows: Rows
    again: Callable[[], bool] | None = None
    copied: Sequence[tuple[str, Array]] = ()


class Usual:
    """The calls of most programs: all inputs are packed arrays, and so are outputs, or they are new.

    Compiled code looks at all tensors at once. If the plan is one part of one kernel, it is a kept call, which is told
    where the tensors of each call lie.
    """

    def __init__(self, slots: list[Slot], packed: Packed) -> None:
        """Prepare calls with tensors in the kernels' order."""
        first, *others = [slot.name for slot in slots]
        self._slots, self._packed, self._count = slots, packed, len(slots)
        self._in_order = itemgetter(first, *others) if others else lambda tensors: (tensors[first],)
        self._new = [(slot.name, slot.make) for slot in slots if slot.output]
        self._long = _FIRST  # calls that take the long way
        self._ready: _Ready | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> "Usual":
        return Usual(self._slots, self._packed)

    def __call__(self, tensors: Bound) -> Any:
        """Return the result of a call, or None if it has to take the long way."""
        if self._long > 0:
            self._long -= 1
            return None
        if not can_compile():
            return None
        ready = self._ready
        if ready is None or threads.most() is not ready.budget:
            ready = self._choose()
        try:
            # It is taken during a call in another thread, or when a signal handler calls during a call.
            if not ready.free.acquire(False):
                return None
            try:
                if len(tensors) != self._count:
                    tensors = {**{name: make() for name, make in self._new if name not in tensors}, **tensors}
                try:
                    arrays = self._in_order(tensors)
                except KeyError:
                    arrays = ()
                if len(arrays) != self._count or len(tensors) != self._count or not ready.rows.fit(arrays):
                    self._long = _NEXT
                    return None
                if ready.again:
                    if not ready.again():
                        return None
                    for name, array in ready.copied:
                        tensors[name][...] = array
                    return self._packed.result(tensors)
            finally:
                ready.free.release()
        except BaseException:
            self._ready = None  # an interrupt may have left it taken
            raise
        self._packed.run(tensors, list(map(frombuffer, arrays, self._packed.words.values())))
        return self._packed.result(tensors)

    def _choose(self) -> _Ready:
        """Return how to run within the budget in force. One part with the most threads is one with fewer, too.

        A forked child comes here, and leaves what was in use at the fork.
        """
        budget, ready = threads.most(), self._ready
        if ready is None or budget != ready.budget or ready.free.locked():
            ready = self._prepare(budget)
        self._ready = ready = ready._replace(budget=budget)
        return ready

    def _prepare(self, budget: Budget) -> _Ready:
        arrays = [(slot.shape, slot.dtype, slot.output) for slot in self._slots]
        call = None
        if sum(dtype.itemsize * math.prod(shape) for shape, dtype, _ in arrays) <= _MOST_KEPT:
            tensors = {slot.name: np.empty(slot.shape, slot.dtype) for slot in self._slots}
            words = list(map(frombuffer, tensors.values(), self._packed.words.values()))
            steps = self._packed.steps(tensors, words)
            with contextlib.suppress(LookupError):  # no such kernel: the call says so, once its tensors fit
                call = steps.alone(steps.plan_within(budget))
        if call is None:
            return _Ready(budget, threading.Lock(), Rows(arrays))
        told = list(map(call.cells_of, words))
        copied = [(slot.name, tensors[slot.name]) for slot, cells in zip(self._slots, told, strict=True) if not cells]
        return _Ready(budget, threading.Lock(), Rows(arrays, told), call.again, copied)
