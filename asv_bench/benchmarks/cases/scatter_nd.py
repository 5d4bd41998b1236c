"""Cases of scatter_nd."""

from dataclasses import dataclass, replace

import numpy as np

import dmlcpu
from dmlcpu import reference

from ..onnx_peer import onnx_session
from ..torch_peer import tensor, torch_package
from .case import Case, by, compiled, dtype_of, table, tensor_of

_UFUNCS = {"none": None, "add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}


@dataclass(frozen=True)
class ScatterNDCase(Case):
    shape: tuple[int, ...]
    updates: int
    coordinates: int = 1
    rows: int | None = None  # the number of different places of the updates; None: each update has its own
    reduction: str = "none"
    in_place: bool = False
    dtype: str = "float32"
    zipf: bool = False  # the n-th of the rows gets 1/n times as many updates as the first
    index_type: str = "int64"

    def __str__(self):
        where = "" if self.rows is None else f" on {self.rows} rows{' by Zipf' if self.zipf else ''}"
        how = f"{'' if self.reduction == 'none' else f' {self.reduction}'}{' in place' if self.in_place else ''}"
        slices = "" if self.coordinates == len(self.shape) else f" of {by(self.shape[self.coordinates :])}"
        index_type = "" if self.index_type == "int64" else f" by {self.index_type}"
        return f"{self.updates}{slices}{where} into {by(self.shape)}{how} {self.dtype}{index_type}"

    def shrunk(self):
        """Return the same case, small enough for a test; cases of two sizes stay two."""
        shape, updates = tuple(min(n, 20) for n in self.shape), 8 + len(str(self.updates))
        return replace(self, shape=shape, updates=updates, rows=None if self.rows is None else 4)

    def inputs(self):
        """Return x, indices, updates."""
        rng = np.random.default_rng(0)
        places = self.shape[: self.coordinates]
        space = int(np.prod(places))
        if self.rows is None:
            flat = rng.permutation(space)[: self.updates]
        else:
            weights = 1 / np.arange(1, self.rows + 1) if self.zipf else np.ones(self.rows)
            flat = rng.permutation(self.rows)[rng.choice(self.rows, self.updates, p=weights / weights.sum())]
        indices = np.stack(np.unravel_index(flat, places), axis=-1).astype(self.index_type)
        x = rng.random(self.shape, np.float32).astype(dtype_of(self.dtype))
        updates = rng.random((self.updates, *self.shape[self.coordinates :]), np.float32)
        return x, indices, updates.astype(x.dtype)

    def work(self, results):
        """In place, updates and indices are read, and what they meet is read and written."""
        x, indices, updates = self.inputs()
        index_bytes = sum(each.nbytes for each in (indices if isinstance(indices, tuple) else (indices,)))
        places = 2 * min(updates.nbytes, x.nbytes)
        return index_bytes + updates.nbytes + (places if self.in_place else 2 * x.nbytes), "bytes"

    def expected(self, calls):
        x, indices, updates = self.inputs()
        for _ in range(calls if self.in_place else 1):
            x = reference.scatter_nd(x, indices, updates, reduction=self.reduction)
        return (x,)

    def refusals(self):
        refused = {}
        if self.in_place:
            refused["dmlcpu_out"] = "in place, out is x"
        if self.index_type != "int64":
            refused |= {"onnxruntime": "onnxruntime takes int64", "torch": "torch takes int64"}
        if self.reduction != "none" or self.in_place or len(self.shape) > 1 or self.dtype == "float64":
            refused["dmlcpu_compiled"] = "this desc is made of single elements of one dimension"
        return refused

    def dmlcpu(self):
        x, indices, updates = self.inputs()
        out = x if self.in_place else None
        return lambda: dmlcpu.scatter_nd(x, indices, updates, reduction=self.reduction, out=out)

    def dmlcpu_out(self):
        x, indices, updates = self.inputs()
        out = np.empty_like(x)
        return lambda: dmlcpu.scatter_nd(x, indices, updates, reduction=self.reduction, out=out)

    def dmlcpu_bound(self):
        x, indices, updates = self.inputs()
        out = x if self.in_place else None
        return dmlcpu.bind(dmlcpu.scatter_nd, x, indices, updates, reduction=self.reduction, out=out)

    def dmlcpu_compiled(self):
        x, indices, updates = self.inputs()
        arrays = {"input_tensor": x[None], "indices_tensor": indices, "updates_tensor": updates[None]}
        arrays["output_tensor"] = arrays["input_tensor"]
        desc = dmlcpu.ScatterNDOperatorDesc(
            **{name: tensor_of(array) for name, array in arrays.items()},
            input_dimension_count=1,
            indices_dimension_count=2,
        )
        return compiled(desc, **arrays)

    def numpy(self):
        x, indices, updates = self.inputs()
        where, ufunc = tuple(np.ascontiguousarray(indices.T)), _UFUNCS[self.reduction]

        def call():
            y = x if self.in_place else x.copy()
            if ufunc is None:
                y[where] = updates
            else:
                ufunc.at(y, where, updates)
            return y

        return call

    def onnxruntime(self):
        """Return a call that always copies: ONNX Runtime has no form in place."""
        x, indices, updates = self.inputs()
        run = onnx_session(
            "ScatterND", {"x": x, "indices": indices, "updates": updates}, {"y": x.dtype}, reduction=self.reduction
        )
        return lambda: run()[0]

    def torch(self):
        torch_package()
        x, indices, updates = self.inputs()
        where, values = tuple(tensor(np.ascontiguousarray(column)) for column in indices.T), tensor(updates)
        y, accumulate = tensor(x), {"none": False, "add": True}[self.reduction]
        if self.in_place and accumulate and len(where) == 1:
            return lambda: y.index_add_(0, where[0], values)
        if self.in_place:
            return lambda: y.index_put_(where, values, accumulate)
        return lambda: y.index_put(where, values, accumulate)


SHAPES = table(
    ScatterNDCase((50_257, 768), 2_048),
    ScatterNDCase((1_000_000, 64), 10_000),
    ScatterNDCase((4_096, 4_096), 4_000_000, coordinates=2),
    ScatterNDCase((10_000_000,), 5_000_000),
    ScatterNDCase((50_257, 768), 16_384, in_place=True),
    ScatterNDCase((50_257, 768), 16_384, rows=2_000, reduction="add", in_place=True),
    ScatterNDCase((30_000, 256), 100_000, rows=30_000, zipf=True, reduction="add", in_place=True),
    ScatterNDCase((1_000_000,), 4_000_000, rows=1_000, reduction="add", in_place=True),
    ScatterNDCase((1_000,), 20_000_000, rows=1_000, reduction="add", in_place=True),
)
TYPES = table(
    *(ScatterNDCase((50_257, 768), 2_048, dtype=name) for name in ("uint8", "float16", "float32", "float64")),
    *(
        ScatterNDCase((4_096, 4_096), 4_000_000, coordinates=2, index_type=name)
        for name in ("int64", "uint64", "int32", "uint32")
    ),
)
# The length of slices; the part of 4 Mi elements that is updated; the updates of one place; the type of indices.
GRID = table(
    *(
        ScatterNDCase(
            (2**22 // length, length) if length > 1 else (2**22,),
            2**22 // length // rarity,
            rows=None if repeats == 1 else 2**22 // length // rarity // repeats,
            reduction="none" if repeats == 1 else "add",
            index_type=index_type,
        )
        for length in (1, 16, 256, 4_096)
        for rarity in (2, 64)
        for repeats in (1, 8)
        for index_type in ("int64", "int32")
    )
)
TABLES = {"scatter_nd": SHAPES, "scatter_nd_types": TYPES, "scatter_nd_grid": GRID}

TORCH = (
    ScatterNDCase((50_257, 64), 4_096, rows=2_000, reduction="add", in_place=True),
    ScatterNDCase((50_257, 768), 16_384, rows=2_000, reduction="add", in_place=True),
    ScatterNDCase((50_257, 64), 4_096, rows=2_000, reduction="add", in_place=True, dtype="int64"),
    ScatterNDCase((1_000, 1_000), 100_000, coordinates=2, rows=1_000_000, reduction="add", in_place=True),
    ScatterNDCase((1_000, 1_000), 100_000, coordinates=2, in_place=True),
    ScatterNDCase((50_257, 64), 4_096, in_place=True),
)
THREADED = (ScatterNDCase((50_257, 768), 2_048), ScatterNDCase((1_000_000,), 10_000))
TINY = ScatterNDCase((64,), 8)
MIXED = (ScatterNDCase((1_000_000,), 10_000),)
