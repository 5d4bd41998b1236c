"""Run a loaded model: buffers, initialization, then the commands in order."""

import contextlib
import functools
import math
import pathlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from statistics import fmean, median_high

import numpy as np

from dmlcpu.common.arguments import Array, as_integer
from dmlcpu.directml.compiled import CompiledOperator, compile_operator
from dmlcpu.directml.enums import TensorDataType
from dmlcpu.errors import DmlError
from dmlcpu.files.targets import folder_error
from dmlcpu.models.commands import Command, Dispatch, Print, WriteFile
from dmlcpu.models.dispatchables import Binding, Dispatchable, Tensors
from dmlcpu.models.faults import Path, json_path
from dmlcpu.models.model import Model
from dmlcpu.models.onnx_models import OnnxDispatch, OnnxDispatchable
from dmlcpu.models.values import flat, is_npy, lines, write

Emit = Callable[[str], None]


class RunError(RuntimeError):
    """A model failed while it ran; the commands before the failure have run.

    Parameters
    ----------
    path : str
        The JSON path of the command, or of the dispatchable or resource that was being set up.
    reason : str
        The reason. The original exception is the cause.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """DxDispatch's timing options: how often each dispatch runs, and which times are printed.

    Parameters
    ----------
    iterations : int, default 1
        The number of samples. Each sample is one time measurement.
    repeat : int, default 1
        How often a sample runs the operator; its time is divided by this number.
    milliseconds : float, optional
        Take samples until this time has passed, at least one. `iterations` is then ignored.
    warmup_samples : int, default 1
        The number of *cold* samples: the first ones, which the median leaves out. The others are *hot*; the last sample
        is always hot.
    verbosity : {0, 1, 2}
        0: one line for each dispatch. 1: also the times of initialization, of cold and of hot samples. 2: also each
        sample.
    """

    iterations: int = 1
    repeat: int = 1
    milliseconds: float | None = None
    warmup_samples: int = 1
    verbosity: int = 0

    def __post_init__(self) -> None:
        for name in ("iterations", "repeat", "warmup_samples", "verbosity"):
            as_integer("Timing", name, getattr(self, name))
        if self.repeat < 1:
            raise DmlError("Timing", "repeat", str(self.repeat), "an integer of at least 1")


def run_model(model: Model, *, timing: Timing | None = None, emit: Emit = print) -> dict[str, Array]:
    """Run a model: allocate its buffers, initialize its operators, run its commands.

    Parameters
    ----------
    model : Model
        The result of `load_model`. It does not change: each run starts from the initial values.
    timing : Timing, optional
        How often each dispatch (a command that runs an operator) is run. By default once.
    emit : callable, default print
        Called with each line of output.

    Returns
    -------
    dict of str to ndarray
        The contents of the buffers after the last command. An array is flat, and has the type and length of the
        buffer's initial values; if that type is UNKNOWN, it has all bytes as uint8. For a deferred buffer, whose size
        an ONNX model decides, it is the last result.

    Raises
    ------
    RunError
        If memory does not suffice for a resource, or a command fails, for example because an index is out of range.
        Files that earlier commands wrote remain. If a command could not write its file, no command runs.

    Notes
    -----
    As in DxDispatch, a dispatch reads what earlier ones have written.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from dmlcpu import batch
    >>> path = pathlib.Path(tempfile.mkdtemp(), "model.json")
    >>> _ = path.write_text('''{
    ...     "resources": {
    ...         "A": {
    ...             "initialValuesDataType": "FLOAT32",
    ...             "initialValues": {"valueCount": 4, "valueStart": 1, "valueDelta": 2.5}
    ...         }
    ...     },
    ...     "dispatchables": {},
    ...     "commands": [{"type": "print", "resource": "A"}]
    ... }''')
    >>> buffers = batch.run_model(batch.load_model(path))
    Resource 'A': 1, 3.5, 6, 8.5
    >>> buffers["A"]
    array([1. , 3.5, 6. , 8.5], dtype=float32)
    """
    if not isinstance(model, Model):
        raise TypeError(f"run_model: model is {model!r}; allowed: what load_model returns")
    for i, command in enumerate(model.commands):
        if isinstance(command, WriteFile) and (reason := _target_error(command.target.absolute())):
            raise RunError(
                json_path(("commands", i, "targetPath")), f"{str(command.target)!r} cannot be written: {reason}"
            )
    runner = _Runner(model, timing or Timing(), emit)
    for name, buffer in model.buffers.items():
        with _failures_at(("resources", name)):
            runner.memory[name] = buffer.allocate()
    for name, dispatchable in model.dispatchables.items():
        with _failures_at(("dispatchables", name)):
            runner.initialize(name, dispatchable)
    for i, command in enumerate(model.commands):
        with _failures_at(("commands", i)):
            runner.carry_out(command)
    return {name: runner.values(name) for name in model.buffers}


def _target_error(target: pathlib.Path) -> str | None:
    """Return why a file cannot be written; None if it can."""
    return "it is a folder" if target.is_dir() else folder_error(str(target.parent))


@contextlib.contextmanager
def _failures_at(path: Path) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:  # the reader closed the output: the command did not fail
        raise
    except (ValueError, OSError) as error:
        raise RunError(json_path(path), str(error)) from error
    except MemoryError as error:
        raise RunError(json_path(path), "not enough memory") from error


@dataclass(slots=True)
class _Runner:
    """A run in progress: the memory of the buffers, and the initialized operators."""

    model: Model
    timing: Timing
    emit: Emit
    memory: dict[str, Array] = field(default_factory=dict)
    operators: dict[str, CompiledOperator] = field(default_factory=dict)

    def initialize(self, name: str, dispatchable: Dispatchable | OnnxDispatchable) -> None:
        if isinstance(dispatchable, OnnxDispatchable):
            seconds = dispatchable.seconds  # the check prepared it
        else:
            start = time.perf_counter()
            operator = compile_operator(dispatchable.desc)
            if dispatchable.owned:
                operator.initialize(**self._bound(dispatchable.tensors(owned=True), dispatchable.owned))
            self.operators[name] = operator
            seconds = time.perf_counter() - start
        if self.timing.verbosity >= 1:
            self.emit(f"Initialize '{name}': {seconds * 1000:.4f} ms")

    def carry_out(self, command: Command) -> None:
        if isinstance(command, Dispatch | OnnxDispatch):
            self._dispatch(command)
        elif isinstance(command, Print):
            values = self.values(command.resource)
            text = "\n" + lines(values) if command.verbose else " " + flat(values)
            self.emit(f"Resource '{command.resource}':{text}")
        else:
            self._write_file(command)

    def values(self, name: str) -> Array:
        """Return a buffer's current values, as many as its initial ones."""
        buffer, memory = self.model.buffers[name], self.memory[name].reshape(-1)
        if buffer.deferred or buffer.data_type is TensorDataType.UNKNOWN:
            return memory
        return memory[: buffer.initial.nbytes].view(buffer.initial.dtype)

    def _bound(self, tensors: Tensors, bindings: dict[str, Binding]) -> dict[str, Array]:
        """Return tensors as views of the memory that they are bound to, by the operator's names."""
        bound = ((member.name, tensor, bindings[member.dml_name]) for member, tensor in tensors)
        return {name: tensor.view(self.memory[each.resource][each.offset :]) for name, tensor, each in bound}

    def _dispatch(self, command: Dispatch | OnnxDispatch) -> None:
        name = command.dispatchable
        if isinstance(command, OnnxDispatch):
            call = functools.partial(command.run, self.memory)
        else:
            dispatchable = self.model.dispatchables[name]
            assert isinstance(dispatchable, Dispatchable)
            arrays = self._bound(dispatchable.tensors(owned=False), command.bindings)
            call = functools.partial(self.operators[name], **arrays)
        for line in _report(name, _measure(call, self.timing), self.timing):
            self.emit(line)

    def _write_file(self, command: WriteFile) -> None:
        memory, buffer = self.memory[command.resource], self.model.buffers[command.resource]
        if buffer.deferred and is_npy(command.target):
            array = memory.reshape(command.shape or memory.shape)
        elif command.shape is None:
            array = memory.reshape(-1).view(np.uint8)
        else:
            nbytes = math.prod(command.shape) * buffer.initial.itemsize
            array = memory[:nbytes].view(buffer.initial.dtype).reshape(command.shape)
        write(command.target, array)
        self.emit(f"Resource '{command.resource}' written to '{command.target.absolute()}'")


