"""Which of PyTorch's operators are taken over: switched on and off, and what came of each call."""

import contextlib
import logging
import warnings
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from dmlcpu.errors import DmlError
from dmlcpu.interop.torch.override import Override
from dmlcpu.interop.torch.overrides import OVERRIDES
from dmlcpu.interop.torch.thresholds import loss
from dmlcpu.runtime.threads import at_most

_log = logging.getLogger("dmlcpu")


@dataclass
class _Switch:
    """One of PyTorch's operators, by the name that people type, with all its overloads."""

    is_on: bool = False
    taken: int = 0
    passed_on: dict[str, int] = field(default_factory=dict)


_SWITCHES: dict[str, _Switch] = {override.name: _Switch() for override in OVERRIDES}
_library: torch.library.Library | None = None
# What PyTorch is rid of, a thread may be about to call (pytorch/pytorch#125234). So it is never freed.
_kept: list[Any] = []


def enable(include: Collection[str] | None = None, exclude: Collection[str] = ()) -> None:
    """Let PyTorch's CPU operators run on dmlcpu's kernels, wherever these take a call and are faster.

    Parameters
    ----------
    include : collection of str, optional
        Names of operators: ``topk``, ``_int_mm``, ``index_add_``, ``index_put_``, ``scatter_add_``, ``scatter_``; by
        default all. Those that are not named are switched off.
    exclude : collection of str
        Names to leave out.

    Raises
    ------
    ValueError
        If a name is none of these.

    Notes
    -----
    The kernels are entered in PyTorch's dispatcher for the CPU, beneath autograd, ``torch.func`` and autocast, which go
    on working. A call that they do not take goes to PyTorch's own kernel, as does one that raises; `report` tells why.

    Values and indices are PyTorch's, but for what it leaves open: which of several equal elements `topk` returns (here
    the first), which of several updates of one element remains (the last), in which order updates are added (theirs).

    How large a call must be to be worth it is measured where it runs, at the first call of its kind, in less than a
    second, and kept in the folder of compiled kernels.

    It holds for the whole process. Call it, and `disable`, while no other thread runs one of these operators.

    Examples
    --------
    >>> import torch, dmlcpu.interop.torch
    >>> dmlcpu.interop.torch.enable()
    >>> torch.topk(torch.tensor([1.0, 3.0, 2.0]), 2).indices
    tensor([1, 2])
    >>> dmlcpu.interop.torch.disable()
    """
    names = _names("enable", include, exclude)
    _register()
    for name, switch in _SWITCHES.items():
        switch.is_on = name in names


def disable() -> None:
    """Give all operators back to PyTorch."""
    global _library
    for switch in _SWITCHES.values():
        switch.is_on = False
    if _library is not None:
        _kept.extend(torch.library.get_kernel(override.operator, "CPU") for override in OVERRIDES)
        _library._destroy()
        _library = None


@contextlib.contextmanager
def accelerated(include: Collection[str] | None = None, exclude: Collection[str] = ()) -> Iterator[None]:
    """Do what `enable` does for the time of a ``with``, then switch back to what was on before, in the whole process.

    Parameters
    ----------
    include, exclude : collection of str
        As of `enable`.

    Notes
    -----
    The kernels stay entered, switched off, so that entering again is cheap: until `disable`, a call of one of these
    operators takes about 2 microseconds more than without.

    Examples
    --------
    >>> import torch, dmlcpu.interop.torch
    >>> with dmlcpu.interop.torch.accelerated(include=["topk"]):
    ...     torch.topk(torch.tensor([1.0, 3.0, 2.0]), 2).indices
    tensor([1, 2])
    """
    before = {name: switch.is_on for name, switch in _SWITCHES.items()}
    enable(include, exclude)
    try:
        yield
    finally:
        for name, switch in _SWITCHES.items():
            switch.is_on = before[name]


def report() -> dict[str, dict[str, Any]]:
    """Return what came of the calls since the process began.

    Returns
    -------
    dict
        For each operator a dictionary: "on", "taken" (calls that these kernels carried out), and "passed on": for each
        reason the number of calls that went to PyTorch's kernel.

    Examples
    --------
    >>> import dmlcpu.interop.torch
    >>> sorted(dmlcpu.interop.torch.report())
    ['_int_mm', 'index_add_', 'index_put_', 'scatter_', 'scatter_add_', 'topk']
    """
    return {
        name: {"on": switch.is_on, "taken": switch.taken, "passed on": dict(switch.passed_on)}
        for name, switch in _SWITCHES.items()
    }


def _names(function: str, include: Collection[str] | None, exclude: Collection[str]) -> set[str]:
    """Return the operators that are meant, or refuse a name."""
    for argument, names in (("include", include or ()), ("exclude", exclude)):
        if isinstance(names, str):
            raise TypeError(f"{function}: {argument} is {names!r}; allowed: a list of names")
        for name in names:
            if name not in _SWITCHES:
                raise ValueError(f"{function}: {argument} has {name!r}; allowed: {', '.join(_SWITCHES)}")
    return set(_SWITCHES if include is None else include) - set(exclude)


def _register() -> None:
    """Enter the kernels in PyTorch's dispatcher, if they are not."""
    global _library
    if _library is not None:
        return
    kernels = [(override.operator, _kernel(override, _SWITCHES[override.name])) for override in OVERRIDES]
    _library = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Warning only once for all operators")  # that kernels are replaced
        for operator, kernel in kernels:
            _library.impl(operator, kernel, "CPU", with_keyset=True)


def _kernel(override: Override, switch: _Switch) -> Callable[..., Any]:
    """Return what PyTorch calls in the place of its own kernel."""
    original = torch.library.get_kernel(override.operator, "CPU").call_boxed
    refusal, run, passed_on = override.refusal, override.run, switch.passed_on

    def kernel(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        if switch.is_on:
            try:
                reason = refusal(*args, **kwargs) or loss(override, original, *args, **kwargs)
                if not reason:
                    with at_most(torch.get_num_threads()):
                        result = run(*args, **kwargs)
                    switch.taken += 1
                    return result
            except Exception as error:  # before anything is written: kernels raise nothing
                reason = _failed(override, switch, error)
            passed_on[reason] = passed_on.get(reason, 0) + 1
        return original(keyset, *args, **kwargs)

    return kernel


def _failed(override: Override, switch: _Switch, error: Exception) -> str:
    """Return the reason to pass a call on; what is not about its arguments would fail every call, so it is the last."""
    reason = f"{type(error).__name__}: {error}"
    if isinstance(error, DmlError | MemoryError):
        return type(error).__name__  # PyTorch says what is wrong with them
    switch.is_on = False
    _log.warning("%s is given back to PyTorch, as it raised %s", override.name, reason)
    return reason
