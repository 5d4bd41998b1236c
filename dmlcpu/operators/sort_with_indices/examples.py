"""Small calls of sort_with_indices; the family has them."""

from collections.abc import Iterator
from itertools import starmap

from dmlcpu.operators.table import Example, Workload
from dmlcpu.sorting.examples import calls, rows_to_sort


def examples(dtype: str) -> Iterator[Example]:
    """Yield a plain call, and one for each kernel."""
    yield from starmap(Example, calls(dtype))


def desc_examples() -> Iterator[tuple[object, dict[str, object]]]:
    """Yield nothing: DirectML has no such operator."""
    yield from ()


def workload(nbytes: int) -> Workload:
    """Return the sort of each 10,000 numbers."""
    return Workload(*rows_to_sort(nbytes, outputs=12))
