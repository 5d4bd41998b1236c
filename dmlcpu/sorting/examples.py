"""Small calls of sorts that together compile all that a type needs."""

from collections.abc import Iterator

import numpy as np

from dmlcpu.common.arguments import Array
from dmlcpu.kernels.sort.work import LANES, SHORT


def calls(dtype: str) -> Iterator[tuple[dict[str, object], str | None]]:
    """Yield the arguments of a plain call, and of one for each kernel; the kernel, if the plan does not choose it."""
    yield {"x": numbers(dtype, (2, 40))}, None
    yield {"x": numbers(dtype, (LANES, 20))}, None
    yield {"x": numbers(dtype, (SHORT + 20, 5)), "axis": 0}, "columns"
    yield {"x": numbers(dtype, (1, 400))}, "split"


def rows_to_sort(nbytes: int, outputs: int) -> tuple[dict[str, object], str, int]:
    """Return a workload: each 10,000 float32 are sorted, for each of which `outputs` bytes are written."""
    rows = -(-nbytes // (10_000 * (4 + outputs)))
    x = np.random.default_rng(0).random((rows, 10_000), np.float32)
    return {"x": x}, "copy", x.size * (4 + outputs)


def numbers(dtype: str, shape: tuple[int, int]) -> Array:
    """Return unordered numbers, some of them repeated."""
    return (np.arange(shape[0] * shape[1]) * 37 % 101).astype(dtype).reshape(shape)
