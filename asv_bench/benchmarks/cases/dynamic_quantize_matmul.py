"""Cases of dynamic_quantize_matmul: a layer of a network with constant weights and a bias, of float activations."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

import dmlcpu
from dmlcpu import reference

from ..onnx_peer import onnx_session
from ..torch_peer import tensor, torch_package
from .case import Case, by, table


class Inputs(NamedTuple):
    x: np.ndarray  # (M, K)
    b: np.ndarray  # (K, N), of 7 bits: ONNX Runtime's sums of more saturate on processors without VNNI
    b_scale: np.ndarray  # one for each column
    b_zero_point: None
    bias: np.ndarray  # (N,)


@dataclass(frozen=True)
class DynamicQuantizeMatmulCase(Case):
    m: int
    k: int
    n: int
    per: str = "tensor"  # or "row"

    # PyTorch's rows are quantized symmetrically, to other steps.
    tolerance = 0.15

    def __str__(self):
        return f"{by((self.m, self.k, self.n))} f32*s8 per {self.per}"

    def shrunk(self):
        return replace(self, m=min(self.m, 9), k=min(self.k, 40), n=min(self.n, 21))

    def inputs(self):
        rng = np.random.default_rng(0)
        x, bias = (rng.standard_normal(shape, dtype=np.float32) for shape in ((self.m, self.k), self.n))
        b = rng.integers(-64, 64, (self.k, self.n), np.int8)
        return Inputs(x, b, rng.uniform(0.001, 0.002, self.n).astype(np.float32), None, bias)

    def work(self, results):
        return self.m * self.k * self.n, "products"

    def expected(self, calls):
        return (reference.dynamic_quantize_matmul(*self.inputs(), per_row=self.per == "row"),)

    def refusals(self):
        if self.per == "row":
            return {"onnxruntime": "ONNX Runtime has one range for all rows"}
        return dict.fromkeys(("torch", "torch_on_dmlcpu"), "PyTorch's layers have a range for each row")

    def dmlcpu(self, out=None):
        arguments = self.inputs()
        arguments = arguments._replace(b=dmlcpu.pack_b(arguments.b))
        per_row = self.per == "row"
        return lambda: dmlcpu.dynamic_quantize_matmul(*arguments, per_row=per_row, out=out)

    def dmlcpu_out(self):
        return self.dmlcpu(np.empty((self.m, self.n), np.float32))

    def dmlcpu_bound(self):
        arguments = self.inputs()
        arguments = arguments._replace(b=dmlcpu.pack_b(arguments.b))
        return dmlcpu.bind(dmlcpu.dynamic_quantize_matmul, *arguments, per_row=self.per == "row")

    def onnxruntime(self):
        x, b, b_scale, _, bias = self.inputs()
        zero = np.zeros(self.n, np.int8)
        given = {"x": x, "b": b, "b_scale": b_scale, "b_zero_point": zero, "bias": bias}
        constants = [name for name in given if name != "x"]
        run = onnx_session("DynamicQuantizeMatMul", given, {"y": np.float32}, constants, domain="com.microsoft")
        return lambda: run()[0]

    def torch(self):
        """Quantize each row, and multiply as floats: `torch._int_mm` takes many times as long without VNNI."""
        torch = torch_package()
        x, b, b_scale, _, bias = (None if each is None else tensor(each) for each in self.inputs())
        weights = b.to(torch.float32) * b_scale

        def call():
            scale = x.abs().amax(-1, keepdim=True).div_(127).clamp_min_(1e-12)
            a = torch.round(x / scale).to(torch.int8)
            return (a.to(torch.float32) @ weights).mul_(scale).add_(bias)

        return call


SHAPES = table(
    *(
        DynamicQuantizeMatmulCase(*sizes, per)
        for sizes in ((128, 768, 3_072), (1_024, 1_024, 1_024), (16, 768, 768), (1, 256, 256))
        for per in ("tensor", "row")
    )
)
TABLES = {"dynamic_quantize_matmul": SHAPES}
