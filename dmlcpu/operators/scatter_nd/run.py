"""Execution of a scatter_nd plan: several kernels one after the other, or a single kernel."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dmlcpu.common.arguments import Array
from dmlcpu.common.prepared import Prepared
from dmlcpu.indexing.reductions import INDEX_WORD
from dmlcpu.kernels.registry import Row
from dmlcpu.kernels.scatter_nd.work import BEFOREHAND, SPECULATIVE, VALID
from dmlcpu.operators.scatter_nd.buckets import Partition
from dmlcpu.runtime.kept_calls import kept_call
from dmlcpu.runtime.memory import Workspace
from dmlcpu.runtime.records import CELL

# How x is copied to out.
IN_PLACE = 0  # not at all: x is out
BY_KERNEL = 1  # by the kernels, because both have the same layout, without gaps
BY_NUMPY = 2  # by NumPy, before the kernels write


@dataclass(frozen=True, slots=True)
class Targets:
    """The speculatively written memory: a copy of the output, or an accumulator for each share of the updates."""

    count: int = 0  # of accumulators; 0: a copy of the output, in the output's ranges
    step: int = 0  # words from one accumulator to the next
    cell: int = 0  # of the workspace, where they begin


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(Prepared):
    """The kernels and the work record for one set of shapes, layouts and types."""

    workspace: Workspace
    row: Row  # of `apply`
    validate: Callable[..., Any] | None  # the kernels, for the parts of each; not all work needs each
    copy: Callable[..., Any] | None
    apply: Callable[..., Any]
    partition: Partition | None
    has_stages: bool  # the work is more than one part of `apply`
    parts: int  # shares of the updates
    owners: int  # shares of the output
    copied: int  # how x is copied: IN_PLACE, BY_KERNEL or BY_NUMPY
    validation: int  # BEFOREHAND, BY_BLOCK or SPECULATIVE
    targets: Targets
    merge: "Plan | None"  # reduces the other accumulators into the first one
    count: int  # of updates
    work: Array  # the work record of all kernels
    element: np.dtype[Any]  # the type as which kernels read elements
    view: Callable[..., Array]  # returns the words of an array
    nothing: Array | None  # the words of an x that no kernel copies

    def run(self, x: Array, indices: Array, updates: Array, out: Array) -> int | None:
        """Run the plan; return the place of the first index that is refused."""
        flat = self._words(x, indices, updates, out)
        scratch = self.workspace.take()
        if self.has_stages:
            place = self._in_stages(scratch, *flat, unlike=(out, x))
        else:
            self.apply(*flat, self.work, scratch)
            place = VALID if self.validation == BEFOREHAND else scratch.item(0)
        self.workspace.give_back(scratch)
        return None if place == VALID else place

    def _in_stages(
        self, scratch: Array, x: Array, indices: Array, updates: Array, out: Array, *, unlike: tuple[Array, Array]
    ) -> int:
        """Run one kernel after the other on the words of the arrays; unlike: out and x, for NumPy to copy."""
        partition, work = self.partition, self.work
        place = self._validate(indices, scratch)
        if place != VALID:
            return place
        if self.copied == BY_NUMPY:
            np.copyto(*unlike)
        if self.copy and not (partition and partition.copies):
            self.copy(x, out)
            x = x[:0]
        if partition and partition.is_spread(indices, work, scratch):
            partition.run(x, indices, updates, out, work, scratch)
            return VALID
        if self.copy and x.size:
            self.copy(x, out)
            x = x[:0]
        if self.validation == SPECULATIVE:
            return self._speculate(scratch, x, indices, updates, out)
        self.apply(x, indices, updates, out, self.work, scratch)
        return VALID if self.validation == BEFOREHAND else _reported(self.owners, scratch)

    def _validate(self, indices: Array, scratch: Array) -> int:
        """Return the position of the first bad index, or VALID, if a separate pass validates indices."""
        if self.partition:
            if not self.partition.validate(indices, self.work, scratch):
                return VALID
        elif self.validate:
            self.validate(indices, self.work, scratch)
        else:
            return VALID
        return _reported(self.parts, scratch)

    @property
    def indices_read(self) -> int:
        """The most index tuples that a call reads, in all threads together."""
        if self.partition:
            falls_back = self.partition.most < self.count
            return self.partition.indices_read + (self.owners * self.count if falls_back else 0)
        applying = 1 if self.targets.count else self.owners
        return ((1 if self.validate else 0) + applying) * self.count

    def _words(self, x: Array, indices: Array, updates: Array, out: Array) -> tuple[Array, Array, Array, Array]:
        """Return the words of all arrays, and none of x if no kernel copies it."""
        view, element = self.view, self.element
        flat_x = self.nothing if self.nothing is not None else view(x, element)
        return flat_x, view(indices, INDEX_WORD), view(updates, element), view(out, element)

    def _speculate(self, scratch: Array, x: Array, indices: Array, updates: Array, out: Array) -> int:
        """Write to a copy, or to accumulators, and to out only if all indices are valid."""
        source, target = self._target(scratch, x, out)
        if not source.size:
            target[: out.size] = out
        self.apply(source, indices, updates, target, self.work, scratch)
        place = _reported(self.owners, scratch)
        if place == VALID:
            if self.merge:
                others = target[self.targets.step :]
                self.merge.apply(x[:0], indices, others, target[: out.size], self.merge.work, scratch)
            out[...] = target[: out.size]
        return place

    def _target(self, scratch: Array, x: Array, out: Array) -> tuple[Array, Array]:
        """Return what `apply` copies, if anything, and where it writes speculatively."""
        source = out if self.targets.count and not x.size else x
        return source, np.frombuffer(scratch, out.dtype, offset=CELL * self.targets.cell)

    def keep(self, x: Array, indices: Array, updates: Array, out: Array) -> Callable[[], bool] | None:
        """Return a kept call, if `apply` does all the work."""
        if not self.is_single or self.validate or self.copy or self.partition or self.copied == BY_NUMPY:
            return None
        flat_x, flat_indices, flat_updates, flat_out = self._words(x, indices, updates, out)
        scratch, is_speculative = self.workspace.make(), self.validation == SPECULATIVE
        source, target = self._target(scratch, flat_x, flat_out) if is_speculative else (flat_x, flat_out)
        again = kept_call(self.row.kernel, source, flat_indices, flat_updates, target, self.work, scratch)
        if self.validation == BEFOREHAND:
            return again
        if not is_speculative:
            return lambda: again() and scratch.item(0) == VALID
        result = target[: flat_out.size]

        def speculate() -> bool:
            if not source.size:
                result[...] = flat_out
            if not again() or scratch.item(0) != VALID:
                return False
            flat_out[...] = result
            return True

        return speculate


def _reported(parts: int, scratch: Array) -> int:
    """Return the first place of a bad index that any share reports, or VALID."""
    for part in range(parts):
        place: int = scratch.item(part)
        if place != VALID:
            return place
    return VALID
