"""Cases of scatter_elements."""

from dataclasses import dataclass, replace

import numpy as np

import dmlcpu
from dmlcpu import reference

from ..onnx_peer import onnx_session
from ..torch_peer import tensor, torch_package
from .case import Case, by, compiled, table, tensor_of

_TORCH = {"add": "sum", "max": "amax", "min": "amin", "mul": "prod"}


@dataclass(frozen=True)
class ScatterElementsCase(Case):
    shape: tuple[int, ...]
    count: tuple[int, ...]  # the shape of indices and updates
    axis: int
    reduction: str = "none"
    in_place: bool = False
    repeats: bool = False  # a row has one index, as ONNX's Expand makes it

    tolerance = 1e-4  # of float32 sums

    def __str__(self):
        how = f"{'' if self.reduction == 'none' else f' {self.reduction}'}{' in place' if self.in_place else ''}"
        rows = " by row" if self.repeats else ""
        return f"{by(self.count)}{rows} into {by(self.shape)} axis {self.axis}{how}"

    def shrunk(self):
        shape, count = (tuple(min(n, most) for n in sizes) for sizes, most in ((self.shape, 8), (self.count, 8)))
        return replace(self, shape=shape, count=count)

    def inputs(self):
        """Return x, indices, updates. Without a reduction, the indices of a line differ as far as they can."""
        rng, n = np.random.default_rng(0), self.shape[self.axis]
        if self.repeats:
            indices = np.repeat(rng.integers(0, n, self.count[0]), self.count[1]).reshape(self.count)
        elif self.reduction == "none" and self.count[self.axis] <= n:
            indices = rng.integers(0, n - self.count[self.axis] + 1, self.count)
            indices += np.expand_dims(np.arange(self.count[self.axis]), 1 - self.axis)
        else:
            indices = rng.integers(0, n, self.count)
        return rng.random(self.shape, np.float32), indices, rng.random(self.count, np.float32)

    def work(self, results):
        """In place, updates and indices are read, and what they meet is read and written."""
        x, indices, updates = self.inputs()
        places = 2 * min(updates.nbytes, x.nbytes)
        return indices.nbytes + updates.nbytes + (places if self.in_place else 2 * x.nbytes), "bytes"

    def expected(self, calls):
        x, indices, updates = self.inputs()
        for _ in range(calls if self.in_place else 1):
            x = reference.scatter_elements(x, indices, updates, axis=self.axis, reduction=self.reduction)
        return (x,)

    def refusals(self):
        refused = {}
        if self.in_place:
            refused |= {"dmlcpu_out": "in place, out is x", "onnxruntime": "ONNX Runtime has no form in place"}
        if self.reduction != "none":
            refused["dmlcpu_compiled"] = "the desc has no reduction"
            refused["numpy"] = "np.put_along_axis has no reduction"
        return refused

    def dmlcpu(self):
        x, indices, updates = self.inputs()
        options = {"axis": self.axis, "reduction": self.reduction, "out": x if self.in_place else None}
        return lambda: dmlcpu.scatter_elements(x, indices, updates, **options)

    def dmlcpu_out(self):
        x, indices, updates = self.inputs()
        out = np.empty_like(x)
        return lambda: dmlcpu.scatter_elements(x, indices, updates, axis=self.axis, reduction=self.reduction, out=out)

    def dmlcpu_bound(self):
        x, indices, updates = self.inputs()
        options = {"axis": self.axis, "reduction": self.reduction, "out": x if self.in_place else None}
        return dmlcpu.bind(dmlcpu.scatter_elements, x, indices, updates, **options)

    def dmlcpu_compiled(self):
        x, indices, updates = self.inputs()
        arrays = {"input_tensor": x, "indices_tensor": indices, "updates_tensor": updates, "output_tensor": x}
        tensors = {name: tensor_of(array) for name, array in arrays.items()}
        return compiled(dmlcpu.ScatterElementsOperatorDesc(**tensors, axis=self.axis), **arrays)

    def numpy(self):
        x, indices, updates = self.inputs()

        def call():
            y = x if self.in_place else x.copy()
            np.put_along_axis(y, indices, updates, self.axis)
            return y

        return call

    def onnxruntime(self):
        x, indices, updates = self.inputs()
        inputs = {"x": x, "indices": indices, "updates": updates}
        run = onnx_session("ScatterElements", inputs, {"y": x.dtype}, axis=self.axis, reduction=self.reduction)
        return lambda: run()[0]

    def torch(self):
        torch_package()
        x, indices, updates = map(tensor, self.inputs())
        y, axis = x, self.axis
        if self.reduction == "none":
            function = y.scatter_ if self.in_place else y.scatter
            return lambda: function(axis, indices, updates)
        if self.reduction == "add":
            function = y.scatter_add_ if self.in_place else y.scatter_add
            return lambda: function(axis, indices, updates)
        function = y.scatter_reduce_ if self.in_place else y.scatter_reduce
        return lambda: function(axis, indices, updates, _TORCH[self.reduction])


_ROWS, _COLUMNS = ((10_000, 64), (100_000, 64), 0), ((4_096, 50_000), (4_096, 64), 1)
SHAPES = table(
    *(
        ScatterElementsCase(*sizes, reduction=reduction, in_place=in_place)
        for sizes in (_ROWS, _COLUMNS)
        for reduction in ("none", "add", "max")
        for in_place in (False, True)
    ),
    ScatterElementsCase((400, 128), (8_000, 128), 0, reduction="add", repeats=True),
)
TABLES = {"scatter_elements": SHAPES}
TINY = ScatterElementsCase((8, 256), (4, 256), 0)
