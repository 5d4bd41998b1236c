"""What a job may run: an operator of the table, a DxDispatch model, a saved index or the building of one."""

import contextlib
import errno
import functools
import importlib
import inspect
import operator
import os
import stat
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, get_args

from dmlcpu.common.arguments import Array
from dmlcpu.common.regions import Estimate, Sink
from dmlcpu.files import Identity
from dmlcpu.files.base import Format, identity_of
from dmlcpu.files.formats import INDEX
from dmlcpu.files.identities import until_read_again
from dmlcpu.operators.table import OPERATORS

BUILD = "build_index"
# The classes of operations that are no operators, by the suffix or the name of a job's `op`. None is imported before a
# job names it. A path of another suffix is an index.
_ENTERED = {
    ".json": ("models.operation", "ModelOperation"),
    INDEX: ("search.blocks", "IndexOperation"),
    BUILD: ("search.blocks", "BuildOperation"),
}
_TRIES = 3  # to read a model or an index whose files change meanwhile
_MOST_KEPT = 32  # models and indices
_State = tuple[os.stat_result, ...]
_kept: dict[Path, tuple["_State | None", "Operation"]] = {}

Arguments = Mapping[str, Any]  # values and arrays; of `sources` also arrays that are not in memory


class Operation(Protocol):
    """What can be run on files."""

    parameters: tuple[str, ...]  # all names of arguments
    first: str | None  # the argument that a glob's file is for, if the job gives no other
    required: tuple[str, ...]
    defaults: Mapping[str, Any]  # of arguments that the function requires and a job may leave out
    sources: tuple[str, ...]  # arguments that are large, and need not be in memory
    results: tuple[str, ...]
    files: tuple[Path, ...]  # that it was read from
    states: Mapping[Path, Identity]  # of its path and its files when it was read, if they are known
    form: Format | None  # of its result, which it writes in blocks; None: the format that the output's suffix says

    def estimate(self, arguments: Arguments) -> Estimate:
        """Return the results' shapes and the memory it takes; refuse arguments that do not fit."""

    def run(self, arguments: Arguments) -> Mapping[str, Array]:
        """Run in one piece, on arrays in memory."""

    def run_in_blocks(
        self, arguments: Arguments, sinks: Mapping[str, Sink], memory: int, stopping: Callable[[], bool]
    ) -> None:
        """Run in blocks that take at most `memory` bytes."""


@functools.lru_cache(maxsize=1024)
def is_path(op: str) -> bool:
    """Return whether a job's `op` is a file or a folder, and not the name of an operation."""
    return "/" in op or os.sep in op or _suffix(op) in _ENTERED


def _suffix(op: str) -> str:
    return os.path.splitext(op.rstrip("/"))[1].lower()


def canonical(op: str) -> str:
    """Return a job's `op` in one spelling; operators may be spelled as commands are."""
    return op if is_path(op) else op.replace("-", "_")


def version_of(op: str) -> str:
    """Return the version of an `op`: results of another version are computed anew."""
    name = canonical(op)
    if is_path(op) or name in _ENTERED:
        version: str = _entered(name).version()
        return version
    return f"{name} {OPERATORS[name].version}" if name in OPERATORS else ""


def operation_of(op: str, directory: Path) -> Operation:
    """Return what a job's `op` names, or raise LookupError with the names that are allowed, or a model's own errors."""
    if is_path(op):
        path = directory / op
        mode = path.stat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise OSError(errno.EINVAL, "a pipe or a device", str(path))  # which could block forever
        return _loaded(path)
    return _named(canonical(op))


def _loaded(path: Path) -> Operation:
    """Return a model or a saved index as its files are now; one of which a file has changed is read again."""
    kept = _kept.get(path)
    if kept is not None and kept[0] and _is_same(kept[0], _state(path, kept[1])):
        return kept[1]
    around = path if path.is_dir() else path.parent
    real = Path(os.path.realpath(around))  # one folder, wherever links lead meanwhile
    for _ in range(_TRIES):
        begun = time.time_ns()
        operation: Operation = _entered(str(path))(real if around == path else real / path.name)
        state = _state(real if around == path else real / path.name, operation)
        left = until_read_again((when for each in state or () for when in (each.st_mtime_ns, each.st_ctime_ns)), begun)
        if state and left is None:
            break
        time.sleep(left or 0)
    else:
        state = None  # it may not be what the files hold: the next time it is read again
    operation.files = tuple(
        around / each.relative_to(real) if each.is_relative_to(real) else each for each in operation.files
    )
    operation.states = dict(zip((path, *operation.files), map(identity_of, state or ()), strict=False))
    if len(_kept) >= _MOST_KEPT:
        _kept.clear()
    _kept[path] = state, operation
    return operation


def _entered(op: str) -> Any:
    """Return the class of an operation that is no operator."""
    module, name = _ENTERED[op if op in _ENTERED else suffix if (suffix := _suffix(op)) in _ENTERED else INDEX]
    return getattr(importlib.import_module(f"dmlcpu.{module}"), name)


@functools.cache
def _named(name: str) -> Operation:
    if name not in OPERATORS and name not in _ENTERED:
        raise LookupError(f"{', '.join(OPERATORS)}, a DxDispatch model (.json), a saved index ({INDEX}) or {BUILD}")
    operation: Operation = OperatorOperation(name) if name in OPERATORS else _entered(name)()
    return operation


def _state(path: Path, operation: Operation) -> _State | None:
    """Return the states of the files that an operation was read from; None if one is gone."""
    with contextlib.suppress(OSError):
        return tuple(map(os.stat, (path, *operation.files)))
    return None


def _is_same(before: _State, now: _State | None) -> bool:
    """Return whether inodes, sizes and times are the same."""
    fields = operator.attrgetter("st_dev", "st_ino", "st_size", "st_mtime_ns", "st_ctime_ns")
    return [*map(fields, before)] == [*map(fields, now or ())]


class OperatorOperation:
    """An operator of the table."""

    def __init__(self, name: str) -> None:
        row = OPERATORS[name]
        signature = inspect.signature(row.function, eval_str=True).parameters
        self.parameters = tuple(name for name in signature if name != "out")
        self.first: str | None = self.parameters[0]
        given = [name for name, each in signature.items() if each.default is each.empty]
        optional = [name for name in given if type(None) in get_args(signature[name].annotation)]
        self.defaults: Mapping[str, Any] = dict.fromkeys(optional)  # TOML cannot say None
        self.required = tuple(name for name in given if name not in self.defaults)
        self.results = row.results
        self.files: tuple[Path, ...] = ()
        self.states: Mapping[Path, Identity] = {}
        self.form: Format | None = None
        self.sources: tuple[str, ...] = row.blocks.SOURCES
        self._function = row.function
        self._blocks = row.blocks
        self.run_in_blocks = row.blocks.run

    def estimate(self, arguments: Arguments) -> Estimate:
        """Let the operator estimate it."""
        estimate: Estimate = self._blocks.estimate(**arguments)
        return estimate

    def run(self, arguments: Arguments) -> Mapping[str, Array]:
        """Call the operator's function."""
        given = self._function(**arguments)
        return dict(zip(self.results, given if isinstance(given, tuple) else (given,), strict=True))
