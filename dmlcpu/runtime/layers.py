"""Numba's threading layers: for systems where we have no threads of our own, and for who asks for one of them.

What they are started with is chosen here, and nothing of it stays behind: neither in the environment that child
processes inherit, nor in the thread counts of other users of the same library.
"""

import contextlib
import ctypes
import functools
import importlib.metadata
import os
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numba
from numba import cfunc, prange, types
from numba.np.ufunc import parallel

from dmlcpu.runtime.atomics import FUTEX
from dmlcpu.runtime.jit import compile_lazily
from dmlcpu.runtime.launches import call

# GNU OpenMP's own choice, 300,000 rounds, stalls for up to 8 ms whenever a core is busy with something else. With
# 10,000, calls in a row lose nothing; the first call after a pause takes 1.4 to 1.8 ms instead of 5.6.
_SPIN_NAME, _SPIN_COUNT = "GOMP_SPINCOUNT", "10000"
_SPIN_SETTING = f"{_SPIN_NAME}={_SPIN_COUNT}"
_TBB = {"linux": "libtbb.so.12", "darwin": "libtbb.12.dylib", "win32": "tbb12.dll"}
_OPENMP_FILES = ("libgomp", "libomp", "libiomp")

_ADVICE = "pip install dmlcpu[tbb]: of Numba's layers, TBB waits least for threads that are late"
_ADVICE_LINUX = "do not set NUMBA_THREADING_LAYER: dmlcpu's own threads do not wait for threads that are late"

_AWAKE = 1e-3  # seconds after a call for which its threads are taken to be awake
_REST, _TRIALS = 5e-3, 3


def _launch(address, parts, args):  # type: ignore[no-untyped-def]
    """Call the kernel at an address for every part. This is the loop that runs on Numba's threads."""
    for part in prange(parts):
        call(address, part, parts, args)


@functools.cache
def _launcher() -> Any:
    """Return the compiled function that launches kernels on Numba's threads."""
    return compile_lazily(_launch, parallel=True)


def asked_for() -> str | None:
    """Return which layer the user's Numba settings ask for, if they do."""
    layer = str(numba.config.THREADING_LAYER).lower()
    order = [str(name) for name in numba.config.THREADING_LAYER_PRIORITY]
    if layer != "default":
        return layer
    return None if order == ["tbb", "omp", "workqueue"] else ", ".join(order)


class NumbaLayer:
    """The threads of the layer that Numba chooses; started by the first call."""

    def __init__(self) -> None:
        self._launching = threading.Lock()
        self._closed = False
        self._waking = 0
        self._last = -_AWAKE
        self._waiting: str | None = None

    def launch(self, address: int, parts: int, args: tuple[Any, ...]) -> bool:
        """Call the kernel at an address for every part; return False, and do nothing, where that cannot be.

        Numba's workqueue layer aborts the process when two threads enter it, so whoever finds another call under way
        gets no threads. GNU OpenMP kills a forked child that starts threads after its parent did.
        """
        if self._closed or not self._launching.acquire(blocking=False):
            return False
        try:
            if self._waking == 0:
                self._start()
            self._run(address, parts, args)
            self._last = time.perf_counter()
        finally:
            self._launching.release()
        return True

    def compiled(self) -> list[Any]:
        """Return the compiled functions that this uses."""
        return [_launcher()]

    def is_asleep(self) -> bool:
        """Return whether the threads have rested long enough to sleep."""
        return time.perf_counter() - self._last > _AWAKE

    def waking(self) -> int:
        """Return what a launch takes after a rest, in nanoseconds; 0 before the layer has been started."""
        return self._waking

    def describe(self) -> dict[str, str | None]:
        """Return what users may want to know."""
        asked = asked_for()
        later = f"of GNU OpenMP, when it starts: {_own_settings() or f'{_SPIN_SETTING} (dmlcpu)'}"
        return {
            "layer": f"Numba's, {numba.threading_layer()}" if parallel._is_initialized else "Numba's, not started yet",
            "layer_from": f"NUMBA_THREADING_LAYER or its priority: {asked}" if asked else "Numba's default",
            "waiting": self._waiting or later,
            "advice": _ADVICE_LINUX if asked and FUTEX else None if asked else _ADVICE,
        }

    def _start(self) -> None:
        self._waiting = start()
        nothing = cfunc(types.void(types.intp, types.intp))(_nothing)
        times = []
        for _ in range(_TRIALS + 1):  # the first compiles
            time.sleep(_REST)
            begin = time.perf_counter_ns()
            self._run(nothing.address, 2, ())
            times.append(time.perf_counter_ns() - begin)
        self._waking = max(1, int(statistics.median(times[1:])))

    def _run(self, address: int, parts: int, args: tuple[Any, ...]) -> None:
        active = numba.get_num_threads()
        if parts >= active:
            _launcher()(address, parts, args)
            return
        # Fewer shares than threads: wake no more threads than there are shares. The setting is this thread's own
        # and is put back, so nobody else sees it.
        numba.set_num_threads(parts)
        try:
            _launcher()(address, parts, args)
        finally:
            numba.set_num_threads(active)

    def close(self) -> None:
        """Launch nothing any more, which a forked child must not."""
        self._closed = True


