"""Small calls of argmax that together compile all that a type needs."""

from collections.abc import Iterator

from dmlcpu.common.arguments import Array
from dmlcpu.directml.base import OperatorDesc
from dmlcpu.operators.argmax.descriptor import ArgmaxOperatorDesc
from dmlcpu.operators.table import Example, Workload
from dmlcpu.reductions.examples import calls, desc_example, large


def examples(dtype: str) -> Iterator[Example]:
    """Yield a plain call, and one for each kernel."""
    for arguments, kernel in calls("argmax", dtype):
        yield Example(arguments, kernel)


def desc_examples() -> Iterator[tuple[OperatorDesc, dict[str, Array]]]:
    """Yield the plain call as a desc, with the input to bind."""
    yield desc_example(ArgmaxOperatorDesc)


def workload(nbytes: int) -> Workload:
    """Return the search of each 10,000 numbers."""
    x = large(nbytes)
    return Workload({"x": x, "axis": 1}, "read", x.nbytes)
