"""ONNX models for the tests of their dispatchables."""

from pathlib import Path
from typing import Any

import onnx
from dx_models import buffer, dispatch, printed, zeros
from onnx import TensorProto, helper

FLOAT = TensorProto.FLOAT


def save_onnx(
    path: Path, nodes: list[Any], inputs: dict[str, Any], outputs: dict[str, Any], initializers: tuple[Any, ...] = ()
) -> None:
    """Save a model. inputs, outputs: name -> (type, shape), or a type of another kind."""

    def infos(tensors: dict[str, Any]) -> list[Any]:
        return [
            helper.make_tensor_value_info(name, *kind)
            if isinstance(kind, tuple)
            else helper.make_value_info(name, kind)
            for name, kind in tensors.items()
        ]

    graph = helper.make_graph(nodes, "model", infos(inputs), infos(outputs), initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.save(model, path)


def gemm(folder: Path) -> dict[str, Any]:
    """Two products and their sum: all shapes are fixed."""
    nodes = [
        helper.make_node("Gemm", ["A0", "B0"], ["gemm_0"]),
        helper.make_node("Gemm", ["A1", "B1"], ["gemm_1"]),
        helper.make_node("Add", ["gemm_0", "gemm_1"], ["add"]),
    ]
    inputs = {f"{name}{i}": (FLOAT, shape) for i in (0, 1) for name, shape in (("A", [3, 2]), ("B", [2, 4]))}
    save_onnx(folder / "gemm.onnx", nodes, inputs, {"add": (FLOAT, [3, 4])})
    a, b = buffer("FLOAT32", [1, 2, 3, 4, 5, 6]), buffer("FLOAT32", [1, 2, 3, 4, 5, 6, 7, 8])
    return {
        "resources": {"A0": a, "B0": b, "A1": a, "B1": b, "Out": zeros("FLOAT32", 12)},
        "dispatchables": {"gemm": {"type": "onnx", "sourcePath": "gemm.onnx"}},
        "commands": [dispatch("gemm", A0="A0", B0="B0", A1="A1", B1="B1", add="Out"), *printed("Out")],
    }


def concat(folder: Path) -> dict[str, Any]:
    """Inputs of free sizes, and an output whose shape the model leaves open."""
    node = helper.make_node("Concat", ["x0", "x1"], ["y"], axis=0)
    save_onnx(
        folder / "concat.onnx", [node], {"x0": (FLOAT, ["N", 2]), "x1": (FLOAT, ["N", 2])}, {"y": (FLOAT, [None, None])}
    )

    def concatenated(rows: int, y: Any) -> list[dict[str, Any]]:
        x0, x1 = ({"name": name, "shape": [rows, 2]} for name in ("a", "b"))
        return [dispatch("concat", x0=x0, x1=x1, y=y), *printed(y["name"])]

    return {
        "resources": {
            "a": buffer("FLOAT32", [1, 2, 3, 4, 5, 6]),
            "b": buffer("FLOAT32", [7, 8, 9, 10, 11, 12]),
            "c": zeros("FLOAT32", 12),
            "later": buffer("FLOAT32", "deferred"),
        },
        "dispatchables": {"concat": {"type": "onnx", "sourcePath": "concat.onnx"}},
        "commands": [
            *concatenated(1, {"name": "c", "shape": [2, 2]}),
            *concatenated(3, {"name": "c", "shape": [6, 2]}),
            *concatenated(3, {"name": "later"}),
        ],
    }


SUMS = "22, 28, 34, 40, 46, 60, 74, 88, 70, 92, 114, 136"
