"""Which part of its limit each operator of the table reaches."""

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from dmlcpu.measure.limits import Limits, fastest
from dmlcpu.operators.table import OPERATORS, Operator


class Reached(NamedTuple):
    """How fast an operator was on its own workload.

    Attributes
    ----------
    operator : str
        Its name.
    limit : str
        The field of `Limits` that bounds it.
    rate : float
        What it did in a second: bytes, or products.
    fraction : float or None
        The rate by the limit's; None if that is not known. Of bytes that were still in a cache it may be more than 1.
    """

    operator: str
    limit: str
    rate: float
    fraction: float | None


def measure_operators(limits: Limits, seconds: float, nbytes: int) -> Iterator[Reached]:
    """Measure each operator, for some seconds, on at most the threads in use and on about `nbytes` of arrays."""
    for operator in OPERATORS.values():
        yield _measure(operator, limits, seconds, nbytes)


def _measure(operator: Operator, limits: Limits, seconds: float, nbytes: int) -> Reached:
    workload = operator.workload(nbytes)
    out = operator.function(**workload.arguments)  # written to again and again: the system would clear fresh memory
    rate = workload.amount / fastest(partial(operator.function, **workload.arguments, out=out), seconds)
    limit = limits.rate(workload.limit)
    return Reached(operator.name, workload.limit, rate, rate / limit if limit else None)
