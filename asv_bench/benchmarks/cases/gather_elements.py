"""Cases of gather_elements."""

from dataclasses import dataclass, replace

import numpy as np

import dmlcpu
from dmlcpu import reference

from ..onnx_peer import onnx_session
from ..torch_peer import tensor, torch_package
from .case import Case, by, compiled, table, tensor_of


@dataclass(frozen=True)
class GatherElementsCase(Case):
    shape: tuple[int, ...]
    count: tuple[int, ...]  # the shape of the indices
    axis: int

    def __str__(self):
        return f"{by(self.count)} of {by(self.shape)} axis {self.axis}"

    def shrunk(self):
        shape, count = (tuple(min(n, 8) for n in sizes) for sizes in (self.shape, self.count))
        return replace(self, shape=shape, count=count)

    def inputs(self):
        """Return x and indices."""
        rng = np.random.default_rng(0)
        return rng.random(self.shape, np.float32), rng.integers(0, self.shape[self.axis], self.count)

    def work(self, results):
        """Indices are read, and an element for each is read and written."""
        _, indices = self.inputs()
        return indices.nbytes + 2 * results[0].nbytes, "bytes"

    def expected(self, calls):
        x, indices = self.inputs()
        return (reference.gather_elements(x, indices, axis=self.axis),)

    def dmlcpu(self):
        x, indices = self.inputs()
        return lambda: dmlcpu.gather_elements(x, indices, axis=self.axis)

    def dmlcpu_out(self):
        x, indices = self.inputs()
        out = np.empty(indices.shape, x.dtype)
        return lambda: dmlcpu.gather_elements(x, indices, axis=self.axis, out=out)

    def dmlcpu_bound(self):
        return dmlcpu.bind(dmlcpu.gather_elements, *self.inputs(), axis=self.axis)

    def dmlcpu_compiled(self):
        x, indices = self.inputs()
        y = np.empty(indices.shape, x.dtype)
        arrays = {"input_tensor": x, "indices_tensor": indices, "output_tensor": y}
        tensors = {name: tensor_of(array) for name, array in arrays.items()}
        return compiled(dmlcpu.GatherElementsOperatorDesc(**tensors, axis=self.axis), **arrays)

    def numpy(self):
        x, indices = self.inputs()
        return lambda: np.take_along_axis(x, indices, self.axis)

    def onnxruntime(self):
        x, indices = self.inputs()
        run = onnx_session("GatherElements", {"x": x, "indices": indices}, {"y": x.dtype}, axis=self.axis)
        return lambda: run()[0]

    def torch(self):
        torch = torch_package()
        x, indices = map(tensor, self.inputs())
        return lambda: torch.gather(x, self.axis, indices)


TABLES = {
    "gather_elements": table(
        GatherElementsCase((10_000, 64), (100_000, 64), 0),
        GatherElementsCase((4_096, 50_000), (4_096, 64), 1),
        GatherElementsCase((1_000, 1_000), (1_000, 1_000), 1),
    )
}
TINY = GatherElementsCase((8, 16), (4, 16), 0)
