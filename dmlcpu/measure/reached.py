"""Which part of its limit each operator of the table reaches."""

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
        The rate by the limit's; None if that is not known. It may be more than 1 if bytes were still in a cache.
    """

    operator: str
    limit: str
    rate: float
    fraction: float | None = None

    def of(self, limits: Limits) -> "Reached":
        """Return this with the fraction of the limit."""
        limit = limits.rate(self.limit)
        return self._replace(fraction=self.rate / limit if limit else None)


def measure_operators(seconds: float, nbytes: int) -> list[Reached]:
    """Measure each operator for some seconds, on arrays of about `nbytes`; fractions are not known yet."""
    return [_measure(operator, seconds, nbytes) for operator in OPERATORS.values()]


def _measure(operator: Operator, seconds: float, nbytes: int) -> Reached:
    workload = operator.workload(nbytes)
    out = operator.function(**workload.arguments)  # written to again and again: the system would clear fresh memory
    call = partial(operator.function, **workload.arguments, out=out)
    return Reached(operator.name, workload.limit, workload.amount / fastest(call, seconds))
