"""Numba's threading layers: used on systems other than Linux, and if the user asks for one.

Starting one changes neither the environment that child processes inherit, nor the thread counts of other users of the
same library.
"""

import ctypes
import functools
import importlib.metadata
import os
import statistics
import sys
import threading
import time
from typing import Any

import numba
import numpy as np
from numba import cfunc, prange, types
from numba.np.ufunc import parallel

from dmlcpu.runtime.atomics import FUTEX
from dmlcpu.runtime.claims import Claims
from dmlcpu.runtime.launches import compile_lead, compiled_launch, do_part
from dmlcpu.runtime.uninterrupted import uninterrupted

# GNU OpenMP's own choice, 300,000 rounds, stalls for up to 8 ms whenever a core is busy with something else. With
# 10,000, calls in a row lose nothing; the first call after a pause takes 1.4 to 1.8 ms instead of 5.6.
_SPIN_NAME, _SPIN_COUNT = "GOMP_SPINCOUNT", "10000"
_TBB = {"linux": "libtbb.so.12", "darwin": "libtbb.12.dylib", "win32": "tbb12.dll"}

_ADVICE = "pip install '.[tbb]' in a clone of dmlcpu: of Numba's layers, TBB waits least for threads that are late"
_ADVICE_LINUX = "do not set NUMBA_THREADING_LAYER: dmlcpu's own threads do not wait for threads that are late"

_AWAKE = 1e-3  # seconds after a call for which its threads are taken to be awake
_REST, _TRIALS = 5e-3, 3
_NO_BOXES = np.zeros(0, np.int64)


def lead(_boxes, parts, _helpers, launch):  # type: ignore[no-untyped-def]
    """Do all parts of a launch. This is the loop that runs on Numba's threads. Return 0, as a launch needs a number."""
    for part in prange(parts):
        do_part(launch, part)
    return 0


@functools.cache
def _lead() -> tuple[Any, int]:
    """Return the compiled function that does launches, and where its machine code is."""
    found: tuple[Any, int] = uninterrupted(compile_lead, lead, {"parallel": True})
    return found


def asked_for() -> str | None:
    """Return which layer the user's Numba settings ask for, if they do."""
    layer = str(numba.config.THREADING_LAYER).lower()
    order = [str(name) for name in numba.config.THREADING_LAYER_PRIORITY]
    if layer != "default":
        return layer
    return None if order == ["tbb", "omp", "workqueue"] else ", ".join(order)


class NumbaLayer:
    """The threads of the layer that Numba chooses; started by the first launch."""

    def __init__(self) -> None:
        self.most = numba.config.NUMBA_NUM_THREADS - 1
        self._launching = Claims()
        self._closed = False
        self._waking = 0
        self._last = -_AWAKE

    def launch(self, address: int, parts: int, args: tuple[Any, ...], helpers: int) -> bool:
        """Call the kernel at an address for every part; return False, and do nothing, during another launch.

        Numba's workqueue layer aborts the process when two threads enter it. A forked child launches nothing: GNU
        OpenMP kills a child that starts threads after its parent did.
        """
        lock = threading.Lock()
        with lock:
            if self._closed or not self._launching.grant(lock):
                return False
            if self._waking == 0:
                self._start()
            self._run(address, parts, args, helpers)
            self._last = time.perf_counter()
        return True

    def compiled(self) -> list[Any]:
        """Return the compiled functions that this uses."""
        return [compiled_launch(), _lead()[0]]

    def awake(self) -> int:
        """Return how many threads are awake, besides the caller's: 0 if they have waited long enough to sleep."""
        return 0 if time.perf_counter() - self._last > _AWAKE else numba.config.NUMBA_NUM_THREADS

    def waking(self) -> int:
        """Return what a launch takes after a pause, in nanoseconds; 0 before the layer has been started."""
        return self._waking

    def describe(self) -> dict[str, str | None]:
        """Return what `dmlcpu info` shows of threads."""
        asked, layer = asked_for(), numba.threading_layer() if parallel._is_initialized else "not started yet"
        waiting = _own_settings() or f"{_SPIN_NAME}={_SPIN_COUNT} (dmlcpu), unless another library loaded it first"
        return {
            "layer": f"Numba's, {layer}",
            "layer_from": f"NUMBA_THREADING_LAYER or its priority: {asked}" if asked else "Numba's default",
            "waiting": "as the layer has it" if layer in ("tbb", "workqueue") else f"GNU OpenMP: {waiting}",
            "advice": _ADVICE_LINUX if asked and FUTEX else None if asked else _ADVICE,
        }

    def _start(self) -> None:
        """Start the layer and measure what a launch takes after a pause."""
        start()
        nothing = uninterrupted(cfunc(types.void(types.intp, types.intp)), lambda _part, _parts: None)
        times = []
        for _ in range(_TRIALS + 1):  # the first compiles
            time.sleep(_REST)
            begin = time.perf_counter_ns()
            self._run(nothing.address, 2, (), 1)
            times.append(time.perf_counter_ns() - begin)
        self._waking = max(1, int(statistics.median(times[1:])))

    def _run(self, address: int, parts: int, args: tuple[Any, ...], helpers: int) -> None:
        """Run the parts on this thread and some more; the setting is this thread's own, and is put back."""
        active = numba.get_num_threads()
        numba.set_num_threads(min(helpers + 1, active))
        try:
            compiled_launch()(address, parts, helpers, args, _NO_BOXES, _lead()[1])
        finally:
            numba.set_num_threads(active)

    def close(self) -> None:
        """Launch nothing any more, which a forked child must not."""
        self._closed = True


def start() -> None:
    """Start Numba's layer; while it loads GNU OpenMP, the environment says how long that spins, unless the user did.

    OpenMP's layer is started on a separate thread: it sets the number of OpenMP threads for the thread that starts
    it, and other libraries (PyTorch, for one) may use the same OpenMP. TBB's is started here: only the thread that
    starts it may fork.
    """
    if numba.config.THREADING_LAYER not in ("omp", "workqueue") and _load_tbb():
        numba.get_num_threads()
        return
    from concurrent.futures import ThreadPoolExecutor

    sets_spinning = not _own_settings()
    if sets_spinning:
        os.putenv(_SPIN_NAME, _SPIN_COUNT)  # of this process alone: `os.environ` does not change
    try:
        with ThreadPoolExecutor(1) as thread:
            thread.submit(numba.get_num_threads).result()
    finally:
        if sets_spinning:
            os.unsetenv(_SPIN_NAME)


def _own_settings() -> str:
    """Return what the user's environment says of how GNU OpenMP's threads wait, or nothing."""
    own = [f"{name}={os.environ[name]}" for name in (_SPIN_NAME, "OMP_WAIT_POLICY") if name in os.environ]
    return f"{', '.join(own)} (environment)" if own else ""


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
