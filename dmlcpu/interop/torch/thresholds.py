"""The sizes from which calls of a kind are taken: measured once on each machine, then kept in a file.

A decision must not change between runs of a program, because the order of equal elements would change with it. So a
measurement that cannot be kept is not made: the sizes of `shipped` hold then, which are the same in every process.
"""

import contextlib
import hashlib
import itertools
import json
import logging
import math
import os
import platform
import statistics
import threading
import time
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeGuard

import torch

from dmlcpu import __version__
from dmlcpu.interop.torch import shipped
from dmlcpu.interop.torch.override import Kind, Override
from dmlcpu.kernels import registry
from dmlcpu.runtime import threads
from dmlcpu.runtime.compilation import can_compile
from dmlcpu.runtime.isa import allowed

_log = logging.getLogger("dmlcpu")

SLOWER = "PyTorch is faster"

# At most this share of PyTorch's time: a smaller lead might be gone in the next measurement.
_GAIN = 0.9
_DISPATCH_US = 2  # PyTorch's time to call a kernel in Python, on Zen 4
_ROUNDS = 5, 25  # the least number, and the most, which _MOST_NS may cut short
_LEAST_NS, _MOST_NS = 200_000, 20_000_000  # of a round; of all
_LONG_US = 10_000  # after a longer call no larger size is measured: the decision for this one holds for them
_PAUSE_S = 0.1  # before something is measured again: what disturbed the first measurement may have gone
_BUSY = 1.2  # processes for each processor
_CPU = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)

_Key = tuple[str, int, Kind]  # operator, threads, kind of call
_Won = dict[int, bool]  # whether we are faster, by size, from the least
_Rounds = list[tuple[float, float]]  # microseconds of our call and of PyTorch's
_won: dict[_Key, _Won] = {}
_measuring = threading.RLock()  # a finalizer may call an operator in here
_measurer: int | None = None  # the thread that measures
_is_forked = False


def is_measuring() -> bool:
    """Return whether this thread measures. Its calls are not the program's."""
    return _measurer == threading.get_ident()


def loss(override: Override, original: Callable[..., Any], size: int, *args: Any, **kwargs: Any) -> str:
    """Return the reason not to take a call of this size, or "". original: PyTorch's kernel."""
    key = override.operator, min(torch.get_num_threads(), threads.get_num_threads()), override.kind(*args, **kwargs)
    won = _won.get(key)
    if won is None:
        with _measuring:  # other threads wait: they need the result, and would disturb the measurement
            won = _find(override, original, key)
    below = False
    for rung, is_won in won.items():  # in rising order
        if rung >= size:
            return "" if is_won and (below or rung == size) else SLOWER
        below = is_won
    return "" if below else SLOWER


def _find(override: Override, original: Callable[..., Any], key: _Key) -> _Won:
    """Return the sizes of a kind of call: from the file, measured now, or shipped. They hold for the process."""
    global _measurer
    path = _path()
    for known, won in _load(path).items():
        _won.setdefault(known, won)
    if key not in _won and _can_measure(path):
        _measurer = threading.get_ident()
        try:
            measured = _measure(override, original, key[2])
        finally:
            _measurer = None
        if _save(path, key, measured):
            _won[key] = _load(path).get(key, measured)  # another process may have been first
    if key not in _won:
        least = shipped.least(override.name, key[2], key[1])
        _won[key] = {} if least is None else {least: True}
    return _won[key]


def _can_measure(path: Path | None) -> TypeGuard[Path]:
    """Return whether a measurement would be good, and could be kept."""
    # A forked child has none of PyTorch's threads, but PyTorch waits for them: its parallel operators would hang.
    return path is not None and os.access(path.parent, os.W_OK) and not _is_forked and not _is_busy()


def _measure(override: Override, original: Callable[..., Any], kind: Kind) -> _Won:
    """Measure at all sizes, up to those whose calls are long."""
    won: _Won = {}
    for size in override.rungs:
        won[size], length = _compare(override, original, kind, size)
        if length > _LONG_US:
            time.sleep(_PAUSE_S)
            won[size], length = _compare(override, original, kind, size)
        if length > _LONG_US:
            break
    # On one side of a change there may have been a disturbance: two of three measurements decide.
    changes = [pair for pair in itertools.pairwise(won) if won[pair[0]] != won[pair[1]]]
    for size in sorted({*itertools.chain(*changes)}):
        time.sleep(_PAUSE_S)
        if _compare(override, original, kind, size)[0] != won[size]:
            time.sleep(_PAUSE_S)
            won[size], _ = _compare(override, original, kind, size)
    return won


