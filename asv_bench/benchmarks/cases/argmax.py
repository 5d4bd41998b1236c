"""Cases of argmax; argmin has its kernels."""

from dataclasses import dataclass, replace

import numpy as np

import dmlcpu
from dmlcpu import reference

from ..onnx_peer import onnx_session
from ..torch_peer import tensor, torch_package
from .case import Case, by, compiled, dtype_of, table, tensor_of
from .top_k import PATTERNS


@dataclass(frozen=True)
class ArgMaxCase(Case):
    shape: tuple[int, ...]
    axis: int | None = -1
    dtype: str = "float32"

    def __str__(self):
        return f"{by(self.shape)}{'' if self.axis == -1 else f' axis {self.axis}'} {self.dtype}"

    def shrunk(self):
        return replace(self, shape=tuple(min(n, 12) for n in self.shape))

    def inputs(self):
        """Return x."""
        return np.ascontiguousarray(PATTERNS["random"](self.shape, dtype_of(self.dtype)))

    def expected(self, calls):
        return (reference.argmax(self.inputs(), axis=self.axis),)

    def dmlcpu(self):
        x = self.inputs()
        return lambda: dmlcpu.argmax(x, axis=self.axis)

    def dmlcpu_out(self):
        x = self.inputs()
        out = dmlcpu.argmax(x, axis=self.axis)
        return lambda: dmlcpu.argmax(x, axis=self.axis, out=out)

    def dmlcpu_bound(self):
        return dmlcpu.bind(dmlcpu.argmax, self.inputs(), axis=self.axis)

    def dmlcpu_compiled(self):
        x = self.inputs()
        tensors = {"input_tensor": tensor_of(x), "output_tensor": tensor_of(np.empty((len(x), 1), np.int64))}
        direction = dmlcpu.AxisDirection.INCREASING  # the first of equal elements
        return compiled(dmlcpu.ArgmaxOperatorDesc(**tensors, axes=(1,), axis_direction=direction), input_tensor=x)

    def numpy(self):
        x = self.inputs()
        return lambda: np.argmax(x, self.axis)

    def onnxruntime(self):
        x = self.inputs()
        run = onnx_session("ArgMax", {"x": x}, {"y": np.int64}, axis=self.axis, keepdims=0)
        return lambda: run()[0]

    def torch(self):
        torch = torch_package()
        x = tensor(self.inputs())
        return lambda: torch.argmax(x, self.axis)


TABLES = {
    "argmax": table(
        ArgMaxCase((8, 151_936)),
        ArgMaxCase((1_000, 1_000)),
        ArgMaxCase((1_000, 1_000), axis=0),
        ArgMaxCase((20_000, 64)),
        ArgMaxCase((1_000, 1_000), dtype="int64"),
        ArgMaxCase((1_000, 1_000), dtype="uint8"),
    )
}
TINY = ArgMaxCase((4, 64))
