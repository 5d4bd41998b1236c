"""Cases of matmul_integer."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

import dmlcpu
from dmlcpu import reference

from ..onnx_peer import onnx_session
from ..torch_peer import tensor, torch_package
from .case import Case, compiled, table, tensor_of
from .quantized_matmul import QuantizedMatmulCase, short


class IntegerInputs(NamedTuple):
    a: np.ndarray  # (M, K)
    a_zero_point: None
    b: np.ndarray  # (K, N)
    b_zero_point: None


@dataclass(frozen=True)
class MatmulIntegerCase(Case):
    m: int
    k: int
    n: int
    types: tuple[str, str] = ("uint8", "int8")  # of a and b
    constant_b: bool = True

    def __str__(self):
        types = "*".join(short(t) for t in self.types)
        return f"{self.m}x{self.k}x{self.n} {types} to s32 {'constant' if self.constant_b else 'fresh'} B"

    def shrunk(self):
        return replace(self, m=min(self.m, 9), k=min(self.k, 40), n=min(self.n, 21))

    def inputs(self):
        matrices = QuantizedMatmulCase(self.m, self.k, self.n, (*self.types, "int8")).inputs()
        return IntegerInputs(matrices.a, None, matrices.b, None)

    def work(self, results):
        return self.m * self.k * self.n, "products"

    def expected(self, calls):
        return (reference.matmul_integer(*self.inputs()),)

    def refusals(self):
        return {} if self.types == ("int8", "int8") else {"torch": "torch takes int8"}

    def dmlcpu(self, out=None):
        arguments = self.inputs()
        if self.constant_b:
            arguments = arguments._replace(b=dmlcpu.pack_b(arguments.b))
        return lambda: dmlcpu.matmul_integer(*arguments, out=out)

    def dmlcpu_bound(self):
        arguments = self.inputs()
        return dmlcpu.bind(
            dmlcpu.matmul_integer, *(arguments._replace(b=dmlcpu.pack_b(arguments.b)) if self.constant_b else arguments)
        )

    def dmlcpu_compiled(self):
        a, _, b, _ = self.inputs()
        out = np.empty((self.m, self.n), np.int32)
        flags = dmlcpu.TensorFlags.OWNED_BY_DML if self.constant_b else dmlcpu.TensorFlags.NONE
        desc = dmlcpu.MatrixMultiplyIntegerOperatorDesc(
            a_tensor=tensor_of(a), b_tensor=tensor_of(b, flags), output_tensor=tensor_of(out)
        )
        if self.constant_b:
            return compiled(desc, {"b_tensor": b}, a_tensor=a, output_tensor=out)
        return compiled(desc, a_tensor=a, b_tensor=b, output_tensor=out)

    def dmlcpu_out(self):
        return self.dmlcpu(np.empty((self.m, self.n), np.int32))

    def numpy(self):
        """Multiply in float64, where the sums are exact: NumPy's integer product is a plain loop."""
        a, _, b, _ = self.inputs()
        constant = b.astype(np.float64) if self.constant_b else None

        def call():
            weights = b.astype(np.float64) if constant is None else constant
            return (a.astype(np.float64) @ weights).astype(np.int32)

        return call

    def onnxruntime(self):
        a, _, b, _ = self.inputs()
        run = onnx_session("MatMulInteger", {"a": a, "b": b}, {"y": np.int32}, ["b"] if self.constant_b else [])
        return lambda: run()[0]

    def torch(self):
        torch = torch_package()
        a, _, b, _ = self.inputs()
        mine, weights = tensor(a), tensor(b)
        return lambda: torch._int_mm(mine, weights)


SHAPES = table(
    *(
        MatmulIntegerCase(*sizes, (a, "int8"), constant_b)
        for a in ("uint8", "int8")
        for sizes in ((1_024, 1_024, 1_024), (1, 4_096, 4_096))
        for constant_b in (True, False)
    )
)
TABLES = {"matmul_integer": SHAPES}

TORCH = (
    MatmulIntegerCase(1_024, 1_024, 1_024, ("int8", "int8"), False),
    MatmulIntegerCase(4, 4_096, 4_096, ("int8", "int8"), False),
)
TINY = MatmulIntegerCase(16, 64, 64)
