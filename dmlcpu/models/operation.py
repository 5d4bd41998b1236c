"""A DxDispatch model as a job's operation: files replace resources' initial values; results are resources."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from dmlcpu.common.arguments import Array
from dmlcpu.common.faults import shown
from dmlcpu.common.regions import Estimate, Sink, Tensor
from dmlcpu.errors import BindingError
from dmlcpu.files import Identity
from dmlcpu.files.base import Format
from dmlcpu.models.commands import Dispatch, WriteFile
from dmlcpu.models.model import Model, load_model
from dmlcpu.models.onnx_models import OnnxDispatch
from dmlcpu.models.resources import Buffer
from dmlcpu.models.runner import run_model
from dmlcpu.operators.table import OPERATORS


class ModelOperation:
    """A DxDispatch model.

    Its arguments are its resources; a resource without an argument keeps the model's initial values. Its results are
    the resources that its commands write to files, in the commands' shapes, or without such commands the dispatches'
    outputs.
    """

    first: str | None = None
    required: tuple[str, ...] = ()
    defaults: Mapping[str, Any] = MappingProxyType({})
    form: Format | None = None

    @staticmethod
    def version() -> str:
        """Return the version of models and of all operators, as a model may contain any of them."""
        return ", ".join(["model 1", *(f"{name} {row.version}" for name, row in OPERATORS.items())])

    def __init__(self, path: Path) -> None:
        self._name = path.name
        self._model = load_model(path)
        self._dispatches = [each for each in self._model.commands if isinstance(each, Dispatch | OnnxDispatch)]
        written = {each.resource: each.shape for each in self._model.commands if isinstance(each, WriteFile)}
        outputs = (name for each in self._dispatches for name in each.written)
        self._shapes = written or dict.fromkeys(outputs)  # None: flat
        self.parameters = tuple(name for name, buffer in self._model.buffers.items() if not buffer.deferred)
        self.sources = self.parameters
        self.files = tuple(self._model.files)
        self.states: Mapping[Path, Identity] = {}
        self.results = tuple(self._shapes)

    def estimate(self, arguments: Mapping[str, Any]) -> Estimate:
        """Return its results and its memory; refuse arrays that do not fit. The kernel is the list of dispatchables."""
        for name, value in arguments.items():
            self._check(name, self._model.buffers[name], value)
        buffers = sum(buffer.size for buffer in self._model.buffers.values())
        memory = buffers + sum(2 * self._model.buffers[name].size for name in {*arguments, *self.results})
        kernels = ", ".join(each.dispatchable for each in self._dispatches)
        return Estimate({name: self._tensor(name) for name in self.results}, memory, lambda: memory, kernels)

    def _check(self, name: str, buffer: Buffer, value: Any) -> None:
        if not hasattr(value, "dtype"):
            raise BindingError(self._name, name, shown(value), "a file")
        found, wanted = np.dtype(np.uint8) if value.dtype == np.bool_ else value.dtype, buffer.initial.dtype
        if found != wanted:
            raise BindingError(self._name, f"{name}.dtype", str(found), f"{wanted}, as the resource in the model")
        count = math.prod(value.shape)
        if count != buffer.initial.size:
            allowed = f"{buffer.initial.size} elements in all, as the resource in the model"
            raise BindingError(self._name, f"{name}.shape", f"{tuple(value.shape)}", allowed)

    def _tensor(self, name: str) -> Tensor | None:
        buffer, shape = self._model.buffers[name], self._shapes[name]
        return None if buffer.deferred else Tensor(shape or (buffer.initial.size,), buffer.initial.dtype)

    def run(self, arguments: Mapping[str, Any]) -> dict[str, Array]:
        """Run the model's dispatches."""
        buffers = dict(self._model.buffers)
        for name, value in arguments.items():
            initial = np.ascontiguousarray(value).reshape(-1)
            initial = initial.view(np.uint8) if initial.dtype == np.bool_ else initial
            buffers[name] = dataclasses.replace(buffers[name], initial=initial, delta=None)
        model = Model(buffers, self._model.dispatchables, [*self._dispatches], [])
        memory = run_model(model, emit=lambda _: None)  # a job prints nothing
        written = ((name, shape, memory[name]) for name, shape in self._shapes.items())
        return {name: values[: math.prod(shape)].reshape(shape) if shape else values for name, shape, values in written}

    def run_in_blocks(
        self, arguments: Mapping[str, Any], sinks: Mapping[str, Sink], memory: int, stopping: Callable[[], bool]
    ) -> None:
        """Raise an error: a model's resources are in memory."""
        raise AssertionError("a model takes its memory in one piece")
