"""Prepared calls: everything that can be decided about a call before any value is read.

Each operator has a cached function `prepare` of forms, options and a budget. It makes every check that reads no values,
chooses the kernel and cuts the work. `Prepared.run` then does the work on arrays of these forms. Every way to call an
operator uses this pair.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from dmlcpu.common.arguments import Array
from dmlcpu.common.regions import Tensor
from dmlcpu.runtime.memory import Workspace
from dmlcpu.runtime.records import CELL
from dmlcpu.runtime.results import maker_of

Request = tuple[tuple[Any, ...], tuple[Any, ...]]  # a key of `prepare` without the budget, and the arrays of a call
Converter = tuple[int, Callable[[Any], Any]]  # the position of an array, and its conversion

NO_WORKSPACE = Workspace(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """How calls with certain forms and options run. It is made once and used from any thread."""

    operator: str
    results: tuple[Tensor, ...]
    kernel: str  # its name; "reference" without compilation, "none" if there is nothing to do
    is_single: bool = True  # the work is one part
    workspace: Workspace = NO_WORKSPACE
    new: tuple[Callable[[], Array], ...] = field(init=False, repr=False)  # each makes an array for a result

    def __post_init__(self) -> None:
        object.__setattr__(self, "new", tuple([maker_of(*each) for each in self.results]))

    @property
    def workspace_bytes(self) -> int:
        """The bytes of workspace that a call takes."""
        return 0 if self.workspace is NO_WORKSPACE else CELL * self.workspace.cells

    def run(self, *arrays: Any) -> Any:
        """Run on arrays of the forms: inputs first, then outputs.

        Return None. If a value is refused, write nothing and return something else, from which the operator's function
        makes the error.
        """
        raise NotImplementedError

    def keep(self, *arrays: Any) -> Callable[[], bool] | None:
        """Return a kept call on these arrays, for one thread at a time; None if there are several parts or kernels.

        A kept call returns False and writes nothing if a value is refused.
        """
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ByFunction(Prepared):
    """A call that runs a Python function: the reference, or one with nothing to do."""

    function: Callable[..., Any]

    def run(self, *arrays: Any) -> Any:
        """Call the function."""
        return self.function(*arrays)


def nothing(*arrays: Any) -> None:
    """Do nothing: for calls whose results have no elements."""


def around(inner: Prepared, function: Callable[..., Any]) -> Prepared:
    """Return a prepared call of a function that runs `inner`."""
    own = {name: getattr(inner, name) for name in ("operator", "results", "kernel", "is_single", "workspace")}
    return ByFunction(function=function, **own)


def converting(inner: Prepared, converters: list[Converter]) -> Prepared:
    """Return a prepared call that converts arrays first, each time; the given one if there is nothing to convert."""

    def run(*arrays: Any) -> Any:
        converted = list(arrays)
        for place, convert in converters:
            converted[place] = convert(converted[place])
        return inner.run(*converted)

    return around(inner, run) if converters else inner
