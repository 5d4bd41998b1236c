"""Cases of quantized_matmul."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

import dmlcpu
from dmlcpu import reference
from dmlcpu.runtime.isa import Isa, detected

from ..onnx_peer import onnx_session
from ..torch_peer import tensor, torch_package
from .case import Case, compiled, table, tensor_of

_ONNXRUNTIME_TYPES = (  # of a, b and y
    ("uint8", "int8", "uint8"),
    ("uint8", "uint8", "uint8"),
    ("int8", "int8", "int8"),
)


class MatmulInputs(NamedTuple):
    a: np.ndarray  # (M, K)
    a_scale: np.ndarray  # (1, 1) or (M, 1)
    a_zero_point: np.ndarray
    b: np.ndarray  # (K, N)
    b_scale: np.ndarray  # (1, 1) or (1, N)
    b_zero_point: None
    y_scale: np.ndarray  # (1, 1) or (M, 1)
    y_zero_point: np.ndarray


@dataclass(frozen=True)
class QuantizedMatmulCase(Case):
    m: int
    k: int
    n: int
    types: tuple[str, str, str] = ("uint8", "int8", "uint8")  # of a, b and y
    constant_b: bool = True  # b is weights, which contenders pack once if they can
    per_row: bool = False
    per_column: bool = True
    batch: tuple[int, ...] = ()
    weights: str = "7-bit"  # or "normal", scaled to 8 bits, or "uniform": all 8 bits alike
    numbers: str = "arrays"  # of scales and zero points for dmlcpu, or scalars of "Python", or of "NumPy"

    tolerance = 1

    def __str__(self):
        types = "*".join(short(t) for t in self.types[:2])
        rows = f"{' per row' if self.per_row else ''}{' per column' if self.per_column else ''}"
        b = "constant" if self.constant_b else "fresh"
        batch = "".join(f"{n} of " for n in self.batch)
        kind = "" if self.weights == "7-bit" else f" {self.weights}"
        numbers = "" if self.numbers == "arrays" else f" {self.numbers} scalars"
        what = f"{types} to {short(self.types[2])}{rows or ' per tensor'} {b}{kind} B{numbers}"
        return f"{batch}{self.m}x{self.k}x{self.n} {what}"

    def shrunk(self):
        return replace(self, batch=self.batch and (2,), m=min(self.m, 9), k=min(self.k, 40), n=min(self.n, 21))

    def inputs(self):
        rng = np.random.default_rng(0)
        a = rng.integers(
            np.iinfo(self.types[0]).min, np.iinfo(self.types[0]).max, (*self.batch, self.m, self.k), self.types[0]
        )
        shape, reach = (*self.batch, self.k, self.n), 64 if self.weights == "7-bit" else 128
        middle = 0 if self.types[1] == "int8" else reach
        if self.weights == "normal":
            b = np.clip(np.rint(rng.normal(middle, 127 / 4.2, shape)), middle - 127, middle + 127).astype(self.types[1])
        else:
            b = rng.integers(middle - reach, middle + reach, shape, self.types[1])
        rows = (self.m, 1) if self.per_row else (1, 1)
        columns = (1, self.n) if self.per_column else (1, 1)
        a_scale, b_scale = (rng.uniform(0.01, 0.02, shape).astype(np.float32) for shape in (rows, columns))
        # With this scale most of y is between the limits of its type.
        y_scale = rng.uniform(1, 2, rows).astype(np.float32) * np.float32(0.01 * self.k**0.5)
        zero_points = [np.full(rows, 128 if t == "uint8" else 3, t) for t in (self.types[0], self.types[2])]
        return MatmulInputs(a, a_scale, zero_points[0], b, b_scale, None, y_scale, zero_points[1])

    def work(self, results):
        return self.m * self.k * self.n * int(np.prod(self.batch)), "products"

    def expected(self, calls):
        return (reference.quantized_matmul(*self.inputs()),)

    def refusals(self):
        refused = {"torch_on_dmlcpu": "dmlcpu does not replace PyTorch's operator"}
        # Without VNNI they add products in 16 bits: weights of more than 7 bits saturate.
        if self.weights != "7-bit" and not detected() & {Isa.AVXVNNI, Isa.DOTPROD}:
            wrong = {"onnxruntime": [("uint8", "int8")], "torch": [("uint8", "int8"), ("int8", "int8")]}
            for peer in (peer for peer, types in wrong.items() if self.types[:2] in types):
                refused[peer] = f"{peer} is wrong for weights of 8 bits on this processor"
        if self.per_row:
            refused["onnxruntime"] = "onnxruntime takes one scale for a, and one for y"
        elif self.types not in _ONNXRUNTIME_TYPES:
            refused["onnxruntime"] = "onnxruntime has no QLinearMatMul of these types"
        if self.types[1] != "int8" or self.per_row or self.batch:
            refused["torch"] = "torch takes one matrix of int8 weights, one scale for a, and one for y"
        if self.batch or self.numbers != "arrays":
            refused["dmlcpu_compiled"] = "this desc is made of matrices, and tensors of scales"
        return refused

    def arguments(self):
        """Return the arguments of dmlcpu's function."""
        arguments = self.inputs()
        if self.constant_b:
            arguments = arguments._replace(b=dmlcpu.pack_b(arguments.b))
        if self.numbers == "arrays":
            return arguments
        scalar = {"Python": np.ndarray.item, "NumPy": lambda array: array.dtype.type(array.item())}[self.numbers]
        return arguments._replace(
            **{
                name: scalar(value)
                for name, value in arguments._asdict().items()
                if name[1:2] == "_" and value is not None
            }
        )

    def dmlcpu(self, out=None):
        arguments = self.arguments()
        return lambda: dmlcpu.quantized_matmul(*arguments, out=out)

    def dmlcpu_bound(self):
        return dmlcpu.bind(dmlcpu.quantized_matmul, *self.arguments())

    def dmlcpu_compiled(self):
        inputs = self.inputs()
        owned = {  # what are constants of ONNX Runtime's model
            "a_scale_tensor": inputs.a_scale,
            "a_zero_point_tensor": inputs.a_zero_point,
            "b_scale_tensor": inputs.b_scale,
            "output_scale_tensor": inputs.y_scale,
            "output_zero_point_tensor": inputs.y_zero_point,
            **({"b_tensor": inputs.b} if self.constant_b else {}),
        }
        others = {"a_tensor": inputs.a, **({} if self.constant_b else {"b_tensor": inputs.b})}
        out = np.empty((self.m, self.n), self.types[2])
        tensors = {name: tensor_of(each, dmlcpu.TensorFlags.OWNED_BY_DML) for name, each in owned.items()}
        tensors |= {name: tensor_of(each) for name, each in others.items()}
        desc = dmlcpu.QuantizedLinearMatrixMultiplyOperatorDesc(**tensors, output_tensor=tensor_of(out))
        return compiled(desc, owned, **others, output_tensor=out)

    def dmlcpu_out(self):
        return self.dmlcpu(np.empty((*self.batch, self.m, self.n), self.types[2]))

    def numpy(self):
        """Multiply in float32: NumPy's integer product is a plain loop. The last bit of y may differ."""
        a, a_scale, a_zero_point, b, b_scale, _, y_scale, y_zero_point = self.inputs()
        limits = np.iinfo(self.types[2])
        constant = b.astype(np.float32) if self.constant_b else None

        def call():
            weights = b.astype(np.float32) if constant is None else constant
            y = (a.astype(np.float32) - a_zero_point) @ weights
            y *= a_scale * b_scale / y_scale
            y = np.rint(y, out=y)
            y += y_zero_point
            return np.clip(y, limits.min, limits.max, out=y).astype(self.types[2])

        return call

    def onnxruntime(self):
        arguments = self.inputs()._asdict()
        arguments["b_zero_point"] = np.zeros(arguments["b_scale"].shape, self.types[1])
        inputs = {
            name: array if name in ("a", "b") else array.reshape(-1) if name.startswith("b_") else array.reshape(())
            for name, array in arguments.items()
        }
        constants = [name for name in inputs if name != "a" and (name != "b" or self.constant_b)]
        run = onnx_session("QLinearMatMul", inputs, {"y": self.types[2]}, constants)
        return lambda: run()[0]

    def torch(self):
        """Return the oneDNN call of a quantized linear layer after torch.compile."""
        torch = torch_package()
        inputs = self.inputs()
        a, b_scale = tensor(inputs.a), tensor(inputs.b_scale.reshape(-1))
        weights = tensor(np.ascontiguousarray(inputs.b.T))  # torch's own layout
        b_zero_point = torch.zeros(b_scale.shape, dtype=torch.int64)
        of_a = (inputs.a_scale.item(), inputs.a_zero_point.item())
        of_y = (inputs.y_scale.item(), inputs.y_zero_point.item(), getattr(torch, self.types[2]), "none", [], "")
        onednn = torch.ops.onednn
        constant = onednn.qlinear_prepack(weights, a.shape) if self.constant_b else None

        def call():
            packed = onednn.qlinear_prepack(weights, a.shape) if constant is None else constant
            return onednn.qlinear_pointwise(a, *of_a, packed, b_scale, b_zero_point, None, *of_y)

        return call


