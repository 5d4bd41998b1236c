"""Cases of quantize_linear, dequantize_linear and dynamic_quantize_linear."""

import warnings
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

import dmlcpu
from dmlcpu import reference

from ..onnx_peer import onnx_session
from ..torch_peer import tensor, torch_package
from .case import Case, by, compiled, table, tensor_of

ONNX = {
    "quantize_linear": "QuantizeLinear",
    "dequantize_linear": "DequantizeLinear",
    "dynamic_quantize_linear": "DynamicQuantizeLinear",
}


class Inputs(NamedTuple):
    x: np.ndarray
    scale: np.ndarray | None = None  # None: of dynamic_quantize_linear
    zero_point: np.ndarray | None = None


@dataclass(frozen=True)
class QuantizerCase(Case):
    operator: str
    shape: tuple[int, int]
    per: str = "tensor"  # "row", "column", or the size of blocks along the rows

    # One step of 8 bits. PyTorch multiplies by a reciprocal, so that its ties differ.
    tolerance = 1

    def __str__(self):
        return f"{self.operator} {by(self.shape)} per {self.per}"

    def shrunk(self):
        return replace(self, shape=(min(self.shape[0], 12), 64))

    def inputs(self):
        rng = np.random.default_rng(0)
        x = rng.standard_normal(self.shape, dtype=np.float32)
        if self.operator == "dynamic_quantize_linear":
            return Inputs(x)
        rows, columns = self.shape
        shapes = {"tensor": (), "row": (rows,), "column": (columns,)}
        shape: Any = shapes.get(self.per) if self.per in shapes else (rows, columns // int(self.per))
        scale = (0.01 + rng.random(shape, np.float32) / 20).astype(np.float32)
        zero = np.full(shape, 128, np.uint8)
        quantized = rng.integers(0, 256, self.shape).astype(np.uint8)
        return Inputs(quantized if self.operator == "dequantize_linear" else x, np.asarray(scale), zero)

    def options(self):
        """Return the axis of scales, and the size of blocks."""
        if self.per in ("tensor", "row", "column"):
            return {} if self.per == "tensor" else {"axis": ("row", "column").index(self.per)}
        return {"axis": 1, "block_size": int(self.per)}

    def arguments(self):
        return [each for each in self.inputs() if each is not None]

    def expected(self, calls):
        result = getattr(reference, self.operator)(*self.arguments(), **self.options())
        return tuple(result) if isinstance(result, tuple) else (result,)

    def refusals(self):
        if self.operator == "quantize_linear" and self.per in ("tensor", "row"):
            return {"torch_on_dmlcpu": "dmlcpu does not replace PyTorch's operator"}
        return {"torch": "PyTorch quantizes per tensor and per channel"}

    def dmlcpu(self, out=None):
        function, arguments, options = getattr(dmlcpu, self.operator), self.arguments(), self.options()
        return lambda: function(*arguments, **options, out=out)

    def dmlcpu_out(self):
        made = tuple(map(np.empty_like, self.expected(1)))
        return self.dmlcpu(made if len(made) > 1 else made[0])

    def dmlcpu_bound(self):
        return dmlcpu.bind(getattr(dmlcpu, self.operator), *self.arguments(), **self.options())

    def dmlcpu_compiled(self):
        if self.operator == "dynamic_quantize_linear":
            x, outputs = self.inputs().x, [each.reshape(each.shape or (1, 1)) for each in self.expected(1)]
            names = ("output_tensor", "output_scale_tensor", "output_zero_point_tensor")
            tensors = {"input_tensor": x, **dict(zip(names, outputs, strict=True))}
            descs = {name: tensor_of(array) for name, array in tensors.items()}
            return compiled(dmlcpu.DynamicQuantizeLinearOperatorDesc(**descs), **tensors)
        x, scale, zero = self.inputs()
        kind = dmlcpu.QuantizeOperatorDesc if self.operator == "quantize_linear" else dmlcpu.DequantizeOperatorDesc
        shape = {"tensor": (1, 1), "row": (-1, 1), "column": (1, -1)}.get(self.per, scale.shape)
        parameters = [scale.reshape(shape), zero.reshape(shape)]
        out = np.empty_like(self.expected(1)[0])
        desc = kind(
            input_tensor=tensor_of(x),
            quantization_type=dmlcpu.QuantizationType.SCALE_ZERO_POINT,
            quantization_tensors=[tensor_of(each) for each in parameters],
            output_tensor=tensor_of(out),
        )
        names = ("quantization_tensors[0]", "quantization_tensors[1]")
        return compiled(desc, input_tensor=x, output_tensor=out, **dict(zip(names, parameters, strict=True)))

    def numpy(self):
        """Compute in a few passes; the quotients are divided in float32, too."""
        x, scale, zero = self.inputs()
        if scale is None:
            return lambda: dynamic_by_numpy(x)
        if self.per in ("tensor", "row", "column"):
            wide = {"tensor": (), "row": (-1, 1), "column": (1, -1)}[self.per]
            scale, offset = scale.reshape(wide), zero.reshape(wide).astype(np.float32)
        else:
            scale, offset = (np.repeat(each, int(self.per), 1) for each in (scale, zero.astype(np.float32)))
        if self.operator == "dequantize_linear":
            return lambda: (x - offset) * scale
        return lambda: np.clip(np.rint(x / scale) + offset, 0, 255).astype(np.uint8)

    def onnxruntime(self):
        x, scale, zero = self.inputs()
        given = {"x": x, "scale": scale, "zero": zero}
        outputs = {"y": np.float32 if self.operator == "dequantize_linear" else np.uint8}
        if scale is None:
            given, outputs = {"x": x}, {**outputs, "scale": np.float32, "zero": np.uint8}
        run = onnx_session(ONNX[self.operator], given, outputs, **self.options())
        return lambda: tuple(run())

    def torch(self):
        torch = torch_package()
        x, scale, zero = self.inputs()
        mine = tensor(x)
        with warnings.catch_warnings():  # PyTorch 2.13 says once that it will drop these functions
            warnings.simplefilter("ignore")
            torch.quantize_per_tensor(mine[:1], 1.0, 0, torch.quint8)
        if self.per == "tensor":
            return lambda: torch.quantize_per_tensor(mine, float(scale), int(zero), torch.quint8).int_repr()
        scales, zeros = tensor(scale), tensor(zero.astype(np.int64))
        return lambda: torch.quantize_per_channel(mine, scales, zeros, 0, torch.quint8).int_repr()


def dynamic_by_numpy(x):
    low, high = min(x.min(), np.float32(0)), max(x.max(), np.float32(0))
    scale = (high - low) / np.float32(255)
    zero = np.rint(-low / scale)
    return np.clip(np.rint(x / scale) + zero, 0, 255).astype(np.uint8), np.array(scale), np.array(zero, np.uint8)


SIZE = (4_096, 4_096)
SHAPES = table(
    *(
        QuantizerCase(operator, SIZE, per)
        for operator in ("quantize_linear", "dequantize_linear")
        for per in ("tensor", "row", "column", "32")
    ),
    QuantizerCase("dynamic_quantize_linear", SIZE),
    *(QuantizerCase(operator, (128, 768)) for operator in ONNX),
)
TABLES = {"quantize_linear": SHAPES}
