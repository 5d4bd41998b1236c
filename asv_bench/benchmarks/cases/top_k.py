"""Cases of top_k."""

from dataclasses import dataclass, replace
from importlib.util import find_spec

import numpy as np

import dmlcpu
from dmlcpu import reference

from ..onnx_peer import onnx_session
from ..torch_peer import tensor, torch_package
from .case import Case, by, compiled, dtype_of, table, tensor_of


@dataclass(frozen=True)
class TopKCase(Case):
    shape: tuple[int, ...]
    k: int
    axis: int = -1
    dtype: str = "float32"
    data: str = "random"

    def __str__(self):
        axis = "" if self.axis == -1 else f" axis {self.axis}"
        return f"{by(self.shape)} k {self.k}{axis} {self.dtype}{'' if self.data == 'random' else f' {self.data}'}"

    def shrunk(self):
        shape = tuple(min(n, 12) for n in self.shape)
        return replace(self, shape=shape, k=min(self.k, shape[self.axis]))

    def inputs(self):
        """Return x."""
        x = PATTERNS[self.data](self.shape, dtype_of(self.dtype))
        return np.ascontiguousarray(x)

    def expected(self, calls):
        return reference.top_k(self.inputs(), self.k, axis=self.axis)

    def refusals(self):
        refused = {}
        if self.dtype in ("float64", "bfloat16"):
            refused["dmlcpu_compiled"] = f"DirectML has no top-k of {self.dtype}"
        if self.dtype in ("uint16", "uint32", "uint64"):
            refused["torch"] = f"torch.topk has no {self.dtype}"
        if self.dtype in ("uint16", "uint32", "uint64", "bfloat16"):
            refused["onnxruntime"] = f"onnxruntime has no TopK of {self.dtype}"
        if self.dtype == "bfloat16" and find_spec("ml_dtypes") is None:
            refused |= dict.fromkeys(("dmlcpu", "dmlcpu_out", "dmlcpu_bound", "numpy"), "ml_dtypes is not installed")
        return refused

    def dmlcpu(self):
        x = self.inputs()
        return lambda: dmlcpu.top_k(x, self.k, axis=self.axis)

    def dmlcpu_out(self):
        x = self.inputs()
        out = dmlcpu.top_k(x, self.k, axis=self.axis)
        out = tuple(np.empty_like(array) for array in out)
        return lambda: dmlcpu.top_k(x, self.k, axis=self.axis, out=out)

    def dmlcpu_bound(self):
        return dmlcpu.bind(dmlcpu.top_k, self.inputs(), self.k, axis=self.axis)

    def dmlcpu_compiled(self):
        x = self.inputs()
        values, indices = dmlcpu.top_k(x, self.k, axis=self.axis, index_dtype=np.uint32)
        desc = dmlcpu.TopK1OperatorDesc(
            input_tensor=tensor_of(x),
            output_value_tensor=tensor_of(values),
            output_index_tensor=tensor_of(indices),
            axis=self.axis % x.ndim,
            k=self.k,
            axis_direction=dmlcpu.AxisDirection.DECREASING,
        )
        return compiled(desc, input_tensor=x, output_value_tensor=values, output_index_tensor=indices)

    def numpy(self):
        x, k, axis = self.inputs(), self.k, self.axis
        behind = (slice(None),) * (x.ndim - 1 - axis % x.ndim)
        last = (..., slice(x.shape[axis] - k, None), *behind)
        best_first = (..., slice(None, None, -1), *behind)

        def call():
            indices = np.argpartition(x, x.shape[axis] - k, axis)[last]
            values = np.take_along_axis(x, indices, axis)
            order = np.argsort(values, axis)[best_first]
            return np.take_along_axis(values, order, axis), np.take_along_axis(indices, order, axis)

        return call

    def onnxruntime(self):
        x = self.inputs()
        inputs = {"x": x, "k": np.array([self.k])}
        return onnx_session("TopK", inputs, {"values": x.dtype, "indices": np.int64}, ["k"], axis=self.axis)

    def torch(self):
        torch = torch_package()
        x = tensor(self.inputs())
        return lambda: torch.topk(x, self.k, self.axis)


def _random(shape, dtype):
    rng = np.random.default_rng(0)
    if dtype.kind in "iu":
        return rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, shape, dtype, endpoint=True)
    return rng.standard_normal(shape, np.float32).astype(dtype)


def _organ_pipe(shape, dtype):
    n = shape[-1]
    return np.broadcast_to(-np.abs(np.arange(n) - n // 2).astype(dtype), shape)


PATTERNS = {
    "random": _random,
    "sorted": lambda shape, dtype: np.sort(_random(shape, dtype), axis=-1),
    "reversed": lambda shape, dtype: np.sort(_random(shape, dtype), axis=-1)[..., ::-1],
    "all equal": np.ones,
    "two values": lambda shape, dtype: (_random(shape, dtype) > 0).astype(dtype),
    "all NaN": lambda shape, dtype: np.full(shape, np.nan, dtype),
    "organ pipe": _organ_pipe,
}
_INTEGERS = (f"{u}int{bits}" for bits in (8, 16, 32, 64) for u in ("", "u"))

SHAPES = table(
    TopKCase((1_000, 10_000), 10),
    TopKCase((64, 32_000), 50),
    TopKCase((200, 151_936), 40),
    TopKCase((10_000, 1_000), 100),
    TopKCase((1_000, 1_000), 500),
    TopKCase((1_000, 1_000), 1_000),
    TopKCase((2_000, 2_048), 2_048),
    TopKCase((100_000, 64), 8),
    TopKCase((1_000_000, 8), 2),
    TopKCase((10_000, 1_000), 10, axis=0),
    TopKCase((32, 500, 300), 5, axis=1),
    TopKCase((1, 1_000_000), 10),
    TopKCase((1, 10_000_000), 1_000),
    TopKCase((1, 100_000_000), 100),
)
TYPES = table(
    *(TopKCase((1_000, 10_000), 10, dtype=name) for name in ("float16", "bfloat16", "float64", *_INTEGERS)),
    # 64 bits: AVX2 has neither unsigned comparisons nor maxima of them.
    *(TopKCase((60_000, 80), 10, dtype=name) for name in ("float64", "int64")),
    *(TopKCase((8_000, 700), 12, axis=0, dtype=name) for name in ("float64", "int64")),
    *(TopKCase((6_000, 1_500), 128, dtype=name) for name in ("float64", "int64")),
)
DATA = table(*(TopKCase((1_000, 10_000), 10, data=name) for name in PATTERNS if name != "random"))
SIZES = table(
    *(TopKCase((100, n), 10) for n in (100, 1_000, 10_000, 100_000)),
    *(TopKCase((100, 10_000), k) for k in (1, 100, 1_000, 10_000)),
)
TABLES = {"top_k": SHAPES, "top_k_sizes": SIZES, "top_k_types": TYPES, "top_k_data": DATA}

TORCH = (
    TopKCase((64,), 5),
    *(TopKCase((1, n), 50) for n in (1_000, 10_000, 50_257, 151_936)),
    TopKCase((32, 50_257), 50),
    TopKCase((1_000, 1_000), 500),
)
THREADED = (
    *(TopKCase((1, n), k) for n in (20_000, 50_000, 151_936, 500_000) for k in (1, 50)),
    TopKCase((64, 32_000), 50),
    TopKCase((1_000, 1_000), 500),
)
TINY = TopKCase((1, 64), 8)
MIXED = (TopKCase((64, 32_000), 50),)
