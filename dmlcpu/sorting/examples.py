"""Small calls of sorts that together compile all that a type needs."""

from collections.abc import Iterator

import numpy as np

from dmlcpu.common.arguments import Array
from dmlcpu.kernels.sort.work import LANES, SHORT
from dmlcpu.operators.table import Example, Workload


def examples(dtype: str) -> Iterator[Example]:
    """Yield a plain call, and one for each kernel."""
    yield Example({"x": numbers(dtype, (2, 40))})
    yield Example({"x": numbers(dtype, (LANES, 20))})
    yield Example({"x": numbers(dtype, (SHORT + 20, 5)), "axis": 0})
    yield Example({"x": numbers(dtype, (1, 400))}, "split")


def desc_examples() -> Iterator[tuple[object, dict[str, object]]]:
    """Yield nothing: DirectML has no such operators."""
    yield from ()


def sort_of_rows(nbytes: int, outputs: int) -> Workload:
    """Return the sort of each 10,000 float32; outputs: bytes that are written for each."""
    rows = -(-nbytes // (10_000 * (4 + outputs)))
    x = np.random.default_rng(0).random((rows, 10_000), np.float32)
    return Workload({"x": x}, "copy", x.size * (4 + outputs))


def numbers(dtype: str, shape: tuple[int, int]) -> Array:
    """Return numbers in no order, some of them several times."""
    return (np.arange(shape[0] * shape[1]) * 37 % 101).astype(dtype).reshape(shape)
