"""matmul_integer on matrices that are read, and a result that is written, a block at a time."""

from collections.abc import Callable
from typing import Any

from dmlcpu.common.regions import Estimate, Sink
from dmlcpu.common.stand_ins import bind
from dmlcpu.operators.matmul_integer.function import check, execute, matmul_integer
from dmlcpu.products import blocks as product_blocks
from dmlcpu.products.blocks import Call, call_of

SOURCES = ("a", "b")
_OPERANDS = ("a", "a_zero", "b", "b_zero")


def estimate(**arguments: Any) -> Estimate:
    """Return what a call gives and takes; refuse what the function would. Nothing is read or compiled."""
    return product_blocks.estimate(_call(arguments))


def run(
    arguments: dict[str, Any], sinks: dict[str, Sink], memory: int, stopping: Callable[[], bool] = lambda: False
) -> None:
    """Write the product, matrix by matrix: rows of a in blocks, and columns of b if it does not fit."""
    product_blocks.run(_call(arguments), arguments, sinks, memory, stopping)


def _call(arguments: dict[str, Any]) -> Call:
    """Return the arguments in their plain forms, or refuse them."""
    return call_of("matmul_integer", execute, _OPERANDS, check(**bind(matmul_integer, arguments, SOURCES)))
