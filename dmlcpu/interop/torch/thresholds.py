"""The sizes from which calls of a kind are taken: measured once on each machine, then kept in a file.

A decision must not change between runs of a program, because the order of equal elements would change with it. So
nothing is measured if the result cannot be kept: then the sizes of `shipped` hold, which are the same in every process.
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
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from timeit import timeit
from typing import Any

import torch

from dmlcpu import __version__
from dmlcpu.interop.torch import shipped
from dmlcpu.interop.torch.override import Kind, Override
from dmlcpu.kernels import registry
from dmlcpu.runtime import threads
from dmlcpu.runtime.isa import allowed

_log = logging.getLogger("dmlcpu")

SLOWER = "PyTorch is faster"

# At most this share of PyTorch's time: a smaller lead might not be measured again.
_GAIN = 0.9
_DISPATCH_US = 2  # PyTorch's time to call a kernel in Python, on Zen 4
LEAST_ROUNDS, _MOST_ROUNDS = 5, 25
_LEAST_US, _MOST_US = 200, 20_000  # of a round; of all rounds, beyond the least number of them
_LONG_US = 10_000  # after a longer call no larger size is measured: the decision for this one holds for them
_BUSY = 1.2  # processes for each processor
_CPU = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)

_Key = tuple[str, int, Kind]  # operator, threads, kind of call
_Won = dict[int, bool]  # whether we are faster, by size, from the least
_Rounds = list[tuple[float, float]]  # microseconds of our call and of PyTorch's
_measuring = threading.RLock()  # a finalizer may call an operator in here
_measurer: int | None = None  # the thread that measures


def is_measuring() -> bool:
    """Return whether this thread measures. Its calls are not the program's."""
    return _measurer == threading.get_ident()


def time_in_turns(mine: Callable[[], Any], theirs: Callable[[], Any]) -> _Rounds:
    """Return the microseconds of both calls in several rounds, in which they alternate."""
    calls, counts = (mine, theirs), []
    for call in calls:
        call()  # compiles
        counts.append(max(1, int(_LEAST_US / (timeit(call, number=1) * 1e6 + 1e-3))))
    start = time.perf_counter()
    rounds: _Rounds = []
    while len(rounds) < _MOST_ROUNDS:
        if len(rounds) >= LEAST_ROUNDS and (time.perf_counter() - start) * 1e6 > _MOST_US:
            break
        one, other = (timeit(call, number=n) / n * 1e6 for call, n in zip(calls, counts, strict=True))
        rounds.append((one, other))
    return rounds


def _is_busy() -> bool:
    """Return whether the machine is overloaded, so that nothing should be measured."""
    return hasattr(os, "getloadavg") and os.getloadavg()[0] > _BUSY * (os.cpu_count() or 1)


@dataclass
class Thresholds:
    """The sizes from which calls are taken: from the file, measured, or shipped. They hold for the process."""

    # The folder of the file; None: there is none.
    folder: Callable[[], str | None] = lambda: registry.find("top_k", "select").kernel.share.stats.cache_path
    time_calls: Callable[[Callable[[], Any], Callable[[], Any]], _Rounds] = time_in_turns
    is_busy: Callable[[], bool] = _is_busy
    pause_s: float = 0.1  # before a second measurement: what disturbed the first one may have ended
    process: int = field(default_factory=os.getpid)  # its forked children measure nothing
    won: dict[_Key, _Won] = field(default_factory=dict)

    def loss(self, override: Override, original: Callable[..., Any], size: int, *args: Any, **kwargs: Any) -> str:
        """Return the reason not to take a call of this size, or "". original: PyTorch's kernel."""
        key = override.operator, min(torch.get_num_threads(), threads.get_num_threads()), override.kind(*args, **kwargs)
        won = self.won.get(key)
        if won is None:
            with _measuring:  # other threads wait: they need the result, and would disturb the measurement
                won = self._find(override, original, key)
        below = False
        for rung, is_won in won.items():  # in rising order
            if rung >= size:
                return "" if is_won and (below or rung == size) else SLOWER
            below = is_won
        return "" if below else SLOWER

    def _find(self, override: Override, original: Callable[..., Any], key: _Key) -> _Won:
        """Return the sizes of a kind of call."""
        global _measurer
        path = _path(self.folder())
        for known, won in _load(path).items():
            self.won.setdefault(known, won)
        # A forked child has none of PyTorch's threads, but PyTorch waits for them: its parallel operators would hang.
        is_forked = os.getpid() != self.process
        if path and key not in self.won and os.access(path.parent, os.W_OK) and not (is_forked or self.is_busy()):
            _measurer = threading.get_ident()
            try:
                measured = self.measure(override, original, key[2])
            finally:
                _measurer = None
            if _save(path, key, measured):
                self.won[key] = _load(path).get(key, measured)  # another process may have been first
        if key not in self.won:
            least = shipped.least(override.name, key[2], key[1])
            self.won[key] = {} if least is None else {least: True}
        return self.won[key]

    def measure(self, override: Override, original: Callable[..., Any], kind: Kind) -> _Won:
        """Return whether we are faster, by size, at all sizes up to those whose calls are long."""
        compare, won = partial(self._compare, override, original, kind), {}
        for size in override.rungs:
            won[size], length = compare(size)
            if length > _LONG_US:
                time.sleep(self.pause_s)
                won[size], length = compare(size)
            if length > _LONG_US:
                break
        # The machine may have been disturbed on one side of a change: two of three measurements decide.
        changes = [pair for pair in itertools.pairwise(won) if won[pair[0]] != won[pair[1]]]
        for size in sorted({*itertools.chain(*changes)}):
            time.sleep(self.pause_s)
            if compare(size)[0] != won[size]:
                time.sleep(self.pause_s)
                won[size], _ = compare(size)
        return won

    def _compare(self, override: Override, original: Callable[..., Any], kind: Kind, size: int) -> tuple[bool, float]:
        """Return whether we are faster at a size, and the microseconds of the longer call."""
        try:
            args = override.sample(kind, size)
            theirs = partial(override.aside, *args) if override.aside else partial(original, _CPU, *args)
            rounds = self.time_calls(partial(_run_checked, override, args), theirs)
        except MemoryError:
            return False, math.inf
        mine, other = (statistics.median(times) for times in zip(*rounds, strict=True))
        _log.debug("%s %s of size %d: %.1f us, PyTorch %.1f", override.operator, kind, size, mine, other)
        return mine + _DISPATCH_US <= _GAIN * other, max(map(min, zip(*rounds, strict=True)))


THRESHOLDS = Thresholds()


def _run_checked(override: Override, args: tuple[Any, ...]) -> None:
    override.refusal(*args)
    override.run(*args)


def _path(folder: str | None) -> Path | None:
    """Return the file for this machine and these versions; None without a folder."""
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
    global _measuring, _measurer
    _measuring, _measurer = threading.RLock(), None  # a parent's thread may have held the old lock


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_after_fork_in_child)
