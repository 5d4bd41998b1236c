"""The sizes from which calls of a kind are taken: measured once on each machine, then kept in a file.

A decision must not change between runs of a program, because the order of equal elements would change with it.
"""

import contextlib
import hashlib
import json
import logging
import os
import platform
import threading
import time
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from dmlcpu import __version__
from dmlcpu.interop.torch.override import Kind, Override
from dmlcpu.kernels import registry
from dmlcpu.runtime import threads
from dmlcpu.runtime.compilation import can_compile
from dmlcpu.runtime.isa import allowed

_log = logging.getLogger("dmlcpu")

SLOWER = "PyTorch is faster"
MEASURING = "within a measurement"
FORKED = "not measured before the fork"

# At most this share of PyTorch's time: a smaller lead might be gone in the next measurement.
_GAIN = 0.9
_DISPATCH_US = 2  # PyTorch's time to call a kernel in Python, on Zen 4
_ROUNDS = 5, 25  # the least number, and the most, which _MOST_NS may cut short
_LEAST_NS, _MOST_NS = 200_000, 20_000_000  # of a round; of all
_LONG_US = 10_000  # after a longer call no larger size is measured: the decision for this one holds for them
_BUSY = 1.2  # processes for each processor
_CPU = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)

_Key = tuple[str, int, Kind]  # operator, threads, kind of call
_Won = dict[int, bool]  # whether we are faster, by size, from the least
_won: dict[_Key, _Won] = {}
_measuring = threading.Lock()
_is_forked = False


def loss(override: Override, original: Callable[..., Any], size: int, *args: Any, **kwargs: Any) -> str:
    """Return the reason not to take a call of this size, or "". original: PyTorch's kernel."""
    key = override.operator, min(torch.get_num_threads(), threads.get_num_threads()), override.kind(*args, **kwargs)
    won = _won.get(key)
    if won is None:
        if not _measuring.acquire(blocking=False):
            return MEASURING
        try:
            won = _find(override, original, key)
        finally:
            _measuring.release()
        if won is None:
            return FORKED
    below = False
    for rung, is_won in won.items():  # in rising order
        if rung >= size:
            return "" if is_won and (below or rung == size) else SLOWER
        below = is_won
    return "" if below else SLOWER


def _find(override: Override, original: Callable[..., Any], key: _Key) -> _Won | None:
    """Return the measurement of a kind of call, from the file or made now; None if it cannot be made."""
    path = _path()
    _won.update(_load(path))
    # A forked child has none of PyTorch's threads, but PyTorch waits for them: its parallel operators would hang.
    if key not in _won and not _is_forked:
        _won[key] = _measure(override, original, key[2])
        if not _is_busy():
            _save(path)
    return _won.get(key)


def _measure(override: Override, original: Callable[..., Any], kind: Kind) -> _Won:
    """Measure at all sizes, up to those whose calls are long."""
    won: _Won = {}
    for size in override.rungs:
        try:
            args = override.sample(kind, size)
            theirs = partial(override.aside, *args) if override.aside else partial(original, _CPU, *args)
            mine, other = _times(partial(_take, override, args), theirs)
        except MemoryError:
            won[size] = False
            break
        _log.debug("%s %s of size %d: %.1f us, PyTorch %.1f", override.operator, kind, size, mine, other)
        won[size] = mine + _DISPATCH_US <= _GAIN * other
        if max(mine, other) > _LONG_US:
            break
    return won


def _take(override: Override, args: tuple[Any, ...]) -> None:
    override.refusal(*args)
    override.run(*args)


def _times(*calls: Callable[[], Any]) -> list[float]:
    """Return the microseconds of each call: the least of several rounds, in which the calls take turns."""
    counts, best = [], [float("inf")] * len(calls)
    for call in calls:
        call()  # compiles
        before = time.perf_counter_ns()
        call()
        counts.append(max(1, _LEAST_NS // (time.perf_counter_ns() - before + 1)))
    start = time.perf_counter_ns()
    for number in range(_ROUNDS[1]):
        if number >= _ROUNDS[0] and time.perf_counter_ns() - start > _MOST_NS:
            break
        for i, call in enumerate(calls):
            before = time.perf_counter_ns()
            for _ in range(counts[i]):
                call()
            best[i] = min(best[i], (time.perf_counter_ns() - before) / counts[i] / 1000)
    return best


def _is_busy() -> bool:
    """Return whether the machine is overloaded, so that measurements should not be kept."""
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


def _save(path: Path | None) -> None:
    """Add measurements to the file, which is replaced atomically."""
    if path is None:
        return
    rows = [[operator, count, kind, [*won.items()]] for (operator, count, kind), won in (_won | _load(path)).items()]
    unfinished = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        unfinished.write_text(json.dumps(rows))
        os.replace(unfinished, path)
    except OSError as error:
        _log.debug("measurements could not be saved (%s)", error)
        with contextlib.suppress(OSError):
            unfinished.unlink()


def _after_fork_in_child() -> None:
    global _measuring, _is_forked
    _measuring = threading.Lock()  # a thread of the parent may have held the old one
    _is_forked = True


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_after_fork_in_child)
