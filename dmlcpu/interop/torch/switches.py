"""The switches of PyTorch's operators: `enable`, `disable`, `accelerated`, and counts of calls in `report`."""

import contextlib
import logging
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import torch

from dmlcpu.errors import DmlError
from dmlcpu.interop.torch.argmax import ARGMAX, ARGMIN
from dmlcpu.interop.torch.gather import GATHER
from dmlcpu.interop.torch.kthvalue import KTHVALUES
from dmlcpu.interop.torch.override import EXACT_TYPES, NO_COMPILATION, SMALL, SUBCLASS, Override, PassOnError
from dmlcpu.interop.torch.products import INT_MM
from dmlcpu.interop.torch.scatter import SCATTER
from dmlcpu.interop.torch.sort import SORT, UNIQUE
from dmlcpu.interop.torch.thresholds import THRESHOLDS, is_measuring
from dmlcpu.interop.torch.topk import TOPK
from dmlcpu.runtime.compilation import can_compile

# The names of operators in `include` and `exclude`.
_Name: TypeAlias = Literal[
    "topk", "sort", "unique", "kthvalue", "median", "nanmedian", "argmax", "argmin", "_int_mm", "index_add_",
    "scatter_add_", "scatter_add", "scatter_", "scatter", "scatter_reduce_", "scatter_reduce",
    "index_put_", "gather",
]  # fmt: skip
_log = logging.getLogger("dmlcpu")


@dataclass
class _Switch:
    """The switch of one operator."""

    override: Override
    is_on: bool = False
    library: Any = None  # registers the kernel in PyTorch's dispatcher; None: it is not registered
    taken: int = 0
    small: int = 0  # calls passed on because they are small; the frequent reason has the faster counter
    passed_on: Counter[str] = field(default_factory=Counter)

    def enter(self) -> None:
        """Register the kernel in the dispatcher, unless it is registered."""
        if self.library is not None:
            return
        kernel = _kernel(self)
        self.library = torch.library.Library("aten", "IMPL")
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Warning only once for all operators")  # that kernels are replaced
            self.library.impl(self.override.operator, kernel, "CPU", with_keyset=True)

    def leave(self) -> None:
        """Run the operator on PyTorch's own kernel again."""
        self.is_on = False
        if self.library is not None:
            _retired.append(torch.library.get_kernel(self.override.operator, "CPU"))
            self.library._destroy()
            self.library = None


_OVERRIDES = (TOPK, SORT, UNIQUE, *KTHVALUES, ARGMAX, ARGMIN, INT_MM, *SCATTER, GATHER)
_SWITCHES = {override.name: _Switch(override) for override in _OVERRIDES}
# Kernels are never freed: another thread may be about to call one that PyTorch has dropped (pytorch/pytorch#125234).
_retired: list[Any] = []


def enable(include: "Iterable[_Name] | None" = None, exclude: "Iterable[_Name]" = ()) -> None:
    """Run calls of PyTorch's CPU operators on dmlcpu's kernels, if these support the call and are faster.

    Parameters
    ----------
    include : iterable of str, optional
        Names of operators: ``topk``, ``sort``, ``unique``, ``kthvalue``, ``median``, ``nanmedian``, ``argmax``,
        ``argmin``, ``_int_mm``, ``index_add_``, ``scatter_add_``, ``scatter_add``, ``scatter_``, ``scatter``,
        ``scatter_reduce_``, ``scatter_reduce``, ``index_put_``, ``gather``; by default all. Other operators are
        disabled. Operators whose names end with an underscore change a tensor in place.
    exclude : iterable of str
        Names to leave out.

    Raises
    ------
    ValueError
        If a name is unknown.
    TypeError
        If an argument is not a list of names.

    Notes
    -----
    The kernels are registered in PyTorch's dispatcher for the CPU, which calls them after autograd, ``torch.func`` and
    autocast: these still work. PyTorch's own kernel runs the calls that dmlcpu's kernels do not support or in which
    they raise an error; `report` counts the reasons.

    Values and indices are PyTorch's, except where PyTorch does not specify them. Among equal elements `topk` returns
    the first, and medians return any. Sorts are stable. The last of several updates of one element remains, and updates
    are added in order.

    The first call of a kind on a machine measures the size from which dmlcpu's kernels are faster, and keeps it in the
    folder of compiled kernels. If it cannot be measured or kept, a table in the package has the size.

    `enable` applies to the whole process. Call `enable` and `disable` while no other thread runs these operators.

    Examples
    --------
    >>> import torch, dmlcpu.interop.torch
    >>> dmlcpu.interop.torch.enable()
    >>> torch.topk(torch.tensor([1.0, 3.0, 2.0]), 2).indices
    tensor([1, 2])
    >>> dmlcpu.interop.torch.disable()
    """
    names = _checked_names("enable", include, exclude)
    for name, switch in _SWITCHES.items():
        if name in names:
            switch.enter()
            switch.is_on = True
        else:
            switch.leave()


def disable() -> None:
    """Run all operators on PyTorch's own kernels again."""
    for switch in _SWITCHES.values():
        switch.leave()