def short(dtype):
    return {"uint8": "u8", "int8": "s8"}[dtype]


_SIZES = [
    (1_024, 1_024, 1_024),
    (2_048, 2_048, 2_048),
    (512, 4_096, 4_096),
    (128, 768, 3_072),
    (384, 1_024, 1_024),
    (16, 4_096, 4_096),
    (1, 4_096, 4_096),
]
SHAPES = table(
    *(QuantizedMatmulCase(*sizes, constant_b=constant_b) for sizes in _SIZES for constant_b in (True, False)),
    QuantizedMatmulCase(128, 64, 128, constant_b=False, per_column=False, batch=(64,)),
    *(
        QuantizedMatmulCase(*sizes, types, weights=weights)
        for sizes in ((1_024, 1_024, 1_024), (128, 768, 3_072), (16, 4_096, 4_096))
        for types, weights in (
            (("uint8", "int8", "uint8"), "normal"),
            (("uint8", "int8", "uint8"), "uniform"),
            (("uint8", "uint8", "uint8"), "uniform"),
        )
    ),
)
PARAMETERS = table(
    *(
        QuantizedMatmulCase(512, 512, 512, (a, b, y), per_row=per_row, per_column=per_row)
        for a in ("uint8", "int8")
        for b in ("uint8", "int8")
        for y in ("uint8", "int8")
        for per_row in (False, True)
    )
)
SIZES = table(*(QuantizedMatmulCase(m, 1_024, 1_024) for m in (1, 4, 16, 64, 256, 1_024)))
TABLES = {"quantized_matmul": SHAPES, "quantized_matmul_sizes": SIZES, "quantized_matmul_parameters": PARAMETERS}

THREADED = (
    QuantizedMatmulCase(100, 768, 2_304),
    QuantizedMatmulCase(1, 4_096, 4_096),
    QuantizedMatmulCase(128, 768, 3_072, constant_b=False),
)
TINY = QuantizedMatmulCase(16, 64, 64)
TINY_OTHERS = tuple(
    QuantizedMatmulCase(16, 64, 64, per_column=False, numbers=numbers) for numbers in ("Python", "NumPy", "arrays")
)
MIXED = (QuantizedMatmulCase(100, 768, 2_304),)