def _nothing(part, parts):  # type: ignore[no-untyped-def]
    pass


def start() -> str:
    """Start Numba's layer, if nobody has; return how its threads wait for work, and who said so."""
    if parallel._is_initialized:
        return "as whoever started Numba's layer before has set it"
    own = _own_settings()
    # Numba's OpenMP layer binds to one that the process has for all, or else to a file of its own.
    taken = hasattr(ctypes.CDLL(None), "omp_get_max_threads") if os.name == "posix" else False
    before = _openmp_files()
    tbb = numba.config.THREADING_LAYER not in ("omp", "workqueue") and _load_tbb()
    with contextlib.nullcontext() if own else _in_environment(_SPIN_NAME, _SPIN_COUNT):
        _start_layer(on_this_thread=tbb)
    if numba.threading_layer() != "omp":
        return "as the layer has it"
    if own:
        return own
    if taken or _openmp_files() == before:
        return "as OpenMP has it, which another library had loaded before"
    return f"{_SPIN_SETTING} (dmlcpu, while OpenMP was loaded)"


def _own_settings() -> str:
    """Return what the user's environment says of how GNU OpenMP's threads wait, or nothing."""
    own = [f"{name}={os.environ[name]}" for name in (_SPIN_NAME, "OMP_WAIT_POLICY") if name in os.environ]
    return f"{', '.join(own)} (environment)" if own else ""


def _start_layer(*, on_this_thread: bool) -> None:
    """Start Numba's layer.

    OpenMP's is started on a thread of its own: it sets the number of OpenMP threads for the thread that starts it, and
    other libraries (PyTorch, for one) may use the same OpenMP. TBB's cares for forks of the thread that starts it.
    """
    if on_this_thread:
        numba.get_num_threads()
        return
    errors: list[Exception] = []

    def run() -> None:
        try:
            numba.get_num_threads()
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]


def _load_tbb() -> bool:
    """Load the TBB of an installed package, which Numba does not find in a virtual environment (numba#7148)."""
    name = _TBB.get(sys.platform)
    try:
        files = importlib.metadata.files("tbb") or []
        found = [str(file.locate()) for file in files if file.name == name]
        for path in found or [str(name)]:
            ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
    except (importlib.metadata.PackageNotFoundError, OSError):
        return False
    return True


def _openmp_files() -> set[str]:
    """Return the OpenMP libraries of this process, where the system tells."""
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return set()
    paths = {line.split(maxsplit=5)[-1] for line in lines}
    return {path for path in paths if os.path.basename(path).startswith(_OPENMP_FILES)}


@contextlib.contextmanager
def _in_environment(name: str, value: str) -> Iterator[None]:
    """Let libraries that are loaded meanwhile find a setting in the environment."""
    os.putenv(name, value)
    try:
        yield
    finally:
        os.unsetenv(name)
