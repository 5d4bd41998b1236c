"""Small calls of matmul_top_k that together compile all that a type needs on this machine."""

from collections.abc import Iterator

from dmlcpu.operators.table import Example, Workload
from dmlcpu.products.examples import SIZE, calls, matrix, square


def examples(dtype: str) -> Iterator[Example]:
    """Yield a call for each way to read b, the plain one first. Sums and scaled scores have the same kernels."""
    yield from map(Example, calls(dtype, k=10, a_zero_point=3, b_zero_point=-2))
    yield Example({"a": matrix(2, dtype), "b": matrix(96, "int8").T, "k": 40, "a_scale": 0.5})


def desc_examples() -> Iterator[tuple[object, dict[str, object]]]:
    """Yield nothing: DirectML has no such operator."""
    yield from ()


def workload(_nbytes: int) -> Workload:
    """Return a product of square matrices."""
    return Workload(square(k=10), "multiply", SIZE**3)