@contextlib.contextmanager
def accelerated(include: "Iterable[_Name] | None" = None, exclude: "Iterable[_Name]" = ()) -> Iterator[None]:
    """Enable operators within a ``with`` statement, in the whole process; afterwards restore the earlier switches.

    Parameters
    ----------
    include, exclude : iterable of str
        As for `enable`.

    Notes
    -----
    Registering is slow, so afterwards the kernels stay registered, but switched off. Until `disable` is called, a call
    of these operators takes about 2 microseconds longer.

    Examples
    --------
    >>> import torch, dmlcpu.interop.torch
    >>> with dmlcpu.interop.torch.accelerated(include=["topk"]):
    ...     torch.topk(torch.tensor([1.0, 3.0, 2.0]), 2).indices
    tensor([1, 2])
    """
    names = _checked_names("accelerated", include, exclude)
    before = {name: switch.is_on for name, switch in _SWITCHES.items()}
    for name in names:
        _SWITCHES[name].enter()
    for name, switch in _SWITCHES.items():
        switch.is_on = name in names
    try:
        yield
    finally:
        for name, switch in _SWITCHES.items():
            gone = name in names and not switch.is_on  # switched off meanwhile: by `disable`, or because it failed
            switch.is_on = before[name] and switch.library is not None and not gone


def report() -> dict[str, dict[str, Any]]:
    """Return how many calls were taken and passed on since the process began.

    Returns
    -------
    dict
        For each operator a dictionary: "on", "taken" (number of calls that dmlcpu's kernels ran), and "passed on"
        (reason -> number of calls that PyTorch's kernel ran).

    Notes
    -----
    Calls that measure the size from which dmlcpu's kernels are faster are not counted. PyTorch runs some calls of
    ``index_add_`` as ``scatter_add_``: those count as calls of both. If Python has no GIL, simultaneous calls from
    several threads may count as one.

    Examples
    --------
    >>> import dmlcpu.interop.torch
    >>> [name for name in dmlcpu.interop.torch.report() if name.startswith("scatter_")]
    ['scatter_add_', 'scatter_add', 'scatter_', 'scatter_reduce_', 'scatter_reduce']
    """
    return {
        name: {
            "on": switch.is_on,
            "taken": switch.taken,
            "passed on": ({SMALL: switch.small} if switch.small else {}) | switch.passed_on,
        }
        for name, switch in _SWITCHES.items()
    }


def _checked_names(function: str, include: Iterable[str] | None, exclude: Iterable[str]) -> set[str]:
    """Return the names that are included and not excluded, or refuse one."""
    given = {"include": _SWITCHES if include is None else include, "exclude": exclude}
    for argument, names in given.items():
        if isinstance(names, str) or not isinstance(names, Iterable):
            raise TypeError(f"{function}: {argument} is {names!r}; allowed: a list of names")
        given[argument] = list(names)
        for name in given[argument]:
            if name not in [*_SWITCHES]:
                raise ValueError(f"{function}: {argument} has {name!r}; allowed: {', '.join(_SWITCHES)}")
    return set(given["include"]) - set(given["exclude"])


# PyTorch's kernel, called directly, holds the GIL. Small calls hold it for less than Python's own switch interval (5
# ms). A very large call goes to an overload with outputs, if there is one: that has the same kernel, releases the GIL,
# and takes 3 microseconds more.
_VERY_LARGE = 256  # times as large as the least size

# torch.compile traces every Python function that runs between its graphs; not these, and not what they call.
_dynamo = torch._C._dynamo.eval_frame
_UNTRACED = _dynamo._FrameExecStrategy(_dynamo._FrameAction.SKIP, _dynamo._FrameAction.SKIP)


def _kernel(switch: _Switch) -> Callable[..., Any]:
    """Return the function that PyTorch calls in place of its kernel."""
    override, passed_on = switch.override, switch.passed_on
    size_of, least, aside = override.size, override.least, override.aside
    original = torch.library.get_kernel(override.operator, "CPU").call_boxed

    # Small calls are frequent, so they run through little code.
    def kernel(keyset: Any, x: Any, *others: Any, **kwargs: Any) -> Any:
        if type(x) in EXACT_TYPES:
            with torch._C.DisableTorchFunction():  # modes see the user's call, but not these calls
                size = size_of(x, others)
            if size >= least:
                return large(size, keyset, x, *others, **kwargs)
            if switch.is_on:
                switch.small += 1
        elif switch.is_on:
            passed_on[SUBCLASS] += 1
        return original(keyset, x, *others, **kwargs)

    def large(size: int, keyset: Any, *args: Any, **kwargs: Any) -> Any:
        with torch._C.DisableTorchFunction():
            if switch.is_on and not is_measuring():
                reason, result = _attempt(switch, original, size, args, kwargs)
                if not reason:
                    return result
                passed_on[reason] += 1
            if aside is not None and size >= _VERY_LARGE * least:
                return aside(*args, **kwargs)
            return original(keyset, *args, **kwargs)

    _dynamo.set_code_exec_strategy(kernel.__code__, _UNTRACED)
    return kernel


def _attempt(
    switch: _Switch, original: Callable[..., Any], size: int, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[str, Any]:
    """Take a call, if it is not to be passed on; return the reason, or "" and the result."""
    override = switch.override
    try:
        reason = "" if can_compile() else NO_COMPILATION
        reason = reason or override.refusal(*args, **kwargs)
        reason = reason or THRESHOLDS.loss(override, original, size, *args, **kwargs)
        result = None if reason else override.run(*args, **kwargs)
    # These errors come before anything is written: kernels raise nothing.
    except PassOnError as error:
        return str(error), None
    except (DmlError, MemoryError) as error:  # PyTorch raises its own error
        return type(error).__name__, None
    except Exception as error:
        switch.is_on = False
        reason = f"{type(error).__name__}: {error}"
        _log.warning("%s runs on PyTorch's kernel from now on, as it raised %s", switch.override.name, reason)
        return reason, None
    switch.taken += not reason
    return reason, result
