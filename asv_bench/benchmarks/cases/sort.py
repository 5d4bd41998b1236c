"""Cases of sort, argsort and sort_with_indices."""

from dataclasses import dataclass, replace

import numpy as np

import dmlcpu
from dmlcpu import reference

from ..onnx_peer import onnx_session
from ..torch_peer import tensor, torch_package
from .case import Case, by, dtype_of, table
from .top_k import PATTERNS


@dataclass(frozen=True)
class SortCase(Case):
    function: str  # of dmlcpu
    shape: tuple[int, ...]
    axis: int = -1
    dtype: str = "float32"
    data: str = "random"

    def __str__(self):
        axis = "" if self.axis == -1 else f" axis {self.axis}"
        return f"{self.function} {by(self.shape)}{axis} {self.dtype}{'' if self.data == 'random' else f' {self.data}'}"

    def shrunk(self):
        return replace(self, shape=tuple(min(n, 12) for n in self.shape))

    def inputs(self):
        """Return x."""
        return np.ascontiguousarray(PATTERNS[self.data](self.shape, dtype_of(self.dtype)))

    def expected(self, calls):
        result = getattr(reference, self.function)(self.inputs(), self.axis)
        return result if isinstance(result, tuple) else (result,)

    def refusals(self):
        refused = {}
        if self.function != "sort_with_indices":
            refused["onnxruntime"] = "ONNX has no such operator"
        if self.function == "sort":
            refused["torch"] = "torch.sort returns positions, too"
        return refused

    def dmlcpu(self):
        x, function = self.inputs(), getattr(dmlcpu, self.function)
        return lambda: function(x, self.axis)

    def dmlcpu_out(self):
        x, function = self.inputs(), getattr(dmlcpu, self.function)
        out = function(x, self.axis)
        out = tuple(out) if isinstance(out, tuple) else out
        return lambda: function(x, self.axis, out=out)

    def numpy(self):
        """Return NumPy's fastest: stable only where the order of equal elements shows in two results."""
        x, axis = self.inputs(), self.axis
        if self.function == "sort":
            return lambda: np.sort(x, axis)
        if self.function == "argsort":
            return lambda: np.argsort(x, axis, kind="stable")

        def call():
            indices = np.argsort(x, axis, kind="stable")
            return np.take_along_axis(x, indices, axis), indices

        return call

    def torch(self):
        torch = torch_package()
        x = tensor(self.inputs())
        if self.function == "argsort":
            return lambda: torch.argsort(x, dim=self.axis, stable=True)
        return lambda: torch.sort(x, dim=self.axis, stable=True)

    def onnxruntime(self):
        x = self.inputs()
        inputs = {"x": x, "k": np.array([x.shape[self.axis]])}
        return onnx_session("TopK", inputs, {"values": x.dtype, "indices": np.int64}, ["k"], axis=self.axis, largest=0)


_SHAPES = ((1, 151_936), (8, 151_936), (1, 1_000_000), (1, 10_000_000), (1_000, 1_000), (20_000, 64))

SORTS = table(
    *(SortCase("sort_with_indices", shape, dtype=dtype) for dtype in ("float32", "int64") for shape in _SHAPES),
    SortCase("sort_with_indices", (1_000, 1_000), axis=0),
    SortCase("argsort", (1, 1_000_000)),
    SortCase("argsort", (1_000, 1_000)),
    SortCase("sort", (1, 1_000_000)),
    SortCase("sort", (1_000, 1_000)),
    SortCase("sort", (20_000, 64)),
)
DATA = table(
    *(SortCase("sort_with_indices", (1_000, 1_000), data=name) for name in PATTERNS if name != "random"),
)
TABLES = {"sort": SORTS, "sort_data": DATA}