def _compare(override: Override, original: Callable[..., Any], kind: Kind, size: int) -> tuple[bool, float]:
    """Return whether we are faster at a size, and the microseconds of the longer call."""
    try:
        args = override.sample(kind, size)
        theirs = partial(override.aside, *args) if override.aside else partial(original, _CPU, *args)
        rounds = _times(partial(_take, override, args), theirs)
    except MemoryError:
        return False, math.inf
    mine, other = (statistics.median(times) for times in zip(*rounds, strict=True))
    _log.debug("%s %s of size %d: %.1f us, PyTorch %.1f", override.operator, kind, size, mine, other)
    return mine + _DISPATCH_US <= _GAIN * other, max(map(min, zip(*rounds, strict=True)))


def _take(override: Override, args: tuple[Any, ...]) -> None:
    override.refusal(*args)
    override.run(*args)


def _times(mine: Callable[[], Any], theirs: Callable[[], Any]) -> _Rounds:
    """Return the microseconds of both calls in several rounds, in which they take turns."""
    calls, counts = (mine, theirs), []
    for call in calls:
        call()  # compiles
        before = time.perf_counter_ns()
        call()
        counts.append(max(1, _LEAST_NS // (time.perf_counter_ns() - before + 1)))
    start = time.perf_counter_ns()
    rounds: _Rounds = []
    while len(rounds) < _ROUNDS[1]:
        if len(rounds) >= _ROUNDS[0] and time.perf_counter_ns() - start > _MOST_NS:
            break
        one, other = (_time(call, count) for call, count in zip(calls, counts, strict=True))
        rounds.append((one, other))
    return rounds


def _time(call: Callable[[], Any], count: int) -> float:
    before = time.perf_counter_ns()
    for _ in range(count):
        call()
    return (time.perf_counter_ns() - before) / count / 1000


def _is_busy() -> bool:
    """Return whether the machine is overloaded, so that nothing should be measured."""
    return hasattr(os, "getloadavg") and os.getloadavg()[0] > _BUSY * (os.cpu_count() or 1)


def _folder() -> str | None:
    folder: str | None = registry.find("top_k", "select").kernel.share.stats.cache_path if can_compile() else None
    return folder


def _path() -> Path | None:
    """Return the file for this machine and these versions; None without a folder."""
    folder = _folder()
    if folder is None:
        return None
    isas = sorted(isa.name for isa in allowed())
    machine = (platform.node(), os.cpu_count(), torch.__version__, __version__, isas)
    return Path(folder) / f"torch.{hashlib.sha256(repr(machine).encode()).hexdigest()[:16]}.json"


def _load(path: Path | None) -> dict[_Key, _Won]:
    """Return the measurements in a file; none if it is missing or damaged."""
    try:
        rows = json.loads(path.read_text()) if path else []
        return {(operator, count, tuple(kind)): dict(won) for operator, count, kind, won in rows}
    except (OSError, ValueError, TypeError):
        return {}


def _save(path: Path, key: _Key, measured: _Won) -> bool:
    """Add a measurement to the file, which is replaced atomically; return whether that could be done."""
    kept = {key: measured} | _load(path)
    rows = [[operator, count, kind, [*won.items()]] for (operator, count, kind), won in kept.items()]
    unfinished = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        unfinished.write_text(json.dumps(rows))
        os.replace(unfinished, path)
        return True
    except OSError as error:
        _log.debug("a measurement could not be saved (%s)", error)
        with contextlib.suppress(OSError):
            unfinished.unlink()
        return False


def _after_fork_in_child() -> None:
    global _measuring, _measurer, _is_forked
    _measuring, _measurer = threading.RLock(), None  # a thread of the parent may have held the old one
    _is_forked = True


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_after_fork_in_child)
