"""What it costs to cut a model: measured once on each machine, then kept in a file.

A choice changes at most once between runs of a program: when the cost has been measured. If a measurement cannot be
kept, or the machine is busy, none is made, and the shipped values hold, which are the same in every process.
"""

import contextlib
import functools
import hashlib
import json
import os
import platform
import statistics
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from dmlcpu import __version__
from dmlcpu.interop.onnx.runtime import runtime, session_of
from dmlcpu.kernels import registry
from dmlcpu.runtime.memory import second_level_cache

# In nanoseconds, on one thread and on more, which sleep between sessions and have to be woken (Zen 3).
_SHIPPED = 50_000, 150_000
_LEAST = 20_000  # a smaller measurement is a disturbance
_LAYERS, _ROUNDS, _WIDTH = 8, 9, 256
_BUSY = 1.2  # processes for each processor
_METHOD = 2  # of measuring: another one measures again


@functools.cache
def cost_of_cut(threads: int) -> int:
    """Return what a further session costs in a run, in nanoseconds."""
    folder = registry.find("top_k", "select").kernel.share.stats.cache_path
    machine = (platform.node(), os.cpu_count(), runtime().__version__, __version__, _METHOD)
    name = f"onnx.{hashlib.sha256(repr(machine).encode()).hexdigest()[:16]}.json"
    return _kept(Path(folder) / name if folder else None, threads, lambda: _measured(threads))


def _kept(path: Path | None, threads: int, measure: Callable[[], int]) -> int:
    """Return the cost in a file for this number of threads; else measure and keep it, or return the shipped one."""
    found = _read(path)
    if str(threads) in found:
        return found[str(threads)]
    is_busy = hasattr(os, "getloadavg") and os.getloadavg()[0] > _BUSY * (os.cpu_count() or 1)
    if path is not None and not is_busy and os.access(path.parent, os.W_OK):
        unfinished = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}.tmp")
        with contextlib.suppress(OSError):
            unfinished.write_text(json.dumps({str(threads): measure()} | _read(path)))
            os.replace(unfinished, path)
            return _read(path)[str(threads)]  # another process may have been first
        unfinished.unlink(missing_ok=True)
    return _SHIPPED[threads > 1]


def _read(path: Path | None) -> dict[str, int]:
    """Return the costs in a file; none if it is missing or damaged."""
    try:
        return {str(threads): int(cost) for threads, cost in json.loads(path.read_text()).items()} if path else {}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def _measured(threads: int) -> int:
    """Return by how much longer layers take in a session each than in one, for each further session.

    Before each session the caches are filled, as a model's other nodes fill them. The result is doubled, because the
    kernels between two sessions run with cold caches too: a product of one row took 10 us in a loop, 100 in a model
    (Zen 4).
    """
    options = {"intra_op_num_threads": threads}
    whole = session_of(_model(_LAYERS), options)
    parts = [session_of(_model(1), options, folder="") for _ in range(_LAYERS)]
    x, filler = np.ones((_WIDTH // 4, _WIDTH), np.float32), np.ones(4 * second_level_cache(), np.uint8)
    times: list[list[int]] = [[], []]
    for _ in range(_ROUNDS):
        for taken, sessions in zip(times, ([whole], parts), strict=True):
            values, nanoseconds = x, 0
            for session in sessions:
                filler.sum()
                start = time.perf_counter_ns()
                (values,) = session.run(None, {"x0": values})
                nanoseconds += time.perf_counter_ns() - start
            taken.append(nanoseconds)
    one, many = (statistics.median(each) for each in times)
    return max(2 * int(many - one) // (_LAYERS - 1), _LEAST)


def _model(layers: int) -> bytes:
    """Return products of floats in a row."""
    nodes = [helper.make_node("MatMul", [f"x{each}", f"w{each}"], [f"x{each + 1}"]) for each in range(layers)]
    shape = _WIDTH // 4, _WIDTH
    first, last = (helper.make_tensor_value_info(f"x{each}", TensorProto.FLOAT, shape) for each in (0, layers))
    weights = [numpy_helper.from_array(np.eye(_WIDTH, dtype=np.float32), f"w{each}") for each in range(layers)]
    graph = helper.make_graph(nodes, "layers", [first], [last], weights)
    model: Any = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())
