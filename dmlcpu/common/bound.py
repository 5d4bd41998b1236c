"""Operators bound to memory: checks, views and plans are made once; calls only run the kernel."""

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn

import numpy as np

from dmlcpu.common.arguments import Array
from dmlcpu.common.prepared import Prepared
from dmlcpu.runtime import threads
from dmlcpu.runtime.memory import spans_meet
from dmlcpu.runtime.threads import Budget

_Kept = tuple[threading.Lock, Callable[[], bool]]  # the lock that a caller takes, and the kept call
_NOTHING = None, None  # no call is chosen


class BoundOperator:
    """An operator on bound memory; `bind` and `CompiledOperator.bind` make it.

    Attributes
    ----------
    operator : str
        The name of the function, or of DirectML's operator.
    outputs : ndarray or named tuple of them
        What each call returns: the same arrays each time.

    Notes
    -----
    A call reads the values that the bound arrays have at that time, and overwrites the outputs. For invalid
    values, a call raises the operator's error and writes nothing. It uses the number of threads that is set at the
    time.

    The object keeps the memory of all arrays alive. As long as the object exists, NumPy refuses to resize these arrays,
    even with ``refcheck=False``, and Python refuses to resize or close a bytearray or mmap under them. It has its own
    views: a new shape, type or flag of a bound array object has no effect.

    Concurrent calls are safe, but write to the same outputs. The object cannot be pickled or copied: bind again in the
    other process.
    """

    __slots__ = ("__weakref__", "_arrays", "_chosen", "_held", "_prepare", "_whole", "operator", "outputs")

    def __init__(
        self,
        operator: str,
        outputs: Any,
        whole: Callable[[], Any],
        held: Iterable[Any],
        prepare: Callable[..., Prepared] | None = None,
        arrays: Iterable[Any] = (),
    ) -> None:
        """Bind.

        whole: makes a call with all checks, and raises errors about values; held: what is bound; prepare: takes a
        budget, None if each call must make all checks; arrays: what the prepared call reads and writes.
        """
        self.operator, self.outputs = operator, outputs
        self._prepare, self._arrays = prepare, tuple(arrays)
        self._whole = whole  # not a method: a reference cycle would keep the memory longer
        self._held = [each for array in held for each in holds(array)]
        # One attribute, read and set once by each call: several threads may choose at the same time.
        self._chosen: tuple[Budget | None, _Kept | None] = _NOTHING
        self._choose()

    def __call__(self) -> Any:
        """Run the operator on the bound memory, and return `outputs`."""
        budget, kept = self._chosen
        if threads.awake() is not budget:
            kept = self._choose()
        if kept is None:
            return self._run()
        free, again = kept
        try:
            # It is held during a call in another thread, or if a signal handler interrupts a call.
            if free.acquire(False):
                try:
                    done = again()
                finally:
                    free.release()
                if done:
                    return self.outputs
        except BaseException:
            self._chosen = _NOTHING  # an interrupt may have left it locked: the next call uses another workspace
            raise
        return self._run()

    def _run(self) -> Any:
        """Make a call that is not kept."""
        if self._prepare is None or threads.plan_for_now(self._prepare).run(*self._arrays) is not None:
            self._whole()
        return self.outputs

    def _choose(self) -> _Kept | None:
        """Choose how to run within the current budget. Work that is one part with most threads is one part with fewer.

        A forked child also chooses here, as calls may have been in use at the fork.
        """
        budget, (before, kept) = threads.awake(), self._chosen
        if self._prepare and (budget != before or (kept and kept[0].locked())):
            again = self._prepare(threads.most()).keep(*self._arrays)
            kept = again and (threading.Lock(), again)
        self._chosen = budget, kept
        return kept

    def __repr__(self) -> str:
        return f"<BoundOperator {self.operator}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{self.operator}: a bound operator is bound to memory of this process; bind in the other one")


def holds(value: Any) -> list[Any]:
    """Return the objects that keep the memory under an array alive and prevent its reallocation."""
    held = [value]
    if not isinstance(value, np.ndarray):
        return held
    owner: Any = value
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    held.append(weakref.ref(owner))  # NumPy never resizes an array that has a weak reference
    # A PyTorch tensor releases its memory when it is assigned other memory (`set_`); the storage does not.
    storage = getattr(owner.base, "untyped_storage", None)
    if storage is not None:
        held.append(storage())
    # `numpy.ndarray(..., buffer)` itself does not keep a bytearray or mmap from being resized.
    with contextlib.suppress(TypeError):
        held.append(memoryview(owner.base))
    return held


def are_used(given: Iterable[Array], used: Iterable[Any]) -> bool:
    """Return whether kernels read all of some arrays directly, without a copy.

    used: what they read, in nested sequences, each array once. Overlap with one of them is not enough, as arrays may
    share memory: given `a` and a copy of its view `b`, one array overlaps both.
    """
    given = [each for each in given if each.size]
    return sum(any(spans_meet(each, mine) for mine in given) for each in _arrays_of(used)) >= len(given)


def _arrays_of(values: Iterable[Any]) -> Iterator[Array]:
    """Yield the arrays in nested sequences."""
    for value in values:
        if isinstance(value, tuple | list):
            yield from _arrays_of(value)
        elif isinstance(value, np.ndarray):
            yield value


def own_view(value: Any) -> Any:
    """Return a plain view of an array: changes of the shape, type and flags of the array itself do not reach it.

    Anything else is returned as it is, and so are masked arrays, which checks refuse.
    """
    is_array = isinstance(value, np.ndarray) and not isinstance(value, np.ma.MaskedArray)
    return value.view(np.ndarray) if is_array else value
