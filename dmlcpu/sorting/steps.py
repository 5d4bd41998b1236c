"""The steps of a sort whose threads share each sequence; kernels/sort/split.py says what they do."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dmlcpu.common.arguments import Array
from dmlcpu.kernels.radix import RADIX
from dmlcpu.kernels.sort.split import (
    ALL,
    COUNT,
    FOUND,
    LOAD,
    MOVE,
    OWN,
    RESTORE,
    SETTLE,
    STEP,
    STEP_CELLS,
    WRITE,
    counts_at,
    words_at,
)
from dmlcpu.kernels.sort.windows import WINDOW


@dataclass(frozen=True, slots=True)
class Steps:
    """Calls a kernel for each step."""

    kernel: Callable[..., Any]  # for all parts
    parts: int
    rows: int
    n: int
    word: np.dtype[Any]  # an element of x
    sorts_keys: bool  # only values are wanted, and keys have up to 32 bits

    def __call__(self, *args: Array) -> None:
        """Sort each sequence. args: those of the kernel; the last is its workspace."""
        scratch = args[-1]
        step = scratch[:STEP_CELLS].view(STEP)[0]
        for row in range(self.rows):
            step["row"], step["n"], step["is_ordered"], step["source"], step["digit"] = row, self.n, 0, 0, ALL
            self._do(LOAD, step, args)
            if self._found(scratch)["is_ordered"].all():
                step["is_ordered"] = 1
                self._do(WRITE, step, args)
                continue
            self._find_windows(step, scratch)
            self._do(COUNT, step, args)
            for number, digit in enumerate(self._digits(scratch)):
                step["digit"] = digit
                if number:
                    self._do(COUNT, step, args)  # the first pass has moved words to other parts
                self._do(MOVE, step, args)
                step["source"] = 1 - step["source"]
            if step["zeros"] < 64 - WINDOW:
                self._do(SETTLE, step, args)
            self._do(WRITE, step, args)
            if self.sorts_keys:
                self._do(RESTORE, step, args)

    def _do(self, number: int, step: Any, args: tuple[Array, ...]) -> None:
        step["step"] = number
        self.kernel(*args)

    def _found(self, scratch: Array) -> Array:
        return scratch[STEP_CELLS : counts_at(self.parts)].view(FOUND)

    def _find_windows(self, step: Any, scratch: Array) -> None:
        """Say where the windows of 64-bit keys are; those of others are whole keys."""
        step["least"], step["zeros"] = 0, 64 - WINDOW
        if self.word.itemsize == 8:
            found = self._found(scratch)
            least, greatest = int(found["least"].view("u8").min()), int(found["greatest"].view("u8").max())
            step["least"] = np.uint64(least).view(np.int64)
            step["zeros"] = min(64 - WINDOW, 64 - (greatest - least).bit_length())

    def _digits(self, scratch: Array) -> list[int]:
        """Return the digits that are not the same in all words."""
        begin = words_at(self.parts)
        counts = scratch[counts_at(self.parts) : begin].reshape(self.parts, OWN)
        if self.sorts_keys:
            first = int(scratch[begin:].view(self.word)[0])
        else:
            first = int(scratch[begin : begin + 1].view("u8")[0]) >> 32
        digits = range(min(4, self.word.itemsize))
        return [d for d in digits if counts[:, d * RADIX + (first >> 8 * d & RADIX - 1)].sum() != self.n]
