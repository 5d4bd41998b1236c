"""Memory between inaccessible pages, which remembers which of its bytes may change."""

import contextlib
import ctypes
import mmap
from collections.abc import Iterator
from typing import NamedTuple
from unittest import mock

import numpy as np

from dmlcpu.products import packing
from dmlcpu.runtime.memory import Workspace

PATTERN = 0xA5
LINE = 64  # workspaces and packed matrices begin on a cache line
_NO_ACCESS = 0


class Loan(NamedTuple):
    """Pages that are lent, without the two inaccessible ones."""

    what: str
    bytes: np.ndarray
    before: np.ndarray
    may_change: np.ndarray  # for each byte


class Guard:
    """Lends memory for the arrays of one call, and checks afterwards that nothing else was written.

    Each array ends where an inaccessible page begins, or begins where one ends.
    """

    def __init__(self, at_end: bool) -> None:
        self._at_end = at_end
        self._loans: list[Loan] = []

    def array(self, x: np.ndarray, what: str, *, written: bool = False, empty: bool = False) -> np.ndarray:
        """Return an array of the same layout, and values unless it is `empty`; `written`: its elements may change."""
        if x.size == 0:
            return x.copy()
        steps = [stride * (n - 1) for stride, n in zip(x.strides, x.shape, strict=True)]
        before = -sum(step for step in steps if step < 0)  # the first element in memory
        span = sum(map(abs, steps)) + x.itemsize
        odd = 0 if x.flags.aligned else 1
        pages, start = self._pages(span + odd)
        start += before + (0 if self._at_end else odd)
        y = np.ndarray(x.shape, x.dtype, pages, start, x.strides)
        if not empty:
            y[...] = x
        loan = self._lend(pages, what)
        if written:
            element = np.void(b"\1" * x.itemsize)
            np.ndarray(x.shape, element.dtype, loan.may_change, start, x.strides)[...] = element
        else:
            y.flags.writeable = x.flags.writeable
        return y

    def buffer(self, nbytes: int, what: str) -> np.ndarray:
        """Return bytes that may change, on a cache line."""
        pages, start = self._pages(nbytes + -nbytes % LINE)
        self._lend(pages, what).may_change[start : start + nbytes] = True
        return pages[start : start + nbytes]

    def check(self) -> None:
        """Check that no byte was written that may not change."""
        for loan in self._loans:
            wrong = np.flatnonzero((loan.bytes != loan.before) & ~loan.may_change.view(bool))
            assert not wrong.size, f"{loan.what}: {wrong.size} bytes were written, the first is {wrong[0]} of the pages"

    @contextlib.contextmanager
    def lends_workspaces(self) -> Iterator[None]:
        """Lend the memory of workspaces and of packed matrices, too."""

        def cells(workspace: Workspace) -> np.ndarray:
            return self.buffer(8 * workspace.cells, "a workspace").view(np.int64)

        def packed(length: int, dtype: type) -> np.ndarray:
            return self.buffer(length * np.dtype(dtype).itemsize, "a packed matrix").view(dtype)

        replaced = {"take": cells, "make": cells, "give_back": lambda _self, _block: None}
        with mock.patch.multiple(Workspace, **replaced), mock.patch.object(packing, "aligned_empty", packed):
            yield

    def _pages(self, nbytes: int) -> tuple[np.ndarray, int]:
        """Return pages between two inaccessible ones, and where `nbytes` begin that lie against one of these."""
        page = mmap.PAGESIZE
        count = max(1, -(-nbytes // page))
        memory = np.frombuffer(mmap.mmap(-1, (count + 2) * page), np.uint8)
        for number in (0, count + 1):
            address = ctypes.c_void_p(memory.ctypes.data + number * page)
            assert ctypes.CDLL(None).mprotect(address, ctypes.c_size_t(page), _NO_ACCESS) == 0
        pages = memory[page:-page]
        pages[...] = PATTERN
        return pages, pages.size - nbytes if self._at_end else 0

    def _lend(self, pages: np.ndarray, what: str) -> Loan:
        self._loans.append(Loan(what, pages, pages.copy(), np.zeros(pages.size, np.uint8)))
        return self._loans[-1]
