"""Cases of matmul_integer_to_float: a layer of a network, with a bias."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

import dmlcpu
from dmlcpu import reference

from ..onnx_peer import onnx_session
from .case import Case, compiled, table, tensor_of
from .quantized_matmul import QuantizedMatmulCase, short


class FloatInputs(NamedTuple):
    a: np.ndarray  # (M, K)
    a_scale: np.float32
    a_zero_point: np.integer
    b: np.ndarray  # (K, N)
    b_scale: np.ndarray  # one for each column
    b_zero_point: None
    bias: np.ndarray  # (N,)


@dataclass(frozen=True)
class MatmulIntegerToFloatCase(Case):
    m: int
    k: int
    n: int
    types: tuple[str, str] = ("uint8", "int8")  # of a and b
    constant_b: bool = True

    def __str__(self):
        types = "*".join(short(t) for t in self.types)
        return f"{self.m}x{self.k}x{self.n} {types} to f32 {'constant' if self.constant_b else 'fresh'} B"

    def shrunk(self):
        return replace(self, m=min(self.m, 9), k=min(self.k, 40), n=min(self.n, 21))

    def inputs(self):
        matrices = QuantizedMatmulCase(self.m, self.k, self.n, (*self.types, "int8")).inputs()
        rng = np.random.default_rng(1)
        scale, bias = rng.uniform(0.001, 0.01, self.n), rng.normal(0, 1, self.n)
        zero = matrices.a.dtype.type(3)
        return FloatInputs(matrices.a, np.float32(0.02), zero, matrices.b, scale.astype("f4"), None, bias.astype("f4"))

    def work(self, results):
        return self.m * self.k * self.n, "products"

    def expected(self, calls):
        return (reference.matmul_integer_to_float(*self.inputs()),)

    def _arguments(self):
        arguments = self.inputs()
        return arguments._replace(b=dmlcpu.pack_b(arguments.b)) if self.constant_b else arguments

    def dmlcpu(self, out=None):
        arguments = self._arguments()
        return lambda: dmlcpu.matmul_integer_to_float(*arguments, out=out)

    def dmlcpu_bound(self):
        return dmlcpu.bind(dmlcpu.matmul_integer_to_float, *self._arguments())

    def dmlcpu_compiled(self):
        a, a_scale, a_zero, b, b_scale, _, bias = self.inputs()
        owned = {
            "a_scale_tensor": np.full((1, 1), a_scale),
            "a_zero_point_tensor": np.full((1, 1), a_zero),
            "b_scale_tensor": b_scale[None],
            "bias_tensor": np.tile(bias, (self.m, 1)),
            **({"b_tensor": b} if self.constant_b else {}),
        }
        others = {"a_tensor": a, **({} if self.constant_b else {"b_tensor": b})}
        out = np.empty((self.m, self.n), np.float32)
        tensors = {name: tensor_of(each, dmlcpu.TensorFlags.OWNED_BY_DML) for name, each in owned.items()}
        tensors |= {name: tensor_of(each) for name, each in others.items()}
        desc = dmlcpu.MatrixMultiplyIntegerToFloatOperatorDesc(**tensors, output_tensor=tensor_of(out))
        return compiled(desc, owned, **others, output_tensor=out)

    def dmlcpu_out(self):
        return self.dmlcpu(np.empty((self.m, self.n), np.float32))

    def numpy(self):
        """Multiply in float64, where the sums are exact: NumPy's integer product is a plain loop."""
        a, a_scale, a_zero, b, b_scale, _, bias = self.inputs()
        constant = b.astype(np.float64) if self.constant_b else None

        def call():
            weights = b.astype(np.float64) if constant is None else constant
            sums = ((a.astype(np.float64) - a_zero) @ weights).astype(np.float32)
            sums *= a_scale * b_scale
            sums += bias
            return sums

        return call

    def onnxruntime(self):
        names = ("a", "b", "a_scale", "b_scale", "a_zero_point", "b_zero_point", "bias")
        given = self.inputs()._asdict()
        inputs = {name: None if given[name] is None else np.asarray(given[name]) for name in names}
        constants = ["a_scale", "b_scale", "a_zero_point", "bias", *(["b"] if self.constant_b else [])]
        outputs = {"y": np.float32}
        run = onnx_session("MatMulIntegerToFloat", inputs, outputs, constants, domain="com.microsoft")
        return lambda: run()[0]


SHAPES = table(
    *(
        MatmulIntegerToFloatCase(*sizes, (a, "int8"), constant_b)
        for a in ("uint8", "int8")
        for sizes in ((128, 768, 3_072), (1_024, 1_024, 1_024), (1, 4_096, 4_096))
        for constant_b in (True, False)
    )
)
TABLES = {"matmul_integer_to_float": SHAPES}

TINY = MatmulIntegerToFloatCase(16, 64, 64)