def _measure(call: Callable[[], object], timing: Timing) -> list[float]:
    """Run the call as often as requested; return the samples in milliseconds."""
    samples: list[float] = []
    begin = time.perf_counter()
    done = False
    while not done:
        start = time.perf_counter()
        for _ in range(timing.repeat):
            call()
        now = time.perf_counter()
        samples.append((now - start) * 1000 / timing.repeat)
        spent, limit = (now - begin) * 1000, timing.milliseconds
        done = len(samples) >= timing.iterations if limit is None else spent >= limit
    return samples


def _report(name: str, samples: list[float], timing: Timing) -> Iterator[str]:
    cold = min(len(samples) - 1, timing.warmup_samples)  # DxDispatch's median: the larger of two in the middle
    if timing.verbosity == 0:
        yield f"Dispatch '{name}': {len(samples)} iterations, {median_high(samples[cold:]):.4f} ms median (CPU)"
        return
    yield f"Dispatch '{name}': {len(samples)} iterations"
    if cold:
        yield f"CPU Timings (Cold) : {_statistics(samples[:cold])}"
    yield f"CPU Timings (Hot)  : {_statistics(samples[cold:])}"
    if timing.verbosity >= 2:
        yield "The timings of each iteration:"
        for i, sample in enumerate(samples):
            yield f"iteration {i}: {sample:.4f} ms (CPU)"


def _statistics(samples: list[float]) -> str:
    return (
        f"{len(samples)} samples, {fmean(samples):.4f} ms average, {min(samples):.4f} ms min, "
        f"{median_high(samples):.4f} ms median, {max(samples):.4f} ms max"
    )
