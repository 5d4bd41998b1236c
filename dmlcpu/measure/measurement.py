"""The results of ``dmlcpu info --measure``, as data and as text."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dmlcpu.measure.advice import NO_COMPILATION, Conditions, advise, conditions
from dmlcpu.measure.limits import SECONDS, Limits, Reached, measure_limits, measure_operators, memory_to_use
from dmlcpu.runtime.compilation import can_compile, watch_compilations

_UNITS = {"read": "GB/s", "copy": "GB/s", "multiply": "products/ns"}


@dataclass(frozen=True, slots=True)
class Measurement:
    """The machine's limits, the fractions that operators reach, and advice.

    Attributes
    ----------
    conditions : Conditions
        The conditions of the measurement.
    limits : list of Limits
        Those of one thread, and of all in use if there are several.
    operators : list of Reached
        What each operator reaches with the threads in use.
    compiled : int
        How many kernels had to be compiled.
    compile_seconds : float
        How long that took; the measurements do not include it.
    advice : list of str
        The advice that applies; may be empty.
    """

    conditions: Conditions
    limits: list[Limits]
    operators: list[Reached]
    compiled: int
    compile_seconds: float
    advice: list[str]


def measure(
    before_compiling: Callable[[], None] = lambda: None, *, seconds: float = SECONDS, nbytes: int | None = None
) -> Measurement:
    """Measure limits and operators.

    If compilation is switched off, nothing is measured, and the advice says so.

    Parameters
    ----------
    before_compiling : callable, optional
        Called once, before the first kernel that the cache lacks is compiled.
    seconds : float, default: 0.06
        The time for each rate and for each operator.
    nbytes : int, optional
        The memory for arrays. By default 128 MiB, or a sixteenth of the machine's memory if that is less.

    Returns
    -------
    Measurement
        All that was found.
    """
    found = conditions()
    if not can_compile():
        return Measurement(found, [], [], 0, 0.0, [NO_COMPILATION])
    nbytes = nbytes or memory_to_use()
    with watch_compilations(before_compiling) as compilations:
        counts = sorted({1, found.threads})
        before = measure_limits(*counts, seconds=seconds / 2, nbytes=nbytes)
        own = compilations.count  # the measuring kernels, which `dmlcpu warmup` does not compile
        # Half of the memory: an operator may need a workspace.
        rates = measure_operators(seconds, nbytes // 2)
        after = measure_limits(*counts, seconds=seconds / 2, nbytes=nbytes)
    limits = [one.best(other) for one, other in zip(before, after, strict=True)]  # other processes may disturb either
    reached = [each.of(limits[-1]) for each in rates]
    advice = advise(found, limits, reached, compilations.count - own)
    return Measurement(found, limits, reached, compilations.count, compilations.seconds, advice)


def as_data(found: Measurement) -> dict[str, Any]:
    """Return a measurement in JSON types; rates are per second."""
    return {
        "conditions": found.conditions._asdict(),
        "limits": [each._asdict() for each in found.limits],
        "operators": [each._asdict() for each in found.operators],
        "compiled": {"kernels": found.compiled, "seconds": found.compile_seconds},
        "advice": found.advice,
    }


def as_text(found: Measurement) -> str:
    """Return the text of a measurement."""
    lines = _measured(found) if found.limits else ["nothing is measured"]
    if found.compiled:
        lines += ["compiled", f"  {found.compiled} kernels in {found.compile_seconds:.1f} s"]
    return "\n".join([*lines, "advice", *(f"  {each}" for each in found.advice or ["none: nothing is off"])])


def _measured(found: Measurement) -> list[str]:
    lines = [f"limits ({found.conditions.isa})"]
    lines += [f"  {name:8}  {_rates(found.limits, name, unit)}" for name, unit in _UNITS.items()]
    width = max(len(each.operator) for each in found.operators)
    lines.append("operators")
    for name, limit, rate, fraction in found.operators:
        part = "" if fraction is None else f"{fraction:4.0%} of "
        lines.append(f"  {name:{width}}  {part}{limit}: {_rate(rate, _UNITS[limit])}")
    return lines


def _rates(limits: list[Limits], name: str, unit: str) -> str:
    """Return the text of a rate for each number of threads."""
    rates = [(getattr(each, name), each.threads) for each in limits]
    texts = [f"{_rate(rate, unit)} on {threads} thread{'s'[: threads > 1]}" for rate, threads in rates if rate]
    return ", ".join(texts) or "not measured: only on x86-64 and ARM"


def _rate(rate: float, unit: str) -> str:
    return f"{rate / 1e9:.1f} {unit}"
